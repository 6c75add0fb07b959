//! When a long-running command is to end.
//!
//! **Invariant:** the first signal asks, the second one ends the process at once: nobody is kept by a drain that hangs.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancelled by SIGTERM or SIGINT. A second one ends the process with the exit code that shells give it.
pub fn on_signals() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be had")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be had")?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; once more ends it at once");
        asked.cancel();
        let code = tokio::select! {
            _ = terminate.recv() => 143,
            _ = interrupt.recv() => 130,
        };
        std::process::exit(code);
    });
    Ok(stop)
}
