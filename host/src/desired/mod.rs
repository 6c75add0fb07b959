//! Desired state: what a node should hold and be, and how that changes.
//!
//! Each change makes one more generation of the node's spec, signed and stored in the caller's transaction. Modules use these
//! functions as the API does. Afterwards, and only after the commit, tell [`crate::bus::Signal::Spec`].
//!
//! **Invariant:** the holds in a spec are the live reservations of that transaction, and nobody writes them in by hand.

pub mod bound;

use bc_proto::canonical;
use bc_proto::id::{AllocationId, NodeId, TenantId};
use bc_proto::sign::body::SpecBody;
use bc_proto::spec::{HostSettings, Instance, NodeSpec};
use bc_proto::wire::v1;
use prost::Message as _;
use sqlx::PgTransaction;
use time::OffsetDateTime;

use crate::store::quarantines::{self, Quarantine};
use crate::store::reservations::{Reservation, State};
use crate::store::specs::Spec;
use crate::store::{Error, corrupt, reservations, specs};
use crate::trust::Signer;

/// What a node says that it has applied counts below this: far above what is ever made, and far below what JSON cannot count.
const MAX_APPLIED: u64 = 1 << 48;

/// Who changes a spec, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Author<'a> {
    /// Signs it.
    pub signer: &'a Signer,
    /// An identity's name, or a module's.
    pub name: &'a str,
    /// Now.
    pub now: OffsetDateTime,
}

/// What became of a change of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// There is another generation.
    Made(Spec),
    /// The newest generation is another one than was expected: this.
    Conflict(u64),
    /// The tenant has no such node.
    UnknownNode,
}

/// Sets what a node should be, all but its holds. With `expected`, only as the next generation after that one; 0 is before the
/// first.
pub async fn set(
    db: &mut PgTransaction<'_>,
    author: Author<'_>,
    (tenant, node): (TenantId, NodeId),
    expected: Option<u64>,
    (instances, host): (Vec<Instance>, HostSettings),
) -> Result<Change, Error> {
    if !specs::lock(db, tenant, node).await? {
        return Ok(Change::UnknownNode);
    }
    let newest = newest(db, node).await?;
    if expected.is_some_and(|expected| expected != newest.generation) {
        return Ok(Change::Conflict(newest.generation));
    }
    let generation = floor(db, tenant, node, newest.generation).await?;
    let wanted = NodeSpec { generation, instances, host, ..newest };
    next(db, author, node, wanted).await.map(Change::Made)
}

/// A GPU to reserve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReservation {
    /// The allocation.
    pub id: AllocationId,
    /// The UUID of the GPU, or of a MIG instance.
    pub gpu: String,
    /// A share of it; `None` for all of it.
    pub slot: Option<u32>,
    /// The same key again finds the node's first reservation.
    pub idempotency_key: String,
}

/// What became of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserving {
    /// It is asked for.
    Made(Reservation),
    /// The key's reservation was made earlier; this is it.
    Existing(Reservation),
    /// The key's reservation is of another GPU.
    Conflict(Reservation),
    /// The GPU, all of it or what was asked for, is reserved by this one.
    Taken(AllocationId),
    /// The node is set apart: nothing of it is reserved.
    Quarantined(Quarantine),
    /// The tenant has no such node.
    UnknownNode,
}

