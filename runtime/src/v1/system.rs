//! `better-compute:host/system`.

use std::sync::Arc;

use bc_proto::grants::{Capability, Need};
use serde_json::json;

use super::wit::system::Host;
use crate::capability::Answer;
use crate::gate::Call;
use crate::store::RunState;

const READ: Need<'static> = Need::Use(Capability::System);

impl Host for RunState {
    async fn boot_id(&mut self) -> wasmtime::Result<Answer<String>> {
        let system = self.gate.capabilities.system.clone();
        self.gate.ask(Call::read("system", "boot-id", READ), json!({}), None, system, |system| system.boot_id()).await
    }

    async fn role(&mut self) -> wasmtime::Result<String> {
        let watcher = Arc::clone(&self.gate.watcher);
        let role = async move { watcher.role() };
        self.gate.pass(Call::read("system", "role", READ), || json!({}), None, role).await
    }

    async fn reboot(&mut self, reason: String) -> wasmtime::Result<Answer<()>> {
        let system = self.gate.capabilities.system.clone();
        let args = json!({ "reason": reason });
        let call = Call::effect("system", "reboot", Need::Reboot);
        self.gate.ask(call, args, Some(()), system, move |system| system.reboot(&reason)).await
    }
}
