//! The command line `better-compute`, as a library so that tests and benchmarks can use its parts.

pub mod api;
pub mod audit;
pub mod batch;
pub mod bundle;
pub mod cli;
pub mod client;
pub mod commands;
mod complete;
pub mod context;
pub mod contexts;
pub mod dev;
pub mod doctor;
pub mod events;
pub mod exit;
pub mod format;
pub mod generate;
pub mod kind;
pub mod mcp;
pub mod node;
pub mod output;
mod payload;
pub mod pki;
pub mod release;
pub mod remediation;
pub mod reservation;
pub mod rollout;
pub mod runner;
pub mod server;
mod shell;
mod sibling;
pub mod token;
pub mod webhook;
pub mod workflow;

/// Runs a command to its end on a runtime of its own.
pub fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(command);
    // What still hangs somewhere does not keep the process.
    runtime.shutdown_background();
    done
}
