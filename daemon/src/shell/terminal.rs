//! Carrying out what ends the daemon.
//!
//! **Invariant:** it begins after the intent is durable and what was said before has had its time to leave.

use std::sync::Arc;
use std::time::Duration;

use bc_proto::id::CommandId;
use bc_proto::rules::daemon::{Input, Intent};
use bc_proto::wire::Report;
use serde_json::json;

use super::Parts;

/// How long what was said before may take to leave. A reboot is not put off for a network that is down.
const FLUSH: Duration = Duration::from_secs(2);

/// Why an intent was not carried out: nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDone {
    /// A stable code: the command's reason.
    pub code: String,
    /// Why, and what to do about it, in words.
    pub message: String,
}

/// What ends the daemon. Its methods block.
pub trait Terminal: Send + Sync {
    /// Does it, or returns when it is sure to come. The daemon goes on until it is ended.
    fn carry_out(&self, command: CommandId, intent: &Intent) -> Result<(), NotDone>;

    /// Whether this process is what such an intent brought, and may have to give way again.
    fn on_trial(&self) -> bool {
        false
    }
}

/// A daemon that nothing ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTerminal;

impl Terminal for NoTerminal {
    fn carry_out(&self, _: CommandId, _: &Intent) -> Result<(), NotDone> {
        Err(NotDone { code: "not-offered".into(), message: "this daemon cannot do that".into() })
    }
}

/// Carries it out. An input comes back only when it was not done.
pub(super) async fn carry_out(parts: Arc<Parts>, command: CommandId, intent: Intent) -> Option<Input> {
    // Whether all of it has left is not the question: the journal has it.
    let _ = tokio::time::timeout(FLUSH, parts.sink.flushed()).await;
    let terminal = Arc::clone(&parts.terminal);
    tracing::info!(%command, ?intent, "carrying out what ends the daemon");
    let done = tokio::task::spawn_blocking(move || terminal.carry_out(command, &intent)).await;
    let NotDone { code, message } = match done {
        Ok(Ok(())) => return None,
        Ok(Err(not_done)) => not_done,
        Err(panic) => NotDone { code: "host-failure".into(), message: panic.to_string() },
    };
    tracing::warn!(%command, code, message, "what was to end the daemon was not done");
    let result = json!({ "outcome": code, "message": message }).to_string().into_bytes();
    Some(Input::RunFinished { command, report: Report::Failed, reason: code, result })
}
