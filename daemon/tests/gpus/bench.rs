//! A simulated node whose GPUs are reset by the fake `nvidia-smi` and `systemctl`, as real processes below real supervisors.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bc_daemon::capability::gpus::{Cured, Machine, MachineGpus, Tools};
use bc_daemon::capability::inventory::MachineInventory;
use bc_daemon::capability::kernel_log::{KernelLog, Source};
use bc_daemon::capability::nvml::NvmlLibrary;
use bc_proto::xid::Report;
use bc_runtime::capability::gpus::ResetOutcome;
use bc_runtime::capability::{Answer, Gpus, Nvml};
use fake_nvml::{Service, SimulatedNode, State, calls_file};
use tempfile::TempDir;

/// The services that are stopped for a reset, in this order.
pub(crate) const SERVICES: [&str; 2] = ["nvidia-dcgm", "nvidia-persistenced"];

pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) node: SimulatedNode,
    pub(crate) nvml: Arc<NvmlLibrary>,
    pub(crate) gpus: MachineGpus,
}

pub(crate) fn uuid(index: usize) -> String {
    format!("GPU-51d00000-0000-4000-8000-{index:012x}")
}

impl Bench {
    /// Eight GPUs with persistence mode on, and one of two services running, changed so.
    pub(crate) fn changed(change: impl FnOnce(&mut State)) -> Self {
        let mut state = State::eight_h100();
        for (name, active) in SERVICES.into_iter().zip([true, false]) {
            state.services.insert(name.into(), Service { active, stuck: false });
        }
        change(&mut state);
        let folder = tempfile::tempdir().expect("a folder");
        let node = SimulatedNode::create(folder.path(), &state).expect("a node");
        assert!(node.programs().join("nvidia-smi").is_file(), "build the programs: cargo build -p fake-nvml");
        symlink("/proc", folder.path().join("proc")).expect("a link");
        fs::create_dir(folder.path().join("dev")).expect("a folder");
        fs::write(folder.path().join("boot-id"), "boot-1\n").expect("a file");
        let (nvml, gpus) = Self::start(&folder, &node, "nvidia-smi");
        Self { folder, node, nvml, gpus }
    }

    /// As a process that begins on this machine.
    fn start(folder: &TempDir, node: &SimulatedNode, nvidia_smi: &str) -> (Arc<NvmlLibrary>, MachineGpus) {
        let state_dir = Some(folder.path().to_owned());
        let cured = Arc::new(Cured::open(state_dir.as_deref(), &folder.path().join("boot-id")));
        let (log, counted) = (KernelLog::new(Source::File(node.kernel_log())), Arc::clone(&cured));
        let xids = Box::new(move |uuid_of: &dyn Fn(&str) -> Option<String>| counted.applied(log.xids(uuid_of)));
        let nvml = Arc::new(NvmlLibrary::new(node.library(), None, xids));
        let inventory = Arc::new(MachineInventory::new(folder.path().into(), Some(nvml.clone()), || 0));
        let tools = Tools {
            supervisor: env!("CARGO_BIN_EXE_bcd").into(),
            path: format!("{}:/usr/bin:/bin", node.programs().display()),
            nvidia_smi: nvidia_smi.into(),
            systemctl: "systemctl".into(),
            reset_timeout: Duration::from_secs(2),
            switch_timeout: Duration::from_secs(2),
        };
        let machine = Machine {
            nvml: nvml.clone(),
            inventory,
            cured,
            tools,
            services: SERVICES.map(str::to_owned).to_vec(),
            root: folder.path().into(),
            state_dir,
        };
        nvml.devices().expect("the driver answers");
        (nvml, MachineGpus::new(machine))
    }

    /// The next process on the same machine.
    pub(crate) fn restart(&mut self) {
        (self.nvml, self.gpus) = Self::start(&self.folder, &self.node, "nvidia-smi");
    }

    /// The same, with a script in the place of `nvidia-smi`. `$REAL` in it is the fake one.
    pub(crate) fn restart_with(&mut self, script: &str) {
        let path = self.node.programs().join("scripted");
        let real = self.node.programs().join("nvidia-smi");
        fs::write(&path, format!("#!/bin/sh\n{}", script.replace("$REAL", &real.display().to_string())))
            .expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
        (self.nvml, self.gpus) = Self::start(&self.folder, &self.node, "scripted");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn reset(&self, indexes: &[usize]) -> Answer<Vec<ResetOutcome>> {
        self.gpus.reset(&indexes.iter().map(|index| uuid(*index)).collect::<Vec<_>>())
    }

    /// How the programs were called, without the questions of `systemctl`.
    pub(crate) fn changes(&self) -> Vec<String> {
        let text = fs::read_to_string(calls_file(&self.node.state_file())).unwrap_or_default();
        text.lines().filter(|line| !line.contains("is-active")).map(str::to_owned).collect()
    }

    /// What a reset switches off: each GPU's persistence mode, and whether each service runs.
    pub(crate) fn switches(&self) -> (Vec<bool>, Vec<bool>) {
        let state = self.node.state().expect("a state");
        let services = SERVICES.map(|name| state.services.get(name).is_some_and(|service| service.active));
        (state.gpus.iter().map(|gpu| gpu.persistence).collect(), services.to_vec())
    }

    /// Whether something waits to be switched on again.
    pub(crate) fn has_leftovers(&self) -> bool {
        self.path("gpu-restore.json").exists()
    }

    /// The codes that the log holds about a GPU.
    pub(crate) fn xids(&self, index: usize) -> Vec<u32> {
        let report: Report = serde_json::from_str(&self.nvml.xids().expect("a log")).expect("a report");
        let of = report.events.into_iter().filter(|event| event.gpu == Some(uuid(index)));
        of.filter_map(|event| event.code).collect()
    }
}