/// Reserves a GPU, or a slot of one.
pub async fn reserve(
    db: &mut PgTransaction<'_>,
    author: Author<'_>,
    (tenant, node): (TenantId, NodeId),
    new: NewReservation,
) -> Result<Reserving, Error> {
    if !specs::lock(db, tenant, node).await? {
        return Ok(Reserving::UnknownNode);
    }
    if let Some(existing) = reservations::find_by_key(db, node, &new.idempotency_key).await? {
        let is_same = (&existing.gpu, existing.slot) == (&new.gpu, new.slot);
        return Ok(if is_same { Reserving::Existing(existing) } else { Reserving::Conflict(existing) });
    }
    if let Some(quarantine) = quarantines::find(db, node).await? {
        return Ok(Reserving::Quarantined(quarantine));
    }
    let mut newest = newest(db, node).await?;
    newest.generation = floor(db, tenant, node, newest.generation).await?;
    let holds = reservations::holds(db, node).await?;
    // Slots of one GPU stand beside each other, and nothing beside all of it.
    let is_in_the_way = |slot: Option<u32>| slot.is_none() || new.slot.is_none() || slot == new.slot;
    if let Some(taken) = holds.iter().find(|hold| hold.gpu == new.gpu && is_in_the_way(hold.slot)) {
        return Ok(Reserving::Taken(taken.allocation));
    }
    let reservation = Reservation {
        id: new.id,
        tenant,
        node,
        gpu: new.gpu,
        slot: new.slot,
        state: State::Requested,
        generation: newest.generation + 1,
        bound: None,
        created_at: author.now,
        created_by: author.name.to_owned(),
        active_at: None,
        released_at: None,
    };
    reservations::insert(db, &reservation, &new.idempotency_key).await?;
    next(db, author, node, newest).await?;
    Ok(Reserving::Made(reservation))
}

/// Gives a reservation of a tenant back. Returns it as it then is, and whether this call did it; `None`: there is none.
pub async fn release(
    db: &mut PgTransaction<'_>,
    author: Author<'_>,
    (tenant, node): (TenantId, NodeId),
    id: AllocationId,
) -> Result<Option<(Reservation, bool)>, Error> {
    if !specs::lock(db, tenant, node).await? {
        return Ok(None);
    }
    let found = reservations::find(db, tenant, id).await?.filter(|found| found.node == node);
    let Some(found) = found else { return Ok(None) };
    if !reservations::release(db, id, author.now).await? {
        return Ok(Some((found, false)));
    }
    let mut newest = newest(db, node).await?;
    newest.generation = floor(db, tenant, node, newest.generation).await?;
    next(db, author, node, newest).await?;
    Ok(Some((Reservation { state: State::Released, released_at: Some(author.now), ..found }, true)))
}

/// The newest spec of a node; generation 0 and empty before the first.
async fn newest(db: &mut PgTransaction<'_>, node: NodeId) -> Result<NodeSpec, Error> {
    match specs::newest(db, node).await? {
        Some(stored) => parse(&stored),
        None => Ok(NodeSpec::default()),
    }
}

/// The generation to go on from: the newest one, or the one that the node says it has applied where that is higher. So a control
/// plane that was restored from a backup makes no generations that the node takes for old ones. A number that no control plane
/// ever counts to is the node's own nonsense.
async fn floor(db: &mut PgTransaction<'_>, tenant: TenantId, node: NodeId, newest: u64) -> Result<u64, Error> {
    let applied = specs::find_applied(db, tenant, node).await?.filter(|applied| *applied < MAX_APPLIED);
    Ok(newest.max(applied.unwrap_or(0)))
}

/// What a stored spec says. Errors when no version of this program wrote it.
pub fn parse(stored: &Spec) -> Result<NodeSpec, Error> {
    let bad = || corrupt("node_specs", "document", format!("{} {}", stored.node, stored.generation));
    let spec: NodeSpec = serde_json::from_slice(&stored.document).map_err(|_| bad())?;
    if spec.generation == stored.generation { Ok(spec) } else { Err(bad()) }
}

/// Stores the generation after `after`, with the holds as they are now. The node is locked.
async fn next(db: &mut PgTransaction<'_>, author: Author<'_>, node: NodeId, after: NodeSpec) -> Result<Spec, Error> {
    let mut holds = reservations::holds(db, node).await?;
    holds.sort();
    let wanted = NodeSpec { generation: after.generation + 1, holds, ..after };
    let document = canonical::to_vec(&wanted).expect("specs are text and whole numbers");
    let sha256 = canonical::sha256_hex(&document);
    let body = SpecBody { node, generation: wanted.generation, spec_sha256: &sha256 };
    let signature = author.signer.sign(&body, author.now);
    let stored = Spec {
        node,
        generation: wanted.generation,
        document,
        signature: signature.map(|signature| v1::WorkerSignature::from(signature).encode_to_vec()),
        created_at: author.now,
        created_by: author.name.to_owned(),
    };
    specs::insert(db, &stored).await?;
    Ok(stored)
}

#[cfg(test)]
mod tests;
