//! `better-compute:host/gpus`.

use bc_proto::grants::{Capability, Need};
use serde_json::json;

use super::wit::gpus::{Hold, Host, PassThrough, ResetOutcome};
use crate::capability::Answer;
use crate::gate::Call;
use crate::store::RunState;

const READ: Need<'static> = Need::Use(Capability::Gpus);

impl Host for RunState {
    async fn holds(&mut self) -> wasmtime::Result<Answer<Vec<Hold>>> {
        let gpus = self.gate.capabilities.gpus.clone();
        self.gate.ask(Call::read("gpus", "holds", READ), json!({}), None, gpus, |gpus| gpus.holds()).await
    }

    async fn pass_throughs(&mut self) -> wasmtime::Result<Answer<Vec<PassThrough>>> {
        let gpus = self.gate.capabilities.gpus.clone();
        let call = Call::read("gpus", "pass-throughs", READ);
        self.gate.ask(call, json!({}), None, gpus, |gpus| gpus.pass_throughs()).await
    }

    async fn reset(&mut self, uuids: Vec<String>) -> wasmtime::Result<Answer<Vec<ResetOutcome>>> {
        let gpus = self.gate.capabilities.gpus.clone();
        let planned = |gpu: &String| ResetOutcome { gpu: gpu.clone(), reset: true, message: "planned".into() };
        let dry = uuids.iter().map(planned).collect();
        let args = json!({ "gpus": uuids });
        let call = Call::effect("gpus", "reset", Need::ResetGpus);
        self.gate.ask(call, args, Some(dry), gpus, move |gpus| gpus.reset(&uuids)).await
    }
}
