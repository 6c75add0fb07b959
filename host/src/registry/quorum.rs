//! Whether people want a kind to be activated: the approvals of a batch.
//!
//! **Invariant:** where a quorum is configured, what is not known to be approved is not.

use bc_proto::batch::{Approval, Leaf};
use bc_proto::id::{BatchId, TenantId};
use bc_proto::rules::approval::Policy;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::store::batches::{self, State};
use crate::store::kinds::Digest;
use crate::store::{Error, unix_ms};

/// What a batch's leaf says instead of a command's kind.
pub const ACTIVATE: &str = "kinds.activate";

/// What approvers sign for the activation of one component: the kind's name, and its digest in the place of a payload's.
pub fn leaf(name: &str, digest: Digest) -> Leaf {
    Leaf { subject: name.to_owned(), kind: ACTIVATE.to_owned(), payload_sha256: Some(hex::encode(digest)) }
}

/// Whether a tenant's batch holds this leaf, is not over, and has its approvals now. `db` is in the transaction that activates: nobody
/// rejects the batch until it ends.
pub async fn allows(
    db: &mut PgConnection,
    policy: &Policy,
    (tenant, batch): (TenantId, BatchId),
    leaf: &Leaf,
    now: OffsetDateTime,
) -> Result<bool, Error> {
    let Some(found) = batches::lock_to_join(&mut *db, &[batch]).await?.remove(&batch) else { return Ok(false) };
    if found.document.tenant_id != tenant {
        return Ok(false);
    }
    let is_over = matches!(found.state, State::Rejected | State::Expired) || now >= found.expires_at;
    if is_over || !batches::scope(&mut *db, batch).await?.contains(leaf) {
        return Ok(false);
    }
    let received = batches::approvals(db, &[batch]).await?.remove(&batch).unwrap_or_default();
    let approvals: Vec<Approval> = received.into_iter().map(|received| received.approval).collect();
    Ok(policy.tally(&found.document, &approvals, unix_ms(now)).is_met)
}
