//! `better-compute:host/upload`.

use bc_proto::grants::{Capability, Need};
use serde_json::json;

use super::wit::upload::{Host, Receipt};
use crate::capability::Answer;
use crate::gate::Call;
use crate::store::RunState;

const NEED: Need<'static> = Need::Use(Capability::Upload);

impl Host for RunState {
    async fn begin(&mut self, content_type: String) -> wasmtime::Result<Answer<u32>> {
        let upload = self.gate.capabilities.upload.clone();
        let args = json!({ "contentType": content_type });
        // The spool is the run's own; what others see begins with `finish`.
        let call = Call::part("upload", "begin", NEED);
        self.gate.ask(call, args, Some(0), upload, move |upload| upload.begin(&content_type)).await
    }

    async fn write(&mut self, handle: u32, bytes: Vec<u8>) -> wasmtime::Result<Answer<u64>> {
        let upload = self.gate.capabilities.upload.clone();
        let args = json!({ "handle": handle, "bytes": bytes.len() });
        let call = Call::part("upload", "write", NEED);
        self.gate.ask(call, args, Some(u64::MAX), upload, move |upload| upload.write(handle, &bytes)).await
    }

    async fn finish(&mut self, handle: u32) -> wasmtime::Result<Answer<Receipt>> {
        let upload = self.gate.capabilities.upload.clone();
        let dry = Receipt { bytes: 0, sha256: String::new(), truncated: false };
        let call = Call::effect("upload", "finish", NEED);
        self.gate.ask(call, json!({ "handle": handle }), Some(dry), upload, move |upload| upload.finish(handle)).await
    }

    async fn abort(&mut self, handle: u32) -> wasmtime::Result<Answer<()>> {
        let upload = self.gate.capabilities.upload.clone();
        let call = Call::part("upload", "abort", NEED);
        self.gate.ask(call, json!({ "handle": handle }), Some(()), upload, move |upload| upload.abort(handle)).await
    }
}
