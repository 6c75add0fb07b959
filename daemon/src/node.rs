//! This machine as a node: its engine and the capabilities that stand behind its host ABI.
//!
//! **Invariant:** what is offered here is real: a capability that this build cannot serve is absent, so that a kind which
//! needs it is refused when it is loaded and not when it is half done.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwap;
use bc_proto::grants::{Capability, Grants, Policy};
use bc_proto::id::{CommandId, NodeId};
use bc_proto::manifest::Role;
use bc_proto::rules::admission::{Obstacle, Site};
use bc_runtime::capability::{BlockDevices, Capabilities, Files, Gpus};
use bc_runtime::effect::ReportOnly;
use bc_runtime::v1::wit::log::Level;
use bc_runtime::{Engine, Inspected, Kind, Mode, Run, Watcher};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::capability::block_devices::{Disks, Doing};
use crate::capability::files::Folders;
use crate::capability::gpus::{Cured, Machine, MachineGpus, Tools};
use crate::capability::http::Requests;
use crate::capability::inventory::MachineInventory;
use crate::capability::kernel_log::KernelLog;
use crate::capability::nvml::NvmlLibrary;
use crate::capability::process::{self, Programs};
use crate::capability::secrets::NoSecrets;
use crate::capability::system::ThisSystem;
use crate::capability::upgrade::NoUpgrades;
use crate::capability::upload::Nowhere;
use crate::config::Config;
use crate::trust::Trust;

/// Where the PCI addresses of GPUs are kept, below the state directory.
const GPU_ADDRESSES: &str = "gpu-addresses.json";

/// The machine.
pub struct Node {
    /// Runs its kinds.
    pub engine: Engine,
    /// What it is.
    pub role: Role,
    /// What its operator grants.
    pub policy: Policy,
    /// What stands behind its host ABI.
    pub capabilities: Capabilities,
    /// Its disks, where it may have any to do with.
    pub disks: Option<Disks>,
    /// Whom it trusts.
    pub trust: Trust,
    /// The root of its files: `/`, or a folder that plays a machine.
    pub root: PathBuf,
    /// Where its boot id is.
    pub boot_id_file: PathBuf,
    /// What supervises the programs that kinds run; `None` for none.
    pub supervisor: Option<PathBuf>,
    /// Where programs are looked up that have no path.
    pub program_path: String,
    /// Its GPUs, which count what the daemon holds; `None` where programs cannot be run.
    pub gpus: Option<Arc<MachineGpus>>,
}

