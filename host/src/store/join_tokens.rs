//! `join_tokens`: one-time tokens with which machines enrol.
//!
//! A token's text is `bcj_<secret>_<SHA-256 of the authority's certificate, hexadecimal>`: the machine knows the right gateway by
//! it before it tells the secret.
//!
//! **Invariant:** the secret is stored nowhere, only its hash; a token is used once, in the transaction that enrols its machine.

use bc_proto::id::{NodeId, TenantId};
use sha2::{Digest as _, Sha256};
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::Error;

/// What a token's text begins with.
const PREFIX: &str = "bcj_";

/// A token to make.
#[derive(Debug, Clone)]
pub struct NewJoinToken {
    /// [`hash`] of its secret.
    pub hash: [u8; 32],
    /// Whose node it makes.
    pub tenant: TenantId,
    /// The node that enrols again with it; `None` for a new one.
    pub node: Option<NodeId>,
    /// The only kinds that its certificate allows; `None` for all.
    pub allowed_kinds: Option<Vec<String>>,
    /// Until when it is good.
    pub expires_at: OffsetDateTime,
}

/// A token as it was made, and whether it was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Whose node it makes.
    pub tenant: TenantId,
    /// The node that enrols again with it.
    pub node: Option<NodeId>,
    /// The only kinds that its certificate allows.
    pub allowed_kinds: Option<Vec<String>>,
    /// Until when it is good.
    pub expires_at: OffsetDateTime,
    /// When it was used.
    pub used_at: Option<OffsetDateTime>,
}

/// The text of a token, for the machine that joins.
pub fn text(secret: &str, authority_sha256: &[u8; 32]) -> String {
    format!("{PREFIX}{secret}_{}", hex::encode(authority_sha256))
}

/// The secret in a token's text, and the SHA-256 of the authority's certificate; `None` if it is no token.
pub fn parse(text: &str) -> Option<(&str, [u8; 32])> {
    let (secret, authority) = text.strip_prefix(PREFIX)?.rsplit_once('_')?;
    let mut sha256 = [0; 32];
    hex::decode_to_slice(authority, &mut sha256).ok()?;
    (!secret.is_empty()).then_some((secret, sha256))
}

/// What is stored of a secret: SHA-256 of its text.
pub fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Makes a token.
pub async fn create(db: &mut PgConnection, token: NewJoinToken, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "insert into join_tokens (hash, tenant_id, node_id, allowed_kinds, created_at, expires_at)
         values ($1, $2, $3, $4, $5, $6)",
        &token.hash[..],
        token.tenant.uuid(),
        token.node.map(|node| node.uuid()) as Option<Uuid>,
        token.allowed_kinds.as_deref() as Option<&[String]>,
        now,
        token.expires_at,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Reads a token and keeps others from using it until the transaction ends.
pub async fn lock(db: &mut PgTransaction<'_>, hash: [u8; 32]) -> Result<Option<JoinToken>, Error> {
    let row = sqlx::query!(
        "select tenant_id, node_id, allowed_kinds, expires_at, used_at from join_tokens where hash = $1 for update",
        &hash[..],
    )
    .fetch_optional(&mut **db)
    .await?;
    Ok(row.map(|row| JoinToken {
        tenant: TenantId::from_uuid(row.tenant_id),
        node: row.node_id.map(NodeId::from_uuid),
        allowed_kinds: row.allowed_kinds,
        expires_at: row.expires_at,
        used_at: row.used_at,
    }))
}

/// Notes that a locked token was used.
pub async fn spend(db: &mut PgTransaction<'_>, hash: [u8; 32], now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!("update join_tokens set used_at = $2 where hash = $1 and used_at is null", &hash[..], now)
        .execute(&mut **db)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_gives_its_parts_back_and_others_give_none() {
        let text = text("se_cr-et", &[0xab; 32]);
        assert_eq!(parse(&text), Some(("se_cr-et", [0xab; 32])));
        for bad in ["", "bcj_", "bcj_x", "bcj_x_abab", &text.replace("bcj_", "bct_"), &text.replace("se_cr-et_", "_")] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
