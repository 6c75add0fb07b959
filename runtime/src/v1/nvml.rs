//! `better-compute:host/nvml`.

use bc_proto::grants::{Capability, Need};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::wit::nvml::{Device, DriverInfo, EccCounts, Host, Link, Process, RowRemapping};
use crate::capability::{Answer, Nvml};
use crate::gate::Call;
use crate::store::RunState;

impl RunState {
    async fn nvml<T: Serialize + DeserializeOwned + Send + 'static>(
        &mut self,
        function: &'static str,
        method: impl FnOnce(&(dyn Nvml + 'static)) -> Answer<T> + Send + 'static,
    ) -> wasmtime::Result<Answer<T>> {
        let nvml = self.gate.capabilities.nvml.clone();
        let call = Call::read("nvml", function, Need::Use(Capability::Nvml));
        self.gate.ask(call, json!({}), None, nvml, method).await
    }

    async fn gpu<T: Serialize + DeserializeOwned + Send + 'static>(
        &mut self,
        function: &'static str,
        uuid: String,
        method: impl FnOnce(&(dyn Nvml + 'static), &str) -> Answer<T> + Send + 'static,
    ) -> wasmtime::Result<Answer<T>> {
        let nvml = self.gate.capabilities.nvml.clone();
        let call = Call::read("nvml", function, Need::Use(Capability::Nvml));
        self.gate.ask(call, json!({ "uuid": uuid }), None, nvml, move |nvml| method(nvml, &uuid)).await
    }
}

impl Host for RunState {
    async fn driver(&mut self) -> wasmtime::Result<Answer<DriverInfo>> {
        self.nvml("driver", |nvml| nvml.driver()).await
    }

    async fn devices(&mut self) -> wasmtime::Result<Answer<Vec<Device>>> {
        self.nvml("devices", |nvml| nvml.devices()).await
    }

    async fn ecc_errors(&mut self, uuid: String) -> wasmtime::Result<Answer<EccCounts>> {
        self.gpu("ecc-errors", uuid, |nvml, uuid| nvml.ecc_errors(uuid)).await
    }

    async fn remapped_rows(&mut self, uuid: String) -> wasmtime::Result<Answer<RowRemapping>> {
        self.gpu("remapped-rows", uuid, |nvml, uuid| nvml.remapped_rows(uuid)).await
    }

    async fn pcie_link(&mut self, uuid: String) -> wasmtime::Result<Answer<Link>> {
        self.gpu("pcie-link", uuid, |nvml, uuid| nvml.pcie_link(uuid)).await
    }

    async fn processes(&mut self, uuid: String) -> wasmtime::Result<Answer<Vec<Process>>> {
        self.gpu("processes", uuid, |nvml, uuid| nvml.processes(uuid)).await
    }

    async fn recovery_action(&mut self, uuid: String) -> wasmtime::Result<Answer<u32>> {
        self.gpu("recovery-action", uuid, |nvml, uuid| nvml.recovery_action(uuid)).await
    }

    async fn xids(&mut self) -> wasmtime::Result<Answer<String>> {
        self.nvml("xids", |nvml| nvml.xids()).await
    }
}
