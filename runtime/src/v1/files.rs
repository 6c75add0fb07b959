//! `better-compute:host/files`.

use bc_proto::grants::Need;
use serde_json::json;

use super::wit::files::{Entry, Host};
use crate::capability::Answer;
use crate::gate::Call;
use crate::store::RunState;

impl Host for RunState {
    async fn entries(&mut self, folder: String) -> wasmtime::Result<Answer<Vec<Entry>>> {
        let files = self.gate.capabilities.files.clone();
        let named = folder.clone();
        let call = Call::read("files", "entries", Need::Read(&named));
        self.gate.ask(call, json!({ "folder": folder }), None, files, move |files| files.entries(&folder)).await
    }

    async fn read(&mut self, file: String, offset: u64, max_bytes: u32) -> wasmtime::Result<Answer<Vec<u8>>> {
        let files = self.gate.capabilities.files.clone();
        let named = file.clone();
        let args = json!({ "file": file, "offset": offset, "maxBytes": max_bytes });
        let call = Call::read("files", "read", Need::Read(&named));
        self.gate.ask(call, args, None, files, move |files| files.read(&file, offset, max_bytes)).await
    }
}
