//! Capabilities that differ from command to command: what a command names is part of what stands behind them.
//!
//! **Invariant:** they are made for one run and end with it; nothing of one command reaches another.

use std::sync::{Arc, Mutex, PoisonError};

use bc_proto::grants::Grants;
use bc_proto::rules::daemon::Intent;
use bc_proto::wire::Deliver;
use bc_runtime::Watcher;
use bc_runtime::capability::{Answer, Capabilities, Error};
use tokio_util::sync::CancellationToken;

/// A run, as far as its capabilities need to know it.
pub struct Commanded<'a> {
    /// The command, whole.
    pub deliver: &'a Deliver,
    /// What its kind's manifest declares.
    pub declared: &'a Grants,
    /// What this node's policy grants to its kind.
    pub granted: &'a Grants,
    /// What the run asks for that ends the daemon.
    pub asked: Arc<Asked>,
    /// Ends the run.
    pub cancel: CancellationToken,
    /// Cancelled when the run has ended, however: nobody waits for what still goes on.
    pub over: CancellationToken,
    /// Hears how far the run is.
    pub watcher: Arc<dyn Watcher>,
}

/// Something that stands behind a capability of commands.
pub trait Provider: Send + Sync {
    /// Adds what it has for a command, where the machine itself has nothing.
    fn provide(&self, command: &Commanded<'_>, capabilities: &mut Capabilities);
}

/// What a run asks for that ends the daemon: one thing at most, carried out when the run has succeeded and its result is durable.
#[derive(Debug, Default)]
pub struct Asked(Mutex<Option<Intent>>);

impl Asked {
    /// Notes it. Errors `already-asked` when there is one.
    pub fn ask(&self, intent: Intent) -> Answer<()> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = &*asked {
            return Err(Error::new("already-asked", format!("this run has asked for {first:?} before")));
        }
        *asked = Some(intent);
        Ok(())
    }

    /// What was asked for.
    pub fn take(&self) -> Option<Intent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
