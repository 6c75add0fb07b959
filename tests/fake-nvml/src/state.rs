//! What the fake driver answers: one JSON document, read anew at every call.
//!
//! **Invariant:** a reader never sees half a document: writers replace the file by renaming a complete one over it, and
//! [`State::update`] lets one writer in at a time.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::pci::PciAddress;

/// The environment variable that names the state file.
pub const STATE_VARIABLE: &str = "FAKE_NVML_STATE";
/// The environment variable that names a file to which every call appends a line `function [gpu] -> code`.
pub const TRACE_VARIABLE: &str = "FAKE_NVML_TRACE";
/// The state file's name where it is looked for beside the library or program.
pub const STATE_FILE: &str = "fake-nvml.json";

/// One machine as its driver sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// For example `570.124.06`.
    pub driver_version: String,
    /// The library's own version.
    pub nvml_version: String,
    /// CUDA version times 1000 plus ten times the minor: 12080 for 12.8.
    pub cuda_version: i32,
    /// What initialisation returns; none: success. 9 plays a driver that is not loaded.
    pub init: Option<u32>,
    /// Return codes that functions give instead of working, by function name: `{"nvmlDeviceGetCount_v2": 999}`.
    pub errors: BTreeMap<String, u32>,
    /// The GPUs in the driver's order.
    pub gpus: Vec<Gpu>,
    /// Everything that happened, oldest first; an event set sees what is appended after it registered.
    pub events: Vec<Event>,
    /// How `nvidia-smi` behaves.
    pub smi: Smi,
    /// The services that `systemctl` knows, by name.
    pub services: BTreeMap<String, Service>,
    /// How `dcgmi` behaves.
    pub dcgm: Dcgm,
    /// As [`TRACE_VARIABLE`], which goes before it.
    pub trace: Option<PathBuf>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// `GPU-<uuid>`.
    pub uuid: String,
    /// The product's name.
    pub name: String,
    /// Any spelling of its PCI address.
    pub pci: String,
    /// The board's serial number; none: not supported.
    pub serial: Option<String>,
    /// The N of `/dev/nvidiaN`; none: not supported.
    pub minor: Option<u32>,
    /// Whether persistence mode is on. It holds the GPU against a reset.
    pub persistence: bool,
    /// Fallen off the bus: every function that touches it returns 15.
    pub lost: bool,
    /// Memory error counts; none: the GPU has no ECC.
    pub ecc: Option<Ecc>,
    /// Row remapping; none: not supported (before Ampere).
    pub remapped_rows: Option<RemappedRows>,
    /// Whether pages wait to be retired; none: not supported (Ampere and later).
    pub retired_pages_pending: Option<bool>,
    /// The PCIe link.
    pub link: Link,
    /// Who uses it.
    pub processes: Vec<Process>,
    /// Processes that start right after the next question for the size of the process list.
    pub arriving: Vec<Process>,
    /// MIG; none: the GPU cannot do it.
    pub mig: Option<Mig>,
    /// Field 230, the driver's advice; none: a driver too old to give any.
    pub recovery_action: Option<u32>,
    /// Other field values by id.
    pub fields: BTreeMap<u32, u64>,
    /// As [`State::errors`], for this GPU only. `nvmlDeviceGetFieldValues/230` is the code of that field alone.
    pub errors: BTreeMap<String, u32>,
    /// What a reset of it comes to.
    pub reset: ResetAnswer,
}

/// Counts of memory errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ecc {
    /// Whether ECC is on; off, the counts are not supported.
    pub enabled: bool,
    /// Corrected since the driver was loaded.
    pub volatile_corrected: u64,
    /// Uncorrected since the driver was loaded.
    pub volatile_uncorrected: u64,
    /// Corrected over the board's life.
    pub aggregate_corrected: u64,
    /// Uncorrected over the board's life.
    pub aggregate_uncorrected: u64,
}

/// Row remapping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemappedRows {
    /// Rows remapped because of correctable errors.
    pub correctable: u32,
    /// Rows remapped because of uncorrectable errors.
    pub uncorrectable: u32,
    /// A remap waits for a reset.
    pub pending: bool,
    /// A remap failed.
    pub failure: bool,
}

