//! Workflows of machines: quarantine, wipe, deploy, reboot and acceptance diagnostics of one node, one command after the other.
//!
//! As [`super::remediation`], whose pattern this follows, it reads rows, asks rules without I/O, and writes one step in one
//! transaction. It does nothing of its own accord: a person begins each workflow, and people have the last word where nobody can
//! tell what a step did.
//!
//! **Invariant:** a workflow has at most one command that is not over, and no command is queued unless `bc_proto::rules::workflow`
//! says of the rows, read under the locks, that it is the next.

mod change;
mod pass;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bc_proto::id::WorkflowId;
use sqlx::PgPool;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio_util::sync::CancellationToken;

pub use self::change::{Begun, InUse, NewStep, NewWorkflow, NotBegun, NotRetried, begin, cancel, retry};
pub use self::pass::Passed;
use crate::bus::{self, Bus, Signal};
use crate::trust::{self, Signer};
use crate::world::World;
use crate::{batches, store};

/// What it calls itself: its commands are requested by it.
pub const NAME: &str = "module/metal";

/// How long news are gathered before a pass: one look for many events.
const PACE: Duration = Duration::from_millis(200);

/// How often it looks though nobody told it anything.
const SAFETY_NET: Duration = Duration::from_secs(30);

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
    /// The batch could not be ended with the step.
    #[error("its batch cannot be ended")]
    NotRejected(#[from] batches::NotRejected),
    /// The keys of a new command mean something already.
    #[error("the key {key} of {workflow} is taken")]
    Taken {
        /// The workflow.
        workflow: WorkflowId,
        /// The key.
        key: String,
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
            tracing::error!(error = &error as &dyn std::error::Error, "workflows do not go on for now");
        }
        // The end of a command, a new workflow, somebody who calls one off: each leaves an event.
        bus::told(&mut signals, &Signal::Events, SAFETY_NET).await;
        tokio::time::sleep(PACE).await;
        while !matches!(signals.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
    }
}
