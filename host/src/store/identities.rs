//! `identities`: the people and programs that call the API.
//!
//! **Invariant:** a name means one identity of its tenant.

use bc_proto::id::TenantId;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::Error;

/// An identity, as long as it may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its key.
    pub id: Uuid,
    /// Whether it was disabled: its tokens count for nothing.
    pub is_disabled: bool,
}

/// The tenant's identity of a name; it is created, with this id, if there is none. Its row stays locked until the caller
/// commits, so that what it may do does not change meanwhile.
pub async fn ensure(
    db: &mut PgConnection,
    id: Uuid,
    tenant: TenantId,
    name: &str,
    now: OffsetDateTime,
) -> Result<Identity, Error> {
    // The update changes nothing; without one, a row that was there is neither locked nor returned.
    let identity = sqlx::query_as!(
        Identity,
        r#"insert into identities (id, tenant_id, name, created_at) values ($1, $2, $3, $4)
           on conflict (tenant_id, name) do update set name = excluded.name
           returning id, disabled_at is not null as "is_disabled!""#,
        id,
        tenant.uuid(),
        name,
        now,
    )
    .fetch_one(db)
    .await?;
    Ok(identity)
}
