//! Looking after sessions: cancels, ends, and work whose wake-up was lost.
//!
//! **Invariant:** one statement looks at all sessions that need it, and none runs while there is no session.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bc_proto::id::NodeId;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::MissedTickBehavior;
use tonic::Status;

use super::{Inner, desired};
use crate::bus::Signal;
use crate::queue;
use crate::store::Error;

/// How often every session is looked at: what a lost signal costs at most.
const PERIOD: Duration = Duration::from_secs(10);

/// The most sessions of one statement.
const BATCH: usize = 2_000;

/// The wait before the database is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Hears what concerns this replica's sessions.
pub(super) async fn listen(gateway: Arc<Inner>, mut signals: broadcast::Receiver<Signal>) {
    loop {
        match signals.recv().await {
            Ok(Signal::Work { node }) if gateway.sessions.has(node) => gateway.work.add([node]),
            Ok(Signal::Cancel { node } | Signal::Spec { node }) if gateway.sessions.has(node) => {
                gateway.looks.add([node]);
            }
            Ok(Signal::Missed) | Err(RecvError::Lagged(_)) => gateway.looks.add(gateway.sessions.nodes()),
            Ok(_) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Looks at whatever it is told to.
pub(super) async fn run(gateway: Arc<Inner>) {
    loop {
        let nodes = gateway.looks.take(BATCH).await;
        if let Err(error) = look(&gateway, &nodes).await {
            tracing::error!(error = &error as &dyn std::error::Error, "sessions cannot be looked at for now");
            gateway.looks.add(nodes);
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Has everything looked at, slowly.
pub(super) async fn run_reconcile(gateway: Arc<Inner>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        gateway.looks.add(gateway.sessions.nodes());
    }
}

/// Looks at the sessions of nodes and does what is to be done.
pub(super) async fn look(gateway: &Inner, nodes: &[NodeId]) -> Result<(), Error> {
    let sessions: Vec<_> = nodes.iter().filter_map(|node| gateway.sessions.find(*node)).collect();
    if sessions.is_empty() {
        return Ok(());
    }
    let asked: Vec<_> = sessions.iter().map(|session| (session.node, session.epoch)).collect();
    let looks = {
        let mut db = gateway.pool.acquire().await?;
        desired::look(&mut db, &sessions).await?;
        queue::look(&mut db, &asked, gateway.world.now()).await?
    };
    let asked: HashSet<_> = asked.into_iter().collect();
    for look in looks {
        let Some(session) = gateway.sessions.find(look.node) else { continue };
        if !asked.contains(&(session.node, session.epoch)) {
            continue;
        }
        if look.is_over {
            session.close(Status::aborted(
                "this session is over: the node has a newer one, or was deleted or enrolled again",
            ));
            continue;
        }
        for command in look.cancelled {
            session.cancel(command);
        }
        if look.has_work {
            session.rewind();
            gateway.work.add([look.node]);
        }
    }
    Ok(())
}
