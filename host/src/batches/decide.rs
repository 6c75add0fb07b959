//! Decisions on a batch: an approval, a rejection, the end of its time.
//!
//! **Invariant:** each is made under the batch's lock and deals with its waiting commands in the same transaction. An approval is
//! verified before it is kept, and the server never sees a key that makes one.

use bc_proto::batch::Approval;
use bc_proto::id::{BatchId, NodeId, TenantId};
use bc_proto::rules::approval::{Tally, Void};
use serde_json::json;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use crate::metrics;
use crate::queue::held;
use crate::store::batches::{self, Batch, State};
use crate::store::{Error, unix_ms};
use crate::trust::Settings;

/// What an approval came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    /// The batch as it stands now.
    pub batch: Batch,
    /// What its approvals come to.
    pub tally: Tally,
    /// Nodes with commands that were let go: have their sessions looked at.
    pub released: Vec<NodeId>,
}

/// Why an approval is not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotApproved {
    /// The tenant has no such batch.
    #[error("there is no batch {0}")]
    UnknownBatch(BatchId),
    /// Nobody is asked for approvals here.
    #[error("no approvers are configured: batches are recorded, and their commands go out at once")]
    NoApprovers,
    /// The batch is over.
    #[error("{0} is {1}")]
    Over(BatchId, State),
    /// It does not count.
    #[error(transparent)]
    Void(Void),
    /// A time that no database keeps.
    #[error("its times must be numbers that JSON keeps exactly, and its end after its beginning")]
    Times,
    /// The database.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The largest whole number up to which JSON's numbers are exact.
const MAX_EXACT: u64 = (1 << 53) - 1;

/// Takes an approval. When the quorum is met with it, the batch's held commands are let go. An approval that is there already
/// changes nothing.
pub async fn approve(
    db: &mut PgTransaction<'_>,
    settings: &Settings,
    tenant: TenantId,
    id: BatchId,
    approval: &Approval,
    now: OffsetDateTime,
) -> Result<Approved, NotApproved> {
    let batch = batches::lock(db, tenant, id).await?.ok_or(NotApproved::UnknownBatch(id))?;
    let policy = settings.approvers.as_ref().ok_or(NotApproved::NoApprovers)?;
    let mut batch = still_open(batch, now).map_err(|state| NotApproved::Over(id, state))?;
    let now_ms = unix_ms(now);
    let mut alone = policy.tally(&batch.document, std::slice::from_ref(approval), now_ms);
    if let Some(void) = alone.void.pop() {
        return Err(NotApproved::Void(void));
    }
    if approval.expires_at_ms > MAX_EXACT || approval.expires_at_ms <= approval.approved_at_ms {
        return Err(NotApproved::Times);
    }
    let name = alone.by.pop_first().unwrap_or_default();
    let is_new = batches::put_approval(db, id, &name, approval, now).await?;
    let all = batches::approvals(db, &[id]).await?.remove(&id).unwrap_or_default();
    let all: Vec<Approval> = all.into_iter().map(|received| received.approval).collect();
    let tally = policy.tally(&batch.document, &all, now_ms);
    let mut released = Vec::new();
    if tally.is_met {
        if batch.state == State::Open {
            batches::approve(db, id).await?;
            batch.state = State::Approved;
            metrics::approved(now - batch.created_at);
        }
        // Not only the first time: where approvals had expired, commands were held again.
        released = held::release(db, id, now).await?;
    }
    if is_new {
        // With the signature: what is kept of an approver is the approval that counts longest, and the log keeps each.
        let body = json!({ "approver": name, "isMet": tally.is_met, "missing": tally.missing, "approval": approval });
        batches::say(db, &batch.document, "batch.approved", body, now).await?;
    }
    Ok(Approved { batch, tally, released })
}

/// The batch, unless it is over: then how it ended, or is about to.
fn still_open(batch: Batch, now: OffsetDateTime) -> Result<Batch, State> {
    match batch.state {
        state @ (State::Rejected | State::Expired) => Err(state),
        State::Open | State::Approved if now >= batch.expires_at => Err(State::Expired),
        State::Open | State::Approved => Ok(batch),
    }
}

/// Why a batch is not rejected.
#[derive(Debug, thiserror::Error)]
pub enum NotRejected {
    /// The tenant has no such batch.
    #[error("there is no batch {0}")]
    UnknownBatch(BatchId),
    /// It is over already.
    #[error("{0} is {1}")]
    Over(BatchId, State),
    /// The database.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Rejects a batch, approved or not: what of it was not sent yet is cancelled, and nothing joins it any more. Rejecting it again
/// changes nothing.
pub async fn reject(
    db: &mut PgTransaction<'_>,
    tenant: TenantId,
    id: BatchId,
    by: &str,
    why: &str,
    now: OffsetDateTime,
) -> Result<Batch, NotRejected> {
    let batch = batches::lock(db, tenant, id).await?.ok_or(NotRejected::UnknownBatch(id))?;
    if batch.state == State::Rejected {
        return Ok(batch);
    }
    let batch = still_open(batch, now).map_err(|state| NotRejected::Over(id, state))?;
    batches::close(db, id, Some((by, why)), now).await?;
    let cancelled = held::cancel(db, id, "batch-rejected", now).await?;
    let body = json!({ "rejectedBy": by, "reason": why, "cancelled": cancelled });
    batches::say(db, &batch.document, "batch.rejected", body, now).await?;
    let rejection = Some((by.to_owned(), why.to_owned()));
    Ok(Batch { state: State::Rejected, closed_at: Some(now), rejection, ..batch })
}

/// Ends batches whose time is over, at most `limit`; returns how many. As many as `limit`: there may be more. What of them was not
/// sent yet is cancelled: nodes would not accept it.
pub async fn expire(db: &mut PgConnection, now: OffsetDateTime, limit: u32) -> Result<usize, Error> {
    let due = batches::lock_due(db, now, limit).await?;
    for batch in &due {
        let id = batch.document.batch_id;
        batches::close(db, id, None, now).await?;
        let cancelled = held::cancel(db, id, "batch-expired", now).await?;
        let body = json!({ "cancelled": cancelled, "wasApproved": batch.state == State::Approved });
        batches::say(db, &batch.document, "batch.expired", body, now).await?;
    }
    Ok(due.len())
}
