//! The first token of a tenant: who makes all others.
//!
//! **Invariant:** whoever can do this can reach the database, which is the greater power.

use bc_proto::id::TenantId;
use sqlx::PgPool;
use time::OffsetDateTime;

/// Makes tenant and identity `admin` where they are missing, and a token for it. `entropy` becomes the token.
#[expect(clippy::unused_async, reason = "until the API's own bootstrap is called here")]
pub async fn admin(
    pool: &PgPool,
    tenant: &str,
    entropy: [u8; 32],
    now: OffsetDateTime,
) -> anyhow::Result<(TenantId, String)> {
    let _ = (pool, tenant, entropy, now);
    anyhow::bail!("this build has no API yet, and so no tokens")
}
