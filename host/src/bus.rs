//! Wake-ups: what was committed, told to whoever waits for it.
//!
//! Subscribers of this replica hear at once, in process. Other replicas hear through Postgres' NOTIFY, which one task sends
//! on a connection of its own, coalesced: inside each transaction it would make commits queue on one lock.
//!
//! **Invariant:** a signal is a hint and holds no truth. One that is lost costs the time until the next slow reconcile.

mod replicas;

use std::sync::Arc;
use std::time::Duration;

use bc_proto::id::{CommandId, NodeId};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use self::replicas::Outgoing;

/// How many signals a slow subscriber may lag behind before it is told that it missed some.
const BACKLOG: usize = 4096;

/// What happened. Told after the commit, never before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "signal", rename_all = "kebab-case")]
pub enum Signal {
    /// The node has something to claim.
    Work {
        /// The node.
        node: NodeId,
    },
    /// A command that the node has is to stop, or the node's sessions are to be looked at again: it was deleted, or
    /// commands were let go that lie below what they have claimed.
    Cancel {
        /// The node.
        node: NodeId,
    },
    /// The node has another spec.
    Spec {
        /// The node.
        node: NodeId,
    },
    /// The outbox grew.
    Events,
    /// There is a newer trust bundle.
    TrustChanged,
    /// A node asks for a secret, or a vault has answered.
    Secret,
    /// How far a run is. Not durable.
    Progress(Progress),
    /// A run has written something.
    Output {
        /// The command.
        command: CommandId,
    },
    /// What other replicas said may have been missed: look at everything again.
    Missed,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The command.
    #[schema(value_type = String)]
    pub command_id: CommandId,
    /// Its node.
    #[schema(value_type = String)]
    pub node_id: NodeId,
    /// Steps done, in `unit`.
    pub done: u64,
    /// Steps in all, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What is counted.
    pub unit: String,
    /// For people.
    pub message: String,
}

/// Where signals go. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bus {
    here: broadcast::Sender<Signal>,
    /// What other replicas have still to be told; `None` for a bus of this replica alone.
    elsewhere: Option<Arc<Outgoing>>,
}

impl Bus {
    /// A bus of this replica alone.
    pub fn local() -> Self {
        Self { here: broadcast::channel(BACKLOG).0, elsewhere: None }
    }

    /// A bus of all replicas over one database. Two tasks serve it until `stop`, each with a connection of its own; while the
    /// database is away, signals stay here and wait. `replica` is unique among those that run.
    pub fn connect(pool: &PgPool, replica: &str, stop: CancellationToken) -> Self {
        let bus = Self { here: broadcast::channel(BACKLOG).0, elsewhere: Some(Arc::default()) };
        replicas::start(&bus, pool, replica, stop);
        bus
    }

    /// Tells whoever listens, on every replica. Never blocks, never fails.
    ///
    /// Work is told to other replicas even when its node has a session here: that session may be a dead one, and what it costs
    /// is a few bytes of a payload that is on its way anyway.
    pub fn tell(&self, signal: Signal) {
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.add(&signal);
        }
        self.tell_here(signal);
    }

    /// Tells this replica alone.
    fn tell_here(&self, signal: Signal) {
        // Nobody listening is fine.
        let _ = self.here.send(signal);
    }

    /// What is told from now on, by any replica. A receiver that lagged must look at everything again.
    pub fn subscribe(&self) -> broadcast::Receiver<Signal> {
        self.here.subscribe()
    }
}

/// Returns when this was told, when it may have been missed, or after `at_most`: whoever waits looks either way, since a signal is a
/// hint.
pub(crate) async fn told(signals: &mut broadcast::Receiver<Signal>, wanted: &Signal, at_most: Duration) {
    let told = async {
        loop {
            match signals.recv().await {
                Ok(signal) if signal == *wanted || signal == Signal::Missed => return,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    let _ = tokio::time::timeout(at_most, told).await;
}

#[cfg(test)]
mod tests;
