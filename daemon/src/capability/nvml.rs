//! NVIDIA's management library, through `nvml-wrapper`.
//!
//! Every call loads the library, initialises it, asks, and shuts it down again. That costs milliseconds, and is the point:
//! an initialised NVML keeps the device files open, which makes `nvidia-smi --gpu-reset` refuse every GPU ("In use by
//! another client"), so the daemon itself would stand in the way of the repair it is asked for. It also means that a driver
//! or library that appears, disappears or is replaced is seen at the next call. Where persistence mode is off and nothing
//! else uses a GPU, the driver lets go of it between the calls and its volatile error counts start anew, as they would with
//! any other tool.
//!
//! **Invariant:** what could not be asked is an error with its code, never a zero or an absence; and between two calls no
//! NVML handle is open.

use std::{
    collections::BTreeMap,
    fmt::Display,
    mem,
    path::{Path, PathBuf},
    time::Duration,
};

use bc_runtime::capability::{
    self, Answer, Error,
    nvml::{Device, DriverInfo, EccCounts, Identity, Link, Process, RowRemapping},
};
use nvml_wrapper::{
    Nvml,
    device::Device as Handle,
    enum_wrappers::device::{EccCounter, MemoryError},
    enums::device::{SampleValue, UsedGpuMemory},
    error::NvmlError,
    struct_wrappers::device::ProcessInfo,
    structs::device::FieldId,
    sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
};

use addresses::Addresses;
use door::Door;

pub use door::Closed;

mod addresses;
mod door;
mod failure;
mod rows;

/// The name under which NVIDIA's driver installs the library.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// How often the list of processes is asked for while it outgrows the room made for it.
const PROCESS_LIST_ATTEMPTS: u32 = 5;

/// How long a question waits while GPUs are reset. A reset takes seconds; one that hangs must not keep everybody.
const DOOR: Duration = Duration::from_secs(30);

/// Reads this boot's GPU errors from the kernel's log: the JSON document of `nvml.xids`. It is handed a function that names
/// the GPU (`GPU-<uuid>`) at a PCI address (`dddd:bb:dd`, with or without the function), where it is known.
pub type XidReader = Box<dyn Fn(&dyn Fn(&str) -> Option<String>) -> Answer<String> + Send + Sync>;

/// The management library of this node's NVIDIA driver.
pub struct NvmlLibrary {
    library: PathBuf,
    addresses: Addresses,
    xids: XidReader,
    door: Door,
}

impl NvmlLibrary {
    /// Touches neither driver nor library yet, so it cannot fail. `library` is a path or a name that the loader looks up:
    /// [`LIBRARY`] but for tests. `addresses` is a file in which the PCI addresses of GPUs outlive the process (a GPU that is
    /// lost can no longer be asked); without it they are only kept in memory, and a damaged one counts as empty.
    pub fn new(library: impl Into<PathBuf>, addresses: Option<&Path>, xids: XidReader) -> Self {
        Self { library: library.into(), addresses: Addresses::load(addresses), xids, door: Door::default() }
    }

    /// The UUID of the GPU that was last seen at a PCI address: `dddd:bb:dd`, with or without the function, either case.
    ///
    /// Answers from what [`devices`](capability::Nvml::devices) saw, now or in an earlier process; never asks the driver.
    pub fn uuid_of(&self, pci: &str) -> Option<String> {
        self.addresses.uuid_of(pci)
    }

