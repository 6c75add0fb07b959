//! Kinds that misbehave, files that are no kinds, and what the runtime makes of them.

mod any_bytes;
mod cache;
mod crossings;
mod files;
mod flat_memory;
mod limits;
mod modes;
mod recordings;
mod runaway;
mod traps;

use std::sync::LazyLock;

use bc_runtime::{Kind, Report, Run};
use serde_json::{Value, json};

/// `test.hostile`, compiled once a process.
static HOSTILE: LazyLock<Kind> = LazyLock::new(|| bc_tests::load(&bc_tests::inspected("test.hostile")));

/// The payload that makes it misbehave so.
fn mode(mode: &str) -> Value {
    json!({ "mode": mode })
}

/// A run of it in a mode, with the harness's defaults.
fn run(name: &str) -> Run {
    bc_tests::run(&HOSTILE, mode(name))
}

/// Runs it in a mode, everything granted, on a quiet node.
async fn report(name: &str) -> Report {
    HOSTILE.run(run(name)).await
}