/// The PCIe link: widths in lanes, generations as in "PCIe 5".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// Lanes in use.
    pub current_width: u32,
    /// Lanes possible.
    pub max_width: u32,
    /// Generation in use.
    pub current_generation: u32,
    /// Generation possible.
    pub max_generation: u32,
}

/// The list in which NVML shows a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Context {
    /// `nvmlDeviceGetComputeRunningProcesses`.
    #[default]
    Compute,
    /// `nvmlDeviceGetGraphicsRunningProcesses`.
    Graphics,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Compute or graphics.
    pub context: Context,
    /// Bytes of GPU memory; none: not available.
    pub used_memory_bytes: Option<u64>,
    /// The GPU instance it runs in.
    pub gpu_instance: Option<u32>,
    /// The compute instance it runs in.
    pub compute_instance: Option<u32>,
}

/// Multi-instance GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mig {
    /// Whether MIG is on now.
    pub enabled: bool,
    /// Whether it will be after the next reset.
    pub pending: bool,
    /// How many MIG device indexes there are: 7 on an H100.
    pub max_devices: u32,
    /// The MIG devices by index; a missing index is a gap (NOT_FOUND).
    pub instances: BTreeMap<u32, MigInstance>,
}

/// One MIG device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MigInstance {
    /// `MIG-<uuid>`.
    pub uuid: String,
    /// For example `1g.10gb`.
    pub profile: String,
    /// Id of its GPU instance.
    pub gpu_instance: u32,
    /// Id of its compute instance.
    pub compute_instance: u32,
}

/// Something that event sets report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Event {
    /// Index of the GPU.
    pub gpu: u32,
    /// One bit of `nvmlEventType…`: 8 is a critical XID.
    pub kind: u64,
    /// The XID, for a critical XID.
    pub data: u64,
    /// GPU instance, where one is concerned.
    pub gpu_instance: Option<u32>,
    /// Compute instance, where one is concerned.
    pub compute_instance: Option<u32>,
}

/// How `nvidia-smi` behaves beyond what the GPUs say.
#[expect(clippy::struct_excessive_bools, reason = "independent switches of a simulation")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Smi {
    /// Prints nothing and never ends, as a process stuck in the driver (D state) does.
    pub hang: bool,
    /// The same for one kind of request alone. It goes on when this is taken back.
    pub hang_on: Option<HangOn>,
    /// Plays a machine without the library (exit 12).
    pub library_missing: bool,
    /// Plays a caller that is not root (exit 4 where root is needed).
    pub not_root: bool,
    /// Which words it has for a GPU in use.
    pub busy_text: BusyText,
    /// Whether a compute process on any other GPU stops a reset, as NVIDIA's manual says.
    pub idle_node_needed: bool,
    /// Why the fabric state is unknown, where it is.
    pub fabric_error: Option<String>,
}

/// The two ways in which releases of `nvidia-smi` say that a GPU is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BusyText {
    /// A sentence for each GPU and a paragraph.
    Older,
    /// A list under "The following GPUs could not be reset:".
    #[default]
    Newer,
}

/// What a reset of an unused GPU comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResetAnswer {
    /// It works.
    #[default]
    Works,
    /// The product cannot be reset.
    Unsupported,
    /// It drives the console.
    Primary,
    /// It is in vGPU mode.
    Vgpu,
    /// These indexes must be named in the same command.
    PeersNeeded(Vec<u32>),
    /// The reset starts and does not complete.
    Fails,
    /// The GPU falls off the bus as it is reset.
    Vanishes,
    /// The reset works, and the rows that waited for it still do.
    KeepsRows,
}

/// What `nvidia-smi` hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HangOn {
    /// `--gpu-reset`.
    Reset,
    /// `-pm`.
    Persistence,
    /// `-pm 1`.
    PersistenceOn,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Whether it runs. One that does holds all GPUs.
    pub active: bool,
    /// Whether it can be neither stopped nor started.
    pub stuck: bool,
}

/// How `dcgmi` behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dcgm {
    /// 3 or 4: the form of what it prints.
    pub generation: u8,
    /// What the test `memory` comes to on a GPU, by index; `Pass` where none is given.
    pub memory: BTreeMap<u32, DcgmResult>,
    /// Whether all tests are skipped.
    pub skips: bool,
    /// How many bytes it prints before it ends, where that is not all.
    pub cut_at: Option<usize>,
    /// Whether it never ends.
    pub hang: bool,
    /// Whether another diagnosis runs.
    pub busy: bool,
    /// Why it runs nothing.
    pub runtime_error: Option<String>,
    /// What it exits with in place of what fits.
    pub exit: Option<u8>,
}

