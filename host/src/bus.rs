//! Wake-ups: what was committed, told to whoever waits for it.
//!
//! Subscribers of this replica hear at once, in process. Other replicas hear through Postgres' NOTIFY, which one task sends
//! on a connection of its own, coalesced: inside each transaction it would make commits queue on one lock.
//!
//! **Invariant:** a signal is a hint and holds no truth. One that is lost costs the time until the next slow reconcile.

use bc_proto::id::{CommandId, NodeId};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

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
    /// A command that the node has is to stop, or the node's sessions are to be looked at again (it was deleted).
    Cancel {
        /// The node.
        node: NodeId,
    },
    /// The outbox grew.
    Events,
    /// How far a run is. Not durable.
    Progress(Progress),
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
}

impl Bus {
    /// A bus of this replica alone.
    pub fn local() -> Self {
        Self { here: broadcast::channel(BACKLOG).0 }
    }

    /// Tells whoever listens, on every replica. Never blocks, never fails.
    pub fn tell(&self, signal: Signal) {
        // Nobody listening is fine.
        let _ = self.here.send(signal);
    }

    /// What is told from now on, by any replica. A receiver that lagged must look at everything again.
    pub fn subscribe(&self) -> broadcast::Receiver<Signal> {
        self.here.subscribe()
    }
}
