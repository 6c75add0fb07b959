//! Whether commands may be queued, as far as batches have a say, and whether they wait for approvals.
//!
//! **Invariant:** a command joins a batch under the batch's lock, which is held until the command is committed: whoever approves
//! or ends the batch comes before it, and the command is decided by that; or after it, and finds the command.

use std::collections::{BTreeMap, BTreeSet};

use bc_proto::batch::Approval;
use bc_proto::canonical;
use bc_proto::id::{BatchId, NodeId};
use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use crate::queue;
use crate::queue::enqueue::{NewCommand, Outcome};
use crate::store::batches::{self, Candidate, State};
use crate::store::{Error, unix_ms};
use crate::trust::{Settings, Signer};

/// Why commands are not queued.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Nodes refuse this kind outside batches.
    #[error("{kind} is destructive, and nodes run it only in an approved batch")]
    BatchRequired {
        /// The kind.
        kind: String,
    },
    /// The node's tenant has no such batch.
    #[error("there is no batch {0}")]
    UnknownBatch(BatchId),
    /// The batch does not allow it.
    #[error("the scope of {batch} does not have {kind} on {node} with this payload")]
    OutOfScope {
        /// The batch.
        batch: BatchId,
        /// The command's node.
        node: NodeId,
        /// The command's kind.
        kind: String,
    },
    /// The batch is over.
    #[error("{batch} is {state}")]
    Over {
        /// The batch.
        batch: BatchId,
        /// How it ended.
        state: State,
    },
    /// The database.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Decides on commands together, the first that is refused refuses all: sets whether each is held. Where a command has a
/// batch, `db` is in the transaction that queues it. Costs nothing where no command has a batch and none has to.
pub async fn admit(
    db: &mut PgConnection,
    settings: &Settings,
    commands: &mut [NewCommand],
    now: OffsetDateTime,
) -> Result<(), Refused> {
    let ids: BTreeSet<BatchId> = commands.iter().filter_map(|command| command.batch).collect();
    if ids.is_empty() && !settings.requires_batches() {
        return Ok(());
    }
    let ids: Vec<BatchId> = ids.into_iter().collect();
    let (mut locked, mut approvals) = (BTreeMap::new(), BTreeMap::new());
    if !ids.is_empty() {
        locked = batches::lock_to_join(&mut *db, &ids).await?;
        approvals = batches::approvals(&mut *db, &ids).await?;
    }
    let candidates: Vec<Candidate> = commands.iter().map(candidate).collect();
    for standing in batches::standings(db, &candidates).await? {
        let Some(command) = commands.get_mut(standing.position) else { continue };
        let Some(id) = command.batch else {
            if standing.is_destructive && settings.requires_batches() {
                return Err(Refused::BatchRequired { kind: standing.kind });
            }
            continue;
        };
        let batch = locked.get(&id).filter(|_| standing.is_ours).ok_or(Refused::UnknownBatch(id))?;
        if !standing.is_in_scope {
            return Err(Refused::OutOfScope { batch: id, node: command.node, kind: standing.kind });
        }
        match batch.state {
            state @ (State::Rejected | State::Expired) => return Err(Refused::Over { batch: id, state }),
            // Nobody has ended it yet.
            State::Open | State::Approved if now >= batch.expires_at => {
                return Err(Refused::Over { batch: id, state: State::Expired });
            }
            State::Open | State::Approved => {}
        }
        command.is_held = settings.approvers.as_ref().is_some_and(|policy| {
            let approvals: Vec<Approval> =
                approvals.get(&id).into_iter().flatten().map(|received| received.approval).collect();
            // Not by its state: approvals that counted once may have expired.
            !policy.tally(&batch.document, &approvals, unix_ms(now)).is_met
        });
    }
    Ok(())
}

fn candidate(command: &NewCommand) -> Candidate {
    let payload = canonical::to_vec(&command.payload).expect("a JSON value has canonical bytes");
    Candidate {
        node: command.node,
        kind_digest: command.kind_digest,
        payload_sha256: Sha256::digest(payload).into(),
        batch: command.batch,
    }
}

/// Queues commands, in the caller's transaction, if batches let them: what modules call. The outcomes are in the commands' order.
/// As after [`queue::enqueue_many`], commit soon, and tell the nodes.
pub async fn enqueue(
    db: &mut PgTransaction<'_>,
    settings: &Settings,
    signer: &Signer,
    mut commands: Vec<NewCommand>,
    now: OffsetDateTime,
) -> Result<Vec<Outcome>, Refused> {
    admit(db, settings, &mut commands, now).await?;
    Ok(queue::enqueue_many(db, signer, &commands, now).await?)
}
