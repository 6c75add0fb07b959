//! `better-compute:host/block-devices`.

use bc_proto::grants::{Capability, Need};
use serde_json::json;

use super::wit::block_devices::{Device, EraseReport, EraseRequest, Host, ImageReport, ImageRequest, SampleReport};
use crate::capability::Answer;
use crate::gate::Call;
use crate::store::RunState;

const READ: Need<'static> = Need::Use(Capability::BlockDevices);

impl Host for RunState {
    async fn devices(&mut self) -> wasmtime::Result<Answer<Vec<Device>>> {
        let disks = self.gate.capabilities.block_devices.clone();
        let call = Call::read("block-devices", "devices", READ);
        self.gate.ask(call, json!({}), None, disks, |disks| disks.devices()).await
    }

    async fn identify(&mut self, device: String) -> wasmtime::Result<Answer<String>> {
        let disks = self.gate.capabilities.block_devices.clone();
        let args = json!({ "device": device });
        let call = Call::read("block-devices", "identify", READ);
        self.gate.ask(call, args, None, disks, move |disks| disks.identify(&device)).await
    }

    async fn sample(&mut self, device: String, count: u32, seed: u64) -> wasmtime::Result<Answer<SampleReport>> {
        let disks = self.gate.capabilities.block_devices.clone();
        let args = json!({ "device": device, "count": count, "seed": seed });
        let call = Call::read("block-devices", "sample", READ);
        self.gate.ask(call, args, None, disks, move |disks| disks.sample(&device, count, seed)).await
    }

    async fn erase(&mut self, request: EraseRequest) -> wasmtime::Result<Answer<EraseReport>> {
        let disks = self.gate.capabilities.block_devices.clone();
        let dry = EraseReport {
            method: request.method.clone(),
            level: "planned".into(),
            model: None,
            serial: request.serial.clone(),
            device_log: None,
        };
        let device = request.device.clone();
        let args = serde_json::to_value(&request)?;
        let call = Call::effect("block-devices", "erase", Need::Erase(&device));
        self.gate.ask(call, args, Some(dry), disks, move |disks| disks.erase(&request)).await
    }

    async fn write_image(&mut self, request: ImageRequest) -> wasmtime::Result<Answer<ImageReport>> {
        let disks = self.gate.capabilities.block_devices.clone();
        let dry = ImageReport { bytes_written: 0, sha256: request.sha256.clone(), verified: false };
        let device = request.device.clone();
        let args = serde_json::to_value(&request)?;
        let call = Call::effect("block-devices", "write-image", Need::WriteImage(&device));
        self.gate.ask(call, args, Some(dry), disks, move |disks| disks.write_image(&request)).await
    }
}
