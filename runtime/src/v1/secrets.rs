//! `better-compute:host/secrets`.

use bc_proto::grants::Need;
use serde_json::json;

use super::wit::secrets::Host;
use crate::capability::Answer;
use crate::gate::Call;
use crate::store::RunState;

impl Host for RunState {
    async fn get(&mut self, secret_ref: String) -> wasmtime::Result<Answer<String>> {
        let secrets = self.gate.capabilities.secrets.clone();
        let named = secret_ref.clone();
        let call = Call { secret: true, ..Call::read("secrets", "get", Need::Secret(&named)) };
        let args = json!({ "secretRef": secret_ref });
        let answer = self.gate.ask(call, args, None, secrets, move |secrets| secrets.get(&secret_ref)).await?;
        if let Ok(value) = &answer {
            // From here on the guest has it.
            self.gate.known.add(&named, value);
        }
        Ok(answer)
    }
}
