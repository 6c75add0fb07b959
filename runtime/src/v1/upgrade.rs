//! `better-compute:host/upgrade`.

use bc_proto::grants::{Capability, Need};
use serde_json::{Value, json};

use super::wit::upgrade::{Host, Slots};
use crate::capability::{Answer, Upgrade};
use crate::gate::Call;
use crate::store::RunState;

const NEED: Need<'static> = Need::Use(Capability::Upgrade);

impl RunState {
    async fn change(
        &mut self,
        function: &'static str,
        args: Value,
        method: impl FnOnce(&(dyn Upgrade + 'static)) -> Answer<()> + Send + 'static,
    ) -> wasmtime::Result<Answer<()>> {
        let upgrade = self.gate.capabilities.upgrade.clone();
        self.gate.ask(Call::effect("upgrade", function, NEED), args, Some(()), upgrade, method).await
    }
}

impl Host for RunState {
    async fn state(&mut self) -> wasmtime::Result<Answer<Slots>> {
        let upgrade = self.gate.capabilities.upgrade.clone();
        self.gate.ask(Call::read("upgrade", "state", NEED), json!({}), None, upgrade, |upgrade| upgrade.state()).await
    }

    async fn stage(&mut self, version: String, sha256: String) -> wasmtime::Result<Answer<()>> {
        let args = json!({ "version": version, "sha256": sha256 });
        self.change("stage", args, move |upgrade| upgrade.stage(&version, &sha256)).await
    }

    async fn switch(&mut self) -> wasmtime::Result<Answer<()>> {
        self.change("switch", json!({}), |upgrade| upgrade.switch()).await
    }

    async fn confirm(&mut self) -> wasmtime::Result<Answer<()>> {
        self.change("confirm", json!({}), |upgrade| upgrade.confirm()).await
    }

    async fn roll_back(&mut self) -> wasmtime::Result<Answer<()>> {
        self.change("roll-back", json!({}), |upgrade| upgrade.roll_back()).await
    }
}
