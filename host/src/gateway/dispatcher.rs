//! From the queue to the sessions: one claim for all nodes that have room and something to get.
//!
//! **Invariant:** what a certificate does not allow is never sent, whatever the queue let through.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bc_proto::rules::state::Event;

use super::Inner;
use crate::bus::Signal;
use crate::faults::crash_at;
use crate::queue;
use crate::queue::claim::{Delivery, Room};
use crate::queue::settle::Report;
use crate::store::Error;

/// The most nodes of one claim.
const BATCH: usize = 1_000;

/// The wait before the database is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Claims and sends. What becomes dirty while one claim runs goes with the next.
pub(super) async fn run(gateway: Arc<Inner>) {
    loop {
        let nodes = gateway.work.take(BATCH).await;
        if gateway.sessions.is_draining() {
            continue;
        }
        let rooms: Vec<Room> =
            nodes.iter().filter_map(|node| gateway.sessions.find(*node)).flat_map(|session| session.rooms()).collect();
        if rooms.is_empty() {
            continue;
        }
        if let Err(error) = dispatch(&gateway, &rooms).await {
            tracing::error!(error = &error as &dyn std::error::Error, "nothing can be claimed for now");
            gateway.work.add(nodes);
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Moves a BUSY node's commands back into sight when their wait is over.
pub(super) async fn run_timers(gateway: Arc<Inner>) {
    loop {
        let node = gateway.timers.next().await;
        if let Some(session) = gateway.sessions.find(node) {
            session.rewind();
            gateway.work.add([node]);
        }
    }
}

async fn dispatch(gateway: &Inner, rooms: &[Room]) -> Result<(), Error> {
    let claimed = {
        let mut db = gateway.pool.acquire().await?;
        crash_at("claim.before-write");
        queue::claim(&mut db, rooms, gateway.world.now()).await?
    };
    if !claimed.is_empty() {
        crash_at("claim.after-write");
    }
    let epochs: HashMap<_, _> = rooms.iter().map(|room| (room.node, room.epoch)).collect();
    let mut refused = Vec::new();
    for mut delivery in claimed {
        let node = delivery.deliver.node;
        let Some(session) = gateway.sessions.find(node) else { continue };
        // A newer session's hello has replayed it, or will.
        if epochs.get(&node) != Some(&session.epoch) {
            continue;
        }
        if session.allows(&delivery.deliver.kind) {
            crash_at("deliver.before-send");
            gateway.allow_upload(&mut delivery);
            session.deliver(delivery);
            crash_at("deliver.after-send");
        } else {
            refused.push(refusal(&delivery, session.epoch));
        }
    }
    refuse(gateway, &refused).await
}

/// Rejects what the certificate of a session does not allow: a decision of the control plane, not the node's word.
pub(super) fn refusal(delivery: &Delivery, epoch: u64) -> Report {
    tracing::warn!(node = %delivery.deliver.node, command = %delivery.deliver.command, kind = delivery.deliver.kind,
        "the node's restricted identity does not accept this kind");
    Report {
        node: delivery.deliver.node,
        epoch,
        command: delivery.deliver.command,
        event: Event::ReportedRejected,
        reason: "UNSUPPORTED".to_owned(),
        result: br#"{"message":"the node runs a restricted identity that does not accept this kind"}"#.to_vec(),
        at: None,
        node_sig: Vec::new(),
        attested_by: None,
    }
}

pub(super) async fn refuse(gateway: &Inner, refused: &[Report]) -> Result<(), Error> {
    if refused.is_empty() {
        return Ok(());
    }
    let mut db = gateway.pool.acquire().await?;
    let settled = queue::settle(&mut db, refused, gateway.world.now()).await?;
    if !settled.now.is_empty() {
        gateway.bus.tell(Signal::Events);
    }
    Ok(())
}