    /// Waits until no question is under way and lets none begin until the answer is dropped: an open NVML keeps GPUs from being
    /// reset. Errs `nvml-in-use` when one does not end within that time.
    pub fn stand_aside(&self, within: Duration) -> Answer<Closed<'_>> {
        self.door.close(within).ok_or_else(|| {
            let message = format!("this daemon itself has asked NVML something that did not end within {within:?}");
            Error::new("nvml-in-use", message)
        })
    }

    /// The MIG instances of each GPU that can be asked, by their UUIDs.
    pub fn mig_instances(&self) -> Answer<BTreeMap<String, Vec<String>>> {
        self.ask("the MIG instances", |nvml| {
            let mut found = BTreeMap::new();
            for index in 0..nvml.device_count()? {
                // A lost one is left out: whoever asks for its instances finds them nowhere.
                let Ok(device) = nvml.device_by_index(index) else { continue };
                let Ok(uuid) = device.uuid() else { continue };
                if let Ok(instances) = mig_instances(&device) {
                    found.insert(uuid, instances);
                }
            }
            Ok(found)
        })
    }

    /// Initialised, until it is dropped.
    fn open(&self) -> Answer<Nvml> {
        let doing = || format!("initialise {}", self.library.display());
        let opened = Nvml::builder().lib_path(self.library.as_os_str()).init();
        let nvml = opened.map_err(|error| failure::error(doing(), error))?;
        if nvml.lib().nvmlShutdown.is_err() {
            // Dropping it would panic: nvml-wrapper calls nvmlShutdown without asking whether there is one.
            mem::forget(nvml);
            return Err(Error::new(failure::SYMBOL_MISSING, format!("cannot {}: it has no nvmlShutdown", doing())));
        }
        Ok(nvml)
    }

    fn ask<T>(&self, what: impl Display, question: impl FnOnce(&Nvml) -> Result<T, NvmlError>) -> Answer<T> {
        let Some(_inside) = self.door.enter(DOOR) else {
            let message = format!("cannot read {what}: GPUs are being reset, and it takes longer than {DOOR:?}");
            return Err(Error::new("reset-under-way", message));
        };
        question(&self.open()?).map_err(|error| failure::error(format!("read {what}"), error))
    }

    fn ask_gpu<T>(
        &self,
        what: &str,
        uuid: &str,
        question: impl FnOnce(&Nvml, &Handle<'_>) -> Result<T, NvmlError>,
    ) -> Answer<T> {
        self.ask(format!("{what} of {uuid}"), |nvml| question(nvml, &find(nvml, uuid)?))
    }
}

impl capability::Nvml for NvmlLibrary {
    fn driver(&self) -> Answer<DriverInfo> {
        self.ask("the driver's version", |nvml| {
            let cuda_version = nvml.sys_cuda_driver_version().ok().and_then(|version| u32::try_from(version).ok());
            Ok(DriverInfo {
                version: nvml.sys_driver_version()?,
                nvml_version: nvml.sys_nvml_version()?,
                cuda_version: cuda_version.filter(|version| *version > 0),
            })
        })
    }

    fn devices(&self) -> Answer<Vec<Device>> {
        let devices = self.ask("the number of GPUs", |nvml| {
            let device = |index| {
                let identity = nvml.device_by_index(index).and_then(|device| identity(&device));
                let doing = || format!("identify the GPU at index {index}");
                Device { index, identity: identity.map_err(|error| failure::error(doing(), error)) }
            };
            Ok((0..nvml.device_count()?).map(device).collect::<Vec<_>>())
        })?;
        let known = devices.iter().filter_map(|device| device.identity.as_ref().ok());
        self.addresses.learn(known.map(|known| (known.pci_address.as_str(), known.uuid.as_str())));
        Ok(devices)
    }

    /// With ECC switched off the driver has no counts: `enabled` is false and they are zero. A GPU without ECC gives
    /// `not-supported`.
    fn ecc_errors(&self, uuid: &str) -> Answer<EccCounts> {
        self.ask_gpu("the memory errors", uuid, |_, device| {
            let enabled = device.is_ecc_enabled()?.currently_enabled;
            let count = |error, counter| {
                if enabled { device.total_ecc_errors(error, counter) } else { Ok(0) }
            };
            Ok(EccCounts {
                enabled,
                volatile_corrected: count(MemoryError::Corrected, EccCounter::Volatile)?,
                volatile_uncorrected: count(MemoryError::Uncorrected, EccCounter::Volatile)?,
                aggregate_corrected: count(MemoryError::Corrected, EccCounter::Aggregate)?,
                aggregate_uncorrected: count(MemoryError::Uncorrected, EccCounter::Aggregate)?,
            })
        })
    }

    /// `not-supported` on a GPU with active MIG instances, whatever the driver would answer there.
    fn remapped_rows(&self, uuid: &str) -> Answer<RowRemapping> {
        self.ask_gpu("the remapped rows", uuid, |nvml, device| {
            if has_mig_instances(device)? { Err(NvmlError::NotSupported) } else { rows::remapped_rows(nvml, device) }
        })
    }

    fn pcie_link(&self, uuid: &str) -> Answer<Link> {
        self.ask_gpu("the PCIe link", uuid, |_, device| {
            Ok(Link {
                current_width: device.current_pcie_link_width()?,
                max_width: device.max_pcie_link_width()?,
                current_generation: device.current_pcie_link_gen()?,
                max_generation: device.max_pcie_link_gen()?,
            })
        })
    }

