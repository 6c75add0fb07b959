//! The transparency log: how it grows, and what is proven of it.
//!
//! A loop reads the outbox as watchers do, and adds what concerns destructive commands and batches. It runs on every replica that
//! has a pool; whoever takes the lock works.
//!
//! **Invariant:** a log that was ever signed grows only under a signature. What was logged is never read to decide anything: a log
//! that is behind or broken delays nothing else.

pub mod certificate;
mod grow;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bc_proto::audit::{Entry, Head, Queued};
use bc_proto::batch::Approved;
use bc_proto::id::{CommandId, TenantId};
use bc_proto::merkle::Hash;
use bc_proto::merkle::stored::{self, Frontier, Node, Plan};
use bc_proto::receipt::{Logged, Receipt, VERSION};
use sqlx::PgConnection;

pub use self::grow::{Grown, grow, start};
use crate::store::transparency::{self, Kept};
use crate::store::{self, batches, commands};

/// Why the log could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// What is kept does not come to the head that was published. Nothing is added to such a log.
    #[error("the transparency log was changed: its first {size} entries do not come to the root of its head")]
    Changed {
        /// How many entries the head has.
        size: u64,
    },
    /// A hash is missing.
    #[error("the transparency log was changed: hashes of its first {size} entries are missing")]
    Missing {
        /// How many entries there should be.
        size: u64,
    },
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The newest head; that of an empty log is signed by nobody.
pub async fn head(db: &mut PgConnection) -> Result<Head, Error> {
    let empty = || Head { size: 0, root: hex::encode(Frontier::default().root()), signature: None };
    Ok(transparency::head(db).await?.unwrap_or_else(empty))
}

/// The root of the first `size` entries, and the proofs of those at these places, each below `size`.
pub async fn inclusion(db: &mut PgConnection, size: u64, indices: &[u64]) -> Result<(Hash, Vec<Vec<u8>>), Error> {
    let missing = || Error::Missing { size };
    let plans: Vec<Plan> = indices.iter().filter_map(|index| Plan::inclusion(*index, size)).collect();
    let kept = transparency::nodes(db, wanted(size, &plans)).await?;
    let root = Frontier::of(size, &kept).ok_or_else(missing)?.root();
    let proofs = plans.iter().map(|plan| plan.prove(&kept)).collect::<Option<_>>().ok_or_else(missing)?;
    Ok((root, proofs))
}

/// The proof that the first `to` entries begin with the first `from`, and both roots. `from` is at most `to`.
pub async fn consistency(db: &mut PgConnection, from: u64, to: u64) -> Result<(Hash, Hash, Vec<u8>), Error> {
    let missing = || Error::Missing { size: to };
    let plan = Plan::consistency(from, to).ok_or_else(missing)?;
    let mut nodes = wanted(to, std::slice::from_ref(&plan));
    nodes.extend(stored::frontier(from));
    let kept: BTreeMap<Node, Hash> = transparency::nodes(db, nodes).await?;
    let root = |size| Frontier::of(size, &kept).map(|it| it.root()).ok_or_else(missing);
    Ok((root(from)?, root(to)?, plan.prove(&kept).ok_or_else(missing)?))
}

fn wanted(size: u64, plans: &[Plan]) -> Vec<Node> {
    stored::frontier(size).into_iter().chain(plans.iter().flat_map(Plan::nodes)).collect()
}

/// The receipt of a tenant's command; `None` while the log does not say that it was queued.
pub async fn receipt(db: &mut PgConnection, tenant: TenantId, command: CommandId) -> Result<Option<Receipt>, Error> {
    let head = head(db).await?;
    let found = transparency::about(db, tenant, command, head.size, true).await?;
    let known: Vec<Option<Entry>> = found.iter().map(|it| serde_json::from_slice(&it.body).ok()).collect();
    let queued = known.iter().flatten().find_map(|it| match it {
        Entry::CommandQueued(queued) => Some(queued),
        _ => None,
    });
    let Some(queued) = queued else { return Ok(None) };
    let approved = approved(db, queued, &known).await?;
    let indices: Vec<u64> = found.iter().map(|it| it.index).collect();
    let (_, proofs) = inclusion(db, head.size, &indices).await?;
    let settled = known.iter().flatten().find_map(|it| match it {
        Entry::CommandSettled(settled) => Some(settled),
        _ => None,
    });
    let (mut result, mut node_certificate) = (None, None);
    if let Some(settled) = settled {
        if settled.result_sha256.is_some() {
            let command = commands::find(db, tenant, command).await?;
            result = command.and_then(|it| it.result).filter(|it| !it.is_empty()).map(|it| STANDARD.encode(it));
        }
        if let Some(Ok(fingerprint)) = settled.node_certificate_sha256.as_ref().map(hex::decode) {
            let certificate = transparency::certificate(db, &fingerprint).await?;
            node_certificate = certificate.map(|it| STANDARD.encode(it));
        }
    }
    let entries = found.into_iter().zip(proofs).map(|(kept, proof)| logged(&kept, proof)).collect();
    Ok(Some(Receipt { version: VERSION, head, entries, approved, result, node_certificate }))
}

/// What the command's batch says: its document, the command's place in it, and the approvals that were logged.
async fn approved(db: &mut PgConnection, order: &Queued, known: &[Option<Entry>]) -> Result<Option<Approved>, Error> {
    let Some(batch) = order.batch else { return Ok(None) };
    let Some(found) = batches::find(db, order.tenant, batch).await? else { return Ok(None) };
    let Some((index, binds_payload, proof)) = transparency::leaf(db, order).await? else { return Ok(None) };
    let approvals = known.iter().flatten().filter_map(|it| match it {
        Entry::Batch(batch) => batch.approval,
        _ => None,
    });
    Ok(Some(Approved { document: found.document, index, binds_payload, proof, approvals: approvals.collect() }))
}

fn logged(kept: &Kept, proof: Vec<u8>) -> Logged {
    Logged { index: kept.index, body: text(&kept.body), proof }
}

/// A leaf as text. One that is none was not written here, and its hash will say so.
pub(crate) fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}
