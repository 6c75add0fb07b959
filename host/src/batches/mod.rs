//! Batches under a quorum: made, joined by commands, approved, rejected, and over.
//!
//! Modules use it in their own transaction: [`create`] makes a batch, [`enqueue`] queues commands under it. Both do what the API
//! does for people, through the same checks.
//!
//! **Invariant:** a destructive command that every node would refuse is not queued, and [`admit`] is the one place that says so.
//! While a batch lacks approvals its commands are held; each decision on a batch finds all of them, so none is held for ever.

mod admit;
mod decide;
#[cfg(test)]
mod tests;

use bc_proto::batch::{self, Document, Leaf};
use bc_proto::id::{BatchId, TenantId};
use sqlx::PgConnection;
use time::{Duration, OffsetDateTime};

pub use self::admit::{Refused, admit, enqueue};
pub use self::decide::{Approved, NotApproved, NotRejected, approve, expire, reject};
use crate::store::batches::{self, Batch, NewBatch};
use crate::store::{Error, unix_ms};

/// A batch that somebody asks for. Whoever makes one has checked it: the scope has 1 to [`batch::MAX_LEAVES`] leaves, their
/// subjects are the tenant's, their kinds are known.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// Its id, if it is new.
    pub id: BatchId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The name of the identity that asks, or `module/<name>`.
    pub requested_by: String,
    /// Unique per tenant: a second batch with it is the first.
    pub idempotency_key: String,
    /// Why, in words.
    pub reason: String,
    /// What it allows, in the order in which it is shown.
    pub scope: Vec<Leaf>,
    /// How long its commands may be accepted.
    pub lasts: Duration,
}

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It is a batch now.
    New(Batch),
    /// The key's batch was made earlier; this is it, as it stands.
    Existing(Batch),
    /// The key's batch says something else.
    Conflict(BatchId),
}

/// Makes a batch, in the caller's transaction.
pub async fn create(db: &mut PgConnection, proposal: &Proposal, now: OffsetDateTime) -> Result<Created, Error> {
    let Proposal { id, tenant, requested_by, idempotency_key, reason, scope, lasts } = proposal;
    let tree = batch::tree(scope);
    let created_at_ms = unix_ms(now);
    let document = Document {
        batch_id: *id,
        tenant_id: *tenant,
        reason: reason.clone(),
        requested_by: requested_by.clone(),
        root: hex::encode(tree.root()),
        size: scope.len() as u64,
        created_at_ms,
        expires_at_ms: created_at_ms + lasts_ms(*lasts),
    };
    let new = NewBatch { document: &document, idempotency_key, scope, tree: &tree };
    let is_new = batches::insert(&mut *db, new, now).await?;
    let found = batches::find_by_key(db, *tenant, idempotency_key).await?;
    let found = found.ok_or_else(|| crate::store::corrupt("batches", "idempotency_key", id))?;
    if is_new {
        return Ok(Created::New(found));
    }
    // The root stands for the whole scope.
    let Document { batch_id, created_at_ms, expires_at_ms, .. } = found.document;
    let same = Document { batch_id, created_at_ms, expires_at_ms, ..document };
    let is_same = same == found.document && expires_at_ms - created_at_ms == lasts_ms(*lasts);
    Ok(if is_same { Created::Existing(found) } else { Created::Conflict(batch_id) })
}

fn lasts_ms(lasts: Duration) -> u64 {
    u64::try_from(lasts.whole_milliseconds()).unwrap_or(0)
}