    /// Compute processes first. A GPU that supports no graphics list has no graphics processes.
    fn processes(&self, uuid: &str) -> Answer<Vec<Process>> {
        self.ask_gpu("the processes", uuid, |_, device| {
            let compute = whole_list(|| device.running_compute_processes())?;
            let graphics = match whole_list(|| device.running_graphics_processes()) {
                Err(NvmlError::NotSupported) => Vec::new(),
                listed => listed?,
            };
            let compute = compute.iter().map(|info| process("compute", info));
            Ok(compute.chain(graphics.iter().map(|info| process("graphics", info))).collect())
        })
    }

    fn recovery_action(&self, uuid: &str) -> Answer<u32> {
        self.ask_gpu("the recovery action", uuid, |_, device| {
            let values = device.field_values_for(&[FieldId(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)])?;
            match values.into_iter().next().ok_or(NvmlError::NoData)??.value? {
                SampleValue::U32(action) => Ok(action),
                SampleValue::U64(action) => action.try_into().map_err(|_| NvmlError::NoData),
                SampleValue::I64(action) => action.try_into().map_err(|_| NvmlError::NoData),
                SampleValue::F64(_) => Err(NvmlError::NoData),
            }
        })
    }

    /// Asks the kernel's log only: it must answer when the driver hangs.
    fn xids(&self) -> Answer<String> {
        (self.xids)(&|pci| self.uuid_of(pci))
    }
}

/// By UUID; where that fails for a reason other than the UUID itself, by walking the list: NVML initialises GPUs as it looks
/// for one, and gives up with GPU_IS_LOST where it meets a lost one before it.
fn find<'nvml>(nvml: &'nvml Nvml, uuid: &str) -> Result<Handle<'nvml>, NvmlError> {
    match nvml.device_by_uuid(uuid) {
        Ok(device) => Ok(device),
        Err(error @ (NvmlError::NotFound | NvmlError::InvalidArg)) => Err(error),
        Err(error) => {
            let mut devices = (0..nvml.device_count()?).filter_map(|index| nvml.device_by_index(index).ok());
            devices.find(|device| device.uuid().is_ok_and(|found| found == uuid)).ok_or(error)
        }
    }
}

fn identity(device: &Handle<'_>) -> Result<Identity, NvmlError> {
    let pci = device.pci_info()?;
    let function = pci.bus_id.rsplit_once('.').map_or("0", |(_, function)| function);
    Ok(Identity {
        uuid: device.uuid()?,
        name: device.name()?,
        pci_address: format!("{:04x}:{:02x}:{:02x}.{function}", pci.domain, pci.bus, pci.device),
        serial: where_supported(device.serial())?,
        minor: where_supported(device.minor_number())?,
        mig_enabled: where_supported(device.mig_mode())?.map(|mode| mode.current == 1),
        persistence: device.is_in_persistent_mode().ok(),
    })
}

/// Apart "there is none" (the GPU, or a driver older than the function, says so) from "it could not be asked".
fn where_supported<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

fn has_mig_instances(device: &Handle<'_>) -> Result<bool, NvmlError> {
    if where_supported(device.mig_mode())?.is_none_or(|mode| mode.current != 1) {
        return Ok(false);
    }
    for index in 0..device.mig_device_count()? {
        match device.mig_device_by_index(index) {
            Ok(_) => return Ok(true),
            // A gap: indexes are not renumbered when an instance goes.
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The UUIDs of a GPU's MIG instances; none where MIG is off or there is none.
fn mig_instances(device: &Handle<'_>) -> Result<Vec<String>, NvmlError> {
    let mut found = Vec::new();
    if where_supported(device.mig_mode())?.is_none_or(|mode| mode.current != 1) {
        return Ok(found);
    }
    for index in 0..device.mig_device_count()? {
        match device.mig_device_by_index(index) {
            Ok(instance) => found.push(instance.uuid()?),
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// nvml-wrapper asks for the size and leaves room for five more; more can start in between.
fn whole_list(mut list: impl FnMut() -> Result<Vec<ProcessInfo>, NvmlError>) -> Result<Vec<ProcessInfo>, NvmlError> {
    for _ in 1..PROCESS_LIST_ATTEMPTS {
        match list() {
            Err(NvmlError::InsufficientSize(_)) => {}
            answer => return answer,
        }
    }
    list()
}

fn process(context: &str, info: &ProcessInfo) -> Process {
    let used_memory_bytes = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    Process { pid: info.pid, context: context.to_owned(), used_memory_bytes }
}
