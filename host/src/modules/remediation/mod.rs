//! Mending nodes: a GPU whose row remap waits for a reset, a host whose settings wait for a boot.
//!
//! The pattern, for whoever writes the next module:
//!
//! 1. **Hints wake it, time does too.** [`start`] runs a loop that a [`Signal`] wakes and a slow tick backs up. A signal that is lost
//!    costs a minute.
//! 2. **It reads a snapshot and decides without I/O.** The snapshot is one statement for many nodes. `bc_proto::rules::remediation`
//!    decides; what it says is tested there, without a database.
//! 3. **It acts in one transaction each**: takes its lock, reads again what it decided on, decides again, and then writes its row,
//!    the batch and the command together. What the rows say is what happened, wherever the process dies.
//! 4. **The outcome is read, never assumed.** The next pass looks at how the command ended, and asks
//!    [`attestation`](crate::attestation) whether the node itself said so.
//! 5. **Wake-ups are told after the commit.**
//!
//! **Invariant:** at most one attempt at a node is under way; none begins that the rows, read under the lock, do not allow.

mod case;
mod pass;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bc_proto::rules::remediation::Limits;
use sqlx::PgPool;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio_util::sync::CancellationToken;

pub use self::pass::Passed;
use crate::bus::{self, Bus, Signal};
use crate::trust::{self, Signer};
use crate::world::World;
use crate::{batches, store};

/// What it calls itself: batches are requested by it.
pub const NAME: &str = "module/remediation";

/// How long news are gathered before a pass: one look for many events.
const PACE: Duration = Duration::from_secs(1);

/// How often it looks though nobody told it anything.
const SAFETY_NET: Duration = Duration::from_mins(1);

/// What it works with. It has no state of its own.
#[derive(Debug, Clone)]
pub struct Module {
    /// The database.
    pub pool: PgPool,
    /// Where wake-ups go, and where they come from.
    pub bus: Bus,
    /// The clock, and randomness.
    pub world: World,
    /// Signs its commands.
    pub signer: Signer,
    /// Who approves its batches.
    pub pki: trust::Settings,
    /// What the operator allows.
    pub limits: Limits,
}

/// Why a pass did not do all of its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The batch that it made does not let its command in.
    #[error("its own batch refuses the command")]
    Refused(#[from] batches::Refused),
    /// The batch could not be ended with the attempt.
    #[error("its batch cannot be ended")]
    NotRejected(#[from] batches::NotRejected),
    /// The keys of a new attempt mean something already.
    #[error("the keys of attempt {number} at {ailment} of {node} are taken")]
    Taken {
        /// The node.
        node: bc_proto::id::NodeId,
        /// The ailment.
        ailment: bc_proto::rules::remediation::Ailment,
        /// The attempt's number.
        number: u32,
    },
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Starts the loop, until `stop`.
pub fn start(module: Module, stop: &CancellationToken) {
    let signals = module.bus.subscribe();
    tokio::spawn(stop.clone().run_until_cancelled_owned(run(module, signals)));
}

async fn run(module: Module, mut signals: broadcast::Receiver<Signal>) {
    loop {
        if let Err(error) = module.pass().await {
            tracing::error!(error = &error as &dyn std::error::Error, "nodes are not mended for now");
        }
        // A condition, the end of a command, a reservation. Where no node has anything, a look is cheap.
        bus::told(&mut signals, &Signal::Events, SAFETY_NET).await;
        tokio::time::sleep(PACE).await;
        while !matches!(signals.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
    }
}
