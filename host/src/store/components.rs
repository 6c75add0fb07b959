//! `kinds.component`: the bytes of registered components.
//!
//! **Invariant:** a component is found by its digest whatever its status: commands stay bound to what they were checked with.

use sqlx::PgConnection;

use super::Error;
use super::kinds::Digest;

/// The component with a digest.
pub async fn find(db: &mut PgConnection, digest: Digest) -> Result<Option<Vec<u8>>, Error> {
    Ok(sqlx::query_scalar!("select component from kinds where digest = $1", &digest[..]).fetch_optional(db).await?)
}
