//! Whether people want a kind to be activated: the approvals of a batch.
//!
//! **Invariant:** where a quorum is configured, what is not known to be approved is not.

use bc_proto::batch::Leaf;
use bc_proto::id::BatchId;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::store::Error;
use crate::store::kinds::Digest;

/// What a batch's leaf says instead of a command's kind.
pub const ACTIVATE: &str = "kinds.activate";

/// What approvers sign for the activation of one component: the kind's name, and its digest in the place of a payload's.
pub fn leaf(name: &str, digest: Digest) -> Leaf {
    Leaf { subject: name.to_owned(), kind: ACTIVATE.to_owned(), payload_sha256: Some(hex::encode(digest)) }
}

/// Whether a batch holds this leaf and has its approvals. Batches are not kept here yet, so none has.
#[expect(clippy::unused_async, reason = "it will ask the database")]
pub async fn allows(
    _db: &mut PgConnection,
    _batch: BatchId,
    _leaf: &Leaf,
    _now: OffsetDateTime,
) -> Result<bool, Error> {
    Ok(false)
}
