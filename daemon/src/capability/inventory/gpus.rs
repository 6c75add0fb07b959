//! NVIDIA's GPUs: what the PCI bus shows, merged by address with what NVML names.
//!
//! NVML does not list a GPU that another driver has (for a virtual machine, say), and gives an error for one that is lost;
//! the bus shows both. So each source tells what the other cannot.
//!
//! **Invariant:** a GPU that either source knows of is in the list.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use bc_runtime::capability::{
    Error, Nvml,
    nvml::{Device, Identity},
};
use serde::Serialize;

use super::facts::Facts;

const PCI: &str = "sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
/// The upper byte of a display controller's class: VGA, 3D and others.
const DISPLAY_CLASS: &str = "0x03";

/// Who is at each index of NVML, as told last. A lost GPU keeps its index, so this says which one was lost.
pub(super) type Known = BTreeMap<u32, Identity>;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpus {
    driver_version: Option<String>,
    /// By address, last those whose address is unknown. Null where neither the bus nor NVML can be asked.
    gpus: Option<Vec<Gpu>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Gpu {
    /// `dddd:bb:dd.f`; null, with a problem, for a GPU that NVML lost before it told us where it is.
    pci: Option<String>,
    /// `GPU-<uuid>`.
    uuid: Option<String>,
    name: Option<String>,
    /// The board's; null for a board that has none.
    serial: Option<String>,
    /// The N of `/dev/nvidiaN`.
    minor: Option<u32>,
    /// Null for a GPU that cannot do MIG.
    mig_enabled: Option<bool>,
    /// PCI's number for the model, `0x2330` for example.
    device_id: Option<String>,
    /// `nvidia`, `vfio-pci`, …
    kernel_driver: Option<String>,
    numa_node: Option<u32>,
    /// Who says that it exists: `pci`, `nvml`, and `nvml-earlier` where NVML named it once and does not now.
    sources: Vec<&'static str>,
    /// The code of NVML's error for it, `gpu-is-lost` for example; null where there is none.
    nvml_error: Option<String>,
}

type ByAddress = BTreeMap<String, Gpu>;

impl Gpu {
    fn named(&mut self, identity: &Identity, source: &'static str) {
        self.uuid = Some(identity.uuid.clone());
        self.name = Some(identity.name.clone());
        self.serial.clone_from(&identity.serial);
        self.minor = identity.minor;
        self.mig_enabled = identity.mig_enabled;
        self.sources.push(source);
    }

    fn is_named(&self) -> bool {
        self.uuid.is_some() || self.nvml_error.is_some()
    }
}

pub(super) fn collect(facts: &mut Facts<'_>, nvml: Option<&dyn Nvml>, known: &Mutex<Known>) -> Gpus {
    let bus = on_the_bus(facts);
    let Some(nvml) = nvml else {
        facts.problem("NVML is not configured: what it alone knows of GPUs is unknown");
        let driver_version = facts.text("sys/module/nvidia/version");
        return Gpus { driver_version, gpus: bus.map(|gpus| gpus.into_values().collect()) };
    };
    let devices = nvml.devices().map_err(|error| facts.problem(format!("NVML's list of GPUs: {}", told(&error)))).ok();
    let asked = bus.is_some() || devices.is_some();
    let mut gpus = bus.unwrap_or_default();
    let unplaced = {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let unplaced = devices.map(|devices| merge(facts, &mut gpus, devices, &mut known)).unwrap_or_default();
        remember(&mut gpus, &known);
        unplaced
    };
    let driver_version = nvml.driver().map(|driver| driver.version).or_else(|error| {
        facts.try_text("sys/module/nvidia/version").inspect_err(|_| {
            facts.problem(format!("NVML's driver version: {}", told(&error)));
        })
    });
    Gpus { driver_version: driver_version.ok(), gpus: asked.then(|| gpus.into_values().chain(unplaced).collect()) }
}

/// What the PCI bus shows.
fn on_the_bus(facts: &mut Facts<'_>) -> Option<ByAddress> {
    let mut gpus = ByAddress::new();
    for address in facts.names(PCI)? {
        let at = |file: &str| format!("{PCI}/{address}/{file}");
        if facts.text(&at("vendor")).as_deref() != Some(NVIDIA)
            || !facts.text(&at("class")).is_some_and(|class| class.starts_with(DISPLAY_CLASS))
        {
            continue;
        }
        let numa_node = facts.number::<i64>(&at("numa_node")).and_then(|node| {
            // -1 is the kernel's word for unknown.
            u32::try_from(node)
                .map_err(|_| facts.problem(format!("{address}: NUMA node: the firmware tells none")))
                .ok()
        });
        let gpu = Gpu {
            pci: Some(address.to_ascii_lowercase()),
            device_id: facts.text(&at("device")),
            kernel_driver: facts.link(&at("driver")),
            numa_node,
            sources: vec!["pci"],
            ..Gpu::default()
        };
        gpus.insert(address.to_ascii_lowercase(), gpu);
    }
    Some(gpus)
}

/// Adds what NVML lists. Answers the lost GPUs that cannot be told apart.
fn merge(facts: &mut Facts<'_>, gpus: &mut ByAddress, devices: Vec<Device>, known: &mut Known) -> Vec<Gpu> {
    let mut lost = Vec::new();
    for Device { index, identity } in devices {
        match identity {
            Ok(identity) => {
                let address = identity.pci_address.to_ascii_lowercase();
                let gpu = gpus.entry(address.clone()).or_insert_with(|| {
                    facts.problem(format!("{address}: NVML lists it, the PCI bus does not show it"));
                    Gpu { pci: Some(address), ..Gpu::default() }
                });
                gpu.named(&identity, "nvml");
                // After the driver was loaded anew it may be at another index than before.
                known.retain(|_, before| before.pci_address != identity.pci_address);
                known.insert(index, identity);
            }
            Err(error) => lost.push((index, error)),
        }
    }
    let lost = place(facts, gpus, lost, known);
    for (address, gpu) in gpus.iter().filter(|(_, gpu)| !gpu.is_named()) {
        facts.problem(match gpu.kernel_driver.as_deref() {
            Some("nvidia") => format!("{address}: the nvidia driver has it, but NVML does not list it"),
            Some(driver) => format!("{address}: the driver {driver} has it, so that NVML does not list it"),
            None => format!("{address}: no driver has it, so that NVML does not list it"),
        });
    }
    lost
}

/// Finds the GPUs that NVML gives errors for: by the index they had, else in order where as many are left as errors, since
/// NVML counts in the order of the bus.
fn place(facts: &mut Facts<'_>, gpus: &mut ByAddress, lost: Vec<(u32, Error)>, known: &Known) -> Vec<Gpu> {
    let mut homeless = Vec::new();
    for (index, error) in lost {
        let problem = format!("NVML's index {index}: {}", told(&error));
        match known.get(&index).and_then(|before| gpus.get_mut(&before.pci_address.to_ascii_lowercase())) {
            Some(gpu) => gpu.nvml_error = Some(error.code),
            None => homeless.push(Gpu { sources: vec!["nvml"], nvml_error: Some(error.code), ..Gpu::default() }),
        }
        facts.problem(problem);
    }
    let is_left = |gpu: &&mut Gpu| !gpu.is_named() && gpu.kernel_driver.as_deref() == Some("nvidia");
    let left: Vec<_> = gpus.values_mut().filter(is_left).collect();
    if left.len() == homeless.len() {
        for (gpu, error) in left.into_iter().zip(homeless.drain(..)) {
            gpu.nvml_error = error.nvml_error;
        }
    }
    if !homeless.is_empty() {
        facts.problem(
            "which GPUs on the PCI bus NVML's errors are about is unknown: those without address may be listed twice",
        );
    }
    homeless
}

/// Names the GPUs that NVML does not name now by what it said earlier.
fn remember(gpus: &mut ByAddress, known: &Known) {
    for before in known.values() {
        if let Some(gpu) = gpus.get_mut(&before.pci_address.to_ascii_lowercase())
            && gpu.uuid.is_none()
        {
            gpu.named(before, "nvml-earlier");
        }
    }
}

fn told(error: &Error) -> String {
    format!("{}: {}", error.code, error.message)
}