impl Node {
    /// Sets the machine up; touches neither driver nor kernel log yet.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let engine =
            Engine::new(&bc_runtime::Config { cache_dir: config.cache_dir.clone(), ..bc_runtime::Config::default() })?;
        let kernel_log = KernelLog::new(config.kernel_log.clone());
        let addresses = config.state_dir.as_ref().map(|dir| dir.join(GPU_ADDRESSES));
        let cured = Arc::new(Cured::open(config.state_dir.as_deref(), &config.boot_id_file()));
        let counted = Arc::clone(&cured);
        let xids = Box::new(move |uuid_of: &dyn Fn(&str) -> Option<String>| counted.applied(kernel_log.xids(uuid_of)));
        let nvml = Arc::new(NvmlLibrary::new(&config.nvml.library, addresses.as_deref(), xids));
        let inventory = Arc::new(MachineInventory::new(config.root.clone(), Some(nvml.clone()), now_ms));
        let supervisor = process::supervisor();
        let gpus = supervisor.clone().map(|supervisor| {
            let tools = Tools {
                supervisor,
                path: config.program_path.clone(),
                nvidia_smi: config.gpus.nvidia_smi.clone(),
                systemctl: config.gpus.systemctl.clone(),
                reset_timeout: config.gpus.reset_timeout,
                switch_timeout: config.gpus.switch_timeout,
            };
            Arc::new(MachineGpus::new(Machine {
                nvml: nvml.clone(),
                inventory: inventory.clone(),
                cured,
                tools,
                services: config.gpus.services.clone(),
                root: config.root.clone(),
                state_dir: config.state_dir.clone(),
            }))
        });
        // Another role stands for other machines: its own disks are nobody's business.
        let disks = matches!(config.role, Role::Host | Role::Ramdisk)
            .then(|| Disks::new(config.root.clone(), supervisor.clone(), config.disks.clone(), &config.images))
            .transpose()?;
        Ok(Self {
            engine,
            disks,
            role: config.role,
            policy: config.policy(),
            trust: Trust::default(),
            root: config.root.clone(),
            boot_id_file: config.boot_id_file(),
            supervisor,
            program_path: config.program_path.clone(),
            capabilities: Capabilities {
                nvml: Some(nvml),
                inventory: Some(inventory),
                http: Some(Arc::new(Requests::new(&config.http)?)),
                gpus: gpus.clone().map(|gpus| gpus as Arc<dyn Gpus>),
                ..Capabilities::default()
            },
            gpus,
        })
    }

    /// The capabilities that are not absent.
    pub fn offers(&self) -> BTreeSet<Capability> {
        let has = &self.capabilities;
        let offered = |capability: &Capability| match capability {
            Capability::Inventory => has.inventory.is_some(),
            Capability::Nvml => has.nvml.is_some(),
            Capability::Gpus => has.gpus.is_some(),
            Capability::Process => has.process.is_some() || self.supervisor.is_some(),
            Capability::BlockDevices => has.block_devices.is_some() || self.disks.is_some(),
            // Every machine has files; the others the daemon brings, command by command.
            Capability::Files | Capability::System | Capability::Secrets | Capability::Upgrade | Capability::Upload => {
                true
            }
            Capability::Http => has.http.is_some(),
        };
        Capability::ALL.into_iter().filter(offered).collect()
    }

    /// What stands against loading a component here.
    pub fn obstacles(&self, component: &Inspected) -> Vec<Obstacle> {
        component.obstacles(&Site { role: self.role, policy: &self.policy, offers: &self.offers() })
    }

    /// The programs of one run. Where a folder plays the machine, its own come first.
    pub(crate) fn programs(&self) -> Option<Programs> {
        let path = if self.root == Path::new("/") {
            self.program_path.clone()
        } else {
            format!("{}:{}", self.root.join("usr/bin").display(), self.program_path)
        };
        self.supervisor.clone().map(|supervisor| Programs::new(supervisor, path))
    }

    /// The files of one run.
    pub(crate) fn files(&self, grants: &Grants) -> Arc<dyn Files> {
        Arc::new(Folders::new(&self.root, grants))
    }

    /// Its disks for a run that no control plane asked for.
    pub(crate) fn own_disks(
        &self,
        cancel: CancellationToken,
        over: CancellationToken,
    ) -> Option<Arc<dyn BlockDevices>> {
        let watcher = Arc::new(OwnLog { role: self.role });
        Some(self.disks.as_ref()?.of(Doing { watcher, cancel, over }))
    }

    /// A run that no control plane asked for: on this node, now, with what the policy grants.
    pub fn run_of(&self, kind: &Kind, payload: Value, cancel: CancellationToken) -> Run {
        let grants = self.policy.grants_of(&kind.manifest().name);
        Run {
            command_id: CommandId::from_uuid(Uuid::nil()).to_string(),
            node_id: NodeId::from_uuid(Uuid::nil()).to_string(),
            attempt: 1,
            payload,
            timeout: None,
            mode: Mode::Live,
            record: false,
            capabilities: Capabilities {
                system: self
                    .capabilities
                    .system
                    .clone()
                    .or_else(|| Some(Arc::new(ThisSystem::alone(self.boot_id_file.clone())))),
                secrets: self.capabilities.secrets.clone().or_else(|| Some(Arc::new(NoSecrets))),
                upgrade: self.capabilities.upgrade.clone().or_else(|| Some(Arc::new(NoUpgrades))),
                upload: self.capabilities.upload.clone().or_else(|| Some(Arc::new(Nowhere))),
                files: self.capabilities.files.clone().or_else(|| Some(self.files(&grants))),
                ..self.capabilities.clone()
            },
            grants: Arc::new(ArcSwap::from_pointee(grants)),
            journal: Arc::new(ReportOnly),
            cancel,
            slot: None,
            watcher: Arc::new(OwnLog { role: self.role }),
        }
    }
}

/// This machine's clock, in milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "this is the one place of the node that reads the wall clock")]
pub fn now_ms() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// Passes log lines and progress to this process's own log.
struct OwnLog {
    role: Role,
}

impl Watcher for OwnLog {
    fn log(&self, level: Level, target: &str, message: &str, fields: &str) {
        match level {
            Level::Trace => tracing::trace!(guest = target, fields, "{message}"),
            Level::Debug => tracing::debug!(guest = target, fields, "{message}"),
            Level::Info => tracing::info!(guest = target, fields, "{message}"),
            Level::Warn => tracing::warn!(guest = target, fields, "{message}"),
            Level::Error => tracing::error!(guest = target, fields, "{message}"),
        }
    }

    fn progress(&self, done: u64, total: Option<u64>, unit: &str, message: &str) {
        tracing::info!(done, total, unit, "{message}");
    }

    fn now_ms(&self) -> u64 {
        now_ms()
    }

    fn role(&self) -> String {
        self.role.to_string()
    }
}
