//! `better-compute:host/inventory`.

use bc_proto::grants::{Capability, Need};
use serde_json::json;

use super::wit::inventory::Host;
use crate::capability::Answer;
use crate::gate::Call;
use crate::store::RunState;

const NEED: Need<'static> = Need::Use(Capability::Inventory);

impl Host for RunState {
    async fn sections(&mut self) -> wasmtime::Result<Vec<String>> {
        let sections = self.gate.capabilities.inventory.as_ref().map(|inventory| inventory.sections());
        let answer = async move { sections.unwrap_or_default() };
        self.gate.pass(Call::read("inventory", "sections", NEED), || json!({}), None, answer).await
    }

    async fn collected(&mut self, sections: Vec<String>) -> wasmtime::Result<Answer<String>> {
        let inventory = self.gate.capabilities.inventory.clone();
        let args = json!({ "sections": sections });
        let call = Call::read("inventory", "collected", NEED);
        self.gate.ask(call, args, None, inventory, move |inventory| inventory.collected(&sections)).await
    }

    async fn rescan(&mut self, sections: Vec<String>) -> wasmtime::Result<Answer<String>> {
        let inventory = self.gate.capabilities.inventory.clone();
        let args = json!({ "sections": sections });
        let call = Call::read("inventory", "rescan", NEED);
        self.gate.ask(call, args, None, inventory, move |inventory| inventory.rescan(&sections)).await
    }
}
