//! `kinds.component`: the bytes of registered components, and who signed them.
//!
//! **Invariant:** a component is found by its digest whatever its status: commands stay bound to what they were checked with.

use bc_proto::rules::publishing::KindSignature;
use sqlx::PgConnection;

use super::Error;
use super::kinds::{Digest, signature_of};

/// A component, as nodes get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its publisher's signature; `None` for one that is not signed.
    pub signature: Option<KindSignature>,
}

/// The component with a digest.
pub async fn find(db: &mut PgConnection, digest: Digest) -> Result<Option<Component>, Error> {
    let row = sqlx::query!("select component, publisher, publisher_sig from kinds where digest = $1", &digest[..])
        .fetch_optional(db)
        .await?;
    row.map(|row| {
        let signature = signature_of(&digest, row.publisher, row.publisher_sig)?;
        Ok(Component { bytes: row.component, signature })
    })
    .transpose()
}