/// What a test comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DcgmResult {
    /// `Pass`, `Fail` or `Skip`.
    pub status: String,
    /// The text of its warning; none: it has none.
    pub warning: Option<String>,
    /// DCGM's number of the error.
    pub error_id: i64,
    /// 0 none, 1 monitor, 2 isolate, 3 unknown, 4 triage, 5 config, 6 reset.
    pub severity: i64,
}

impl Default for Dcgm {
    fn default() -> Self {
        Self {
            generation: 4,
            memory: BTreeMap::new(),
            skips: false,
            cut_at: None,
            hang: false,
            busy: false,
            runtime_error: None,
            exit: None,
        }
    }
}

impl Default for State {
    /// A driver without GPUs.
    fn default() -> Self {
        Self {
            driver_version: "570.124.06".to_owned(),
            nvml_version: "12.570.124.06".to_owned(),
            cuda_version: 12080,
            init: None,
            errors: BTreeMap::new(),
            gpus: Vec::new(),
            events: Vec::new(),
            smi: Smi::default(),
            services: BTreeMap::new(),
            dcgm: Dcgm::default(),
            trace: None,
        }
    }
}

impl Default for Link {
    /// PCIe 5 ×16, what an H100 has.
    fn default() -> Self {
        Self { current_width: 16, max_width: 16, current_generation: 5, max_generation: 5 }
    }
}

impl Default for Smi {
    fn default() -> Self {
        Self {
            hang: false,
            hang_on: None,
            library_missing: false,
            not_root: false,
            busy_text: BusyText::default(),
            idle_node_needed: true,
            fabric_error: None,
        }
    }
}

impl Gpu {
    /// The PCI address; all zero where [`Gpu::pci`] is none.
    pub fn address(&self) -> PciAddress {
        self.pci.parse().unwrap_or(PciAddress { domain: 0, bus: 0, device: 0 })
    }

    /// Whether MIG is on and has instances.
    pub fn has_mig_instances(&self) -> bool {
        self.mig.as_ref().is_some_and(|mig| mig.enabled && !mig.instances.is_empty())
    }
}

impl State {
    /// Reads a state file.
    ///
    /// Errs when it cannot be read, is no JSON, or has a field that does not exist (so that a misspelt one is noticed).
    pub fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Puts this state in the place of the file's.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        let complete = beside(path, &format!(".{}.new", std::process::id()));
        fs::write(&complete, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&complete, path)
    }

    /// Changes the file's state; other callers of `update` wait.
    pub fn update<T>(path: &Path, change: impl FnOnce(&mut Self) -> T) -> io::Result<T> {
        let writers = File::create(beside(path, ".lock"))?;
        writers.lock()?;
        let mut state = Self::load(path)?;
        let answer = change(&mut state);
        state.store(path)?;
        Ok(answer)
    }
}

/// The file that every initialised library holds a shared lock on: NVML's open handle on the GPUs, which stops a reset.
pub(crate) fn clients(state: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).read(true).open(beside(state, ".clients"))
}

/// The file in which the programs note how they were called, a line each; the GPUs' state is in `state`.
pub fn calls_file(state: &Path) -> PathBuf {
    beside(state, ".calls")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::State;
    use crate::preset::Preset;

    #[test]
    fn a_stored_state_is_loaded_as_it_was() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("state.json");
        let state = Preset::MigSplit.state();
        state.store(&path).expect("stored");
        assert_eq!(State::load(&path).expect("loaded"), state);
    }

    #[test]
    fn a_handwritten_state_may_leave_out_what_is_usual_but_not_misspell() {
        let state: State = serde_json::from_str(r#"{"gpus":[{"uuid":"GPU-1"}]}"#).expect("defaults fill the rest");
        assert_eq!(state.gpus[0].link.max_width, 16);
        assert!(serde_json::from_str::<State>(r#"{"gpus":[{"uid":"GPU-1"}]}"#).is_err());
    }
}
