//! `better-compute:host/clock`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::wit::clock::Host;
use crate::gate::Call;
use crate::store::RunState;

/// The longest sleep: longer waits are for the queue, not for a lane slot.
const MAX_SLEEP_MS: u32 = 3_600_000;

impl Host for RunState {
    async fn now_ms(&mut self) -> wasmtime::Result<u64> {
        let watcher = Arc::clone(&self.gate.watcher);
        self.gate.pass(Call::ambient("clock", "now-ms"), || json!({}), None, async move { watcher.now_ms() }).await
    }

    async fn elapsed_us(&mut self) -> wasmtime::Result<u64> {
        let elapsed = self.gate.meter.origin().elapsed();
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.gate.pass(Call::ambient("clock", "elapsed-us"), || json!({}), None, async move { elapsed_us }).await
    }

    async fn sleep(&mut self, duration_ms: u32) -> wasmtime::Result<()> {
        let duration = Duration::from_millis(duration_ms.min(MAX_SLEEP_MS).into());
        let args = || json!({ "durationMs": duration_ms });
        self.gate.pass(Call::ambient("clock", "sleep"), args, None, tokio::time::sleep(duration)).await
    }
}
