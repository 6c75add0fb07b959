//! `better-compute:host/progress`.

use std::sync::Arc;

use serde_json::json;

use super::wit::progress::Host;
use crate::gate::Call;
use crate::store::RunState;

impl Host for RunState {
    async fn report(&mut self, done: u64, total: Option<u64>, unit: String, message: String) -> wasmtime::Result<()> {
        let watcher = Arc::clone(&self.gate.watcher);
        let known = &self.gate.known;
        let (unit, message) = (known.text(&unit).into_owned(), known.text(&message).into_owned());
        let tell = async move { watcher.progress(done, total, &unit, &message) };
        self.gate.pass(Call::ambient("progress", "report"), || json!({}), None, tell).await
    }
}
