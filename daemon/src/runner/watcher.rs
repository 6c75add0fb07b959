//! What the kind says while it runs goes to the runner's own log.
//!
//! **Invariant:** every line names the command.

use bc_proto::id::CommandId;
use bc_proto::manifest::Role;
use bc_runtime::Watcher;
use bc_runtime::v1::wit::log::Level;

/// For one command.
pub(super) struct OwnLog {
    pub(super) command: CommandId,
}

impl Watcher for OwnLog {
    fn log(&self, level: Level, _: &str, message: &str, fields: &str) {
        let command = self.command;
        match level {
            Level::Trace | Level::Debug => tracing::debug!(%command, fields, "{message}"),
            Level::Info => tracing::info!(%command, fields, "{message}"),
            Level::Warn => tracing::warn!(%command, fields, "{message}"),
            Level::Error => tracing::error!(%command, fields, "{message}"),
        }
    }

    fn progress(&self, done: u64, total: Option<u64>, unit: &str, message: &str) {
        tracing::info!(command = %self.command, done, total, unit, "{message}");
    }

    fn now_ms(&self) -> u64 {
        crate::node::now_ms()
    }

    fn role(&self) -> String {
        Role::Gateway.to_string()
    }
}
