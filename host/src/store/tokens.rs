//! `api_tokens`: what identities prove themselves with.
//!
//! **Invariant:** a token's hash alone is stored. It counts only while it is neither expired nor revoked and its identity is
//! not disabled, as of the moment of the call.

use bc_proto::id::TenantId;
use bc_proto::rules::permission::Grant;
use serde::Deserialize;
use sqlx::PgConnection;
use sqlx::types::{Json, Uuid};
use time::OffsetDateTime;

use super::Error;

/// SHA-256 of a token.
pub type Hash = [u8; 32];

/// The first bytes of a hash: they name a token without being it.
pub type Name = [u8; 8];

/// The most tokens that are listed.
const MAX_LISTED: i64 = 10_000;

/// Whose token it is, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The identity.
    pub identity: Uuid,
    /// Its name.
    pub name: String,
    /// Its tenant.
    pub tenant: TenantId,
    /// The tenant's name.
    pub tenant_name: String,
    /// What it may do.
    pub grants: Vec<Grant>,
}

/// A token, less the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// SHA-256 of it.
    pub hash: Vec<u8>,
    /// The identity's name.
    pub identity: String,
    /// What it is for.
    pub label: String,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// Until when it is good.
    pub expires_at: Option<OffsetDateTime>,
    /// Since when it is not.
    pub revoked_at: Option<OffsetDateTime>,
}

#[derive(Debug, Deserialize)]
struct StoredGrant {
    permission: String,
    resource: String,
}

/// Who holds a token that counts now; `None` for all others. One statement: every call begins with it.
pub async fn holder(db: &mut PgConnection, hash: Hash, now: OffsetDateTime) -> Result<Option<Holder>, Error> {
    let row = sqlx::query!(
        r#"select i.id, i.name, i.tenant_id, e.name as tenant_name,
               (select coalesce(jsonb_agg(jsonb_build_object('permission', g.permission, 'resource', g.resource)
                                          order by g.permission, g.resource), '[]')
                from grants g where g.identity_id = i.id) as "grants!: Json<Vec<StoredGrant>>"
           from api_tokens t
           join identities i on i.id = t.identity_id and i.disabled_at is null
           join tenants e on e.id = i.tenant_id
           where t.hash = $1 and t.revoked_at is null and (t.expires_at is null or t.expires_at > $2)"#,
        &hash[..],
        now,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| Holder {
        identity: row.id,
        name: row.name,
        tenant: TenantId::from_uuid(row.tenant_id),
        tenant_name: row.tenant_name,
        grants: row.grants.0.into_iter().map(|it| Grant::new(it.permission, it.resource)).collect(),
    }))
}

/// Adds a token of an identity. The same hash again changes nothing.
pub async fn create(
    db: &mut PgConnection,
    hash: Hash,
    identity: Uuid,
    label: &str,
    expires_at: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into api_tokens (hash, identity_id, label, created_at, expires_at) values ($1, $2, $3, $4, $5)
         on conflict do nothing",
        &hash[..],
        identity,
        label,
        now,
        expires_at,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The tokens of a tenant, newest first, those that no longer count as well.
pub async fn list(db: &mut PgConnection, tenant: TenantId) -> Result<Vec<Token>, Error> {
    let tokens = sqlx::query_as!(
        Token,
        "select t.hash, i.name as identity, t.label, t.created_at, t.expires_at, t.revoked_at
         from api_tokens t join identities i on i.id = t.identity_id
         where i.tenant_id = $1 order by t.created_at desc, t.hash limit $2",
        tenant.uuid(),
        MAX_LISTED,
    )
    .fetch_all(db)
    .await?;
    Ok(tokens)
}

/// Makes a token of a tenant count for nothing from now on; `None`: there is none of this name. Asking again changes nothing.
pub async fn revoke(
    db: &mut PgConnection,
    tenant: TenantId,
    name: Name,
    now: OffsetDateTime,
) -> Result<Option<Token>, Error> {
    let first = [&name[..], &[0; 24]].concat();
    let last = [&name[..], &[0xff; 24]].concat();
    let token = sqlx::query_as!(
        Token,
        "update api_tokens t set revoked_at = coalesce(t.revoked_at, $4)
         from identities i
         where t.hash between $2 and $3 and i.id = t.identity_id and i.tenant_id = $1
         returning t.hash, i.name as identity, t.label, t.created_at, t.expires_at, t.revoked_at",
        tenant.uuid(),
        &first,
        &last,
        now,
    )
    .fetch_optional(db)
    .await?;
    Ok(token)
}
