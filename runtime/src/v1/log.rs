//! `better-compute:host/log`.

use serde_json::json;

use super::wit::log::{Host, Level};
use crate::gate::Call;
use crate::store::RunState;

/// What one run may log: a chatty diagnostic writes some hundred lines.
const LINES: u64 = 2_000;
/// Bytes of messages and fields together.
const BYTES: usize = 512 * 1024;

/// What is left of a run's log budget.
#[derive(Debug, Default)]
pub(crate) struct LogBudget {
    lines: u64,
    bytes: usize,
    dropped: u64,
}

impl LogBudget {
    /// Whether a line of this size still fits; counts it either way.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.lines < LINES && self.bytes.saturating_add(bytes) <= BYTES;
        if fits {
            self.lines += 1;
            self.bytes += bytes;
        } else {
            self.dropped += 1;
        }
        fits
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Host for RunState {
    async fn write(&mut self, level: Level, target: String, message: String, fields: String) -> wasmtime::Result<()> {
        let gate = &mut self.gate;
        if gate.log.take(target.len() + message.len() + fields.len()) {
            let known = &gate.known;
            gate.watcher.log(level, &known.text(&target), &known.text(&message), &known.text(&fields));
        }
        gate.pass(Call::ambient("log", "write"), || json!({}), None, async {}).await
    }

    async fn panicked(&mut self, message: String) -> wasmtime::Result<()> {
        // Bounded by the host call's own limit; the newest counts.
        self.gate.last_words = Some(self.gate.known.text(&message).into_owned());
        self.gate.pass(Call::ambient("log", "panicked"), || json!({}), None, async {}).await
    }
}
