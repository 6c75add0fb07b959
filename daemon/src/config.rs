//! What a node's operator decides: its role, its grants, and where things are. Read from `bcd.toml`.
//!
//! **Invariant:** a file that does not fit is refused whole, with the line and the rule; no key is silently ignored.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bc_proto::grants::{Grants, Policy};
use bc_proto::manifest::Role;
use bc_proto::pattern::Pattern;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::capability::block_devices::{Images, Tools};
use crate::capability::nvml::LIBRARY;
use crate::capability::system::Reboot;
use crate::capability::{http, kernel_log, process};
use crate::gateway::Address;

/// Where state is kept unless the configuration says otherwise.
pub const STATE_DIR: &str = "/var/lib/bcd";

/// The configuration. Every key has a default; the default grants nothing.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Config {
    /// What this node is.
    pub role: Role,
    /// Which kinds get which grants; see [`Policy`].
    pub grants: BTreeMap<Pattern, Grants>,
    /// The root of `proc`, `sys` and `etc`: `/`, or a folder that plays a machine.
    pub root: PathBuf,
    /// The NVIDIA management library.
    pub nvml: Nvml,
    /// How kinds' requests to other servers are sent.
    pub http: http::Settings,
    /// How GPUs are reset.
    pub gpus: Gpus,
    /// Where programs are looked up that have no path: folders with colons between.
    pub program_path: String,
    /// The tools that talk to disks.
    pub disks: Tools,
    /// Where images come from that are written to disks.
    pub images: Images,
    /// Where the kernel's log is read.
    pub kernel_log: kernel_log::Source,
    /// Where compiled kinds are kept; none compiles them at every start.
    pub cache_dir: Option<PathBuf>,
    /// What has to outlive the process; [`Config::state_dir`] says where that is by default.
    pub state_dir: Option<PathBuf>,
    /// The components of the kinds that this node serves.
    pub plugin_dir: Option<PathBuf>,
    /// Where the gateways are, `https://host:port`; empty for those that it joined with.
    pub gateways: Vec<Address>,
    /// The file that holds the kernel's boot id; none is `proc/sys/kernel/random/boot_id` below `root`.
    pub boot_id_file: Option<PathBuf>,
    /// How the daemon is replaced.
    pub upgrade: Upgrade,
    /// How the machine is rebooted.
    pub reboot: Reboot,
    /// Uploads of commands.
    pub uploads: Uploads,
    /// Where Prometheus reads metrics, `/metrics` over HTTP without authentication; none is nowhere.
    pub metrics: Option<SocketAddr>,
    /// How long a stopping daemon waits for runs that go on.
    #[serde(deserialize_with = "span")]
    pub stop_grace: Duration,
}

/// The NVIDIA management library.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nvml {
    /// A path, or a name that the loader looks up.
    pub library: PathBuf,
}

/// How the daemon is replaced.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Upgrade {
    /// How long a session of a new version has to last before that version stays.
    #[serde(deserialize_with = "span")]
    pub confirm_after: Duration,
    /// How long a new version has for that, from its first start on. Then the one before comes back.
    #[serde(deserialize_with = "span")]
    pub confirm_within: Duration,
    /// Whether releases that nobody signed are taken where the node trusts no publishers. Where it trusts some, only theirs are.
    pub allow_unsigned: bool,
}

impl Default for Upgrade {
    fn default() -> Self {
        let confirm_after = Duration::from_secs(30);
        Self { confirm_after, confirm_within: Duration::from_mins(5), allow_unsigned: false }
    }
}

/// How GPUs are reset.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Gpus {
    /// Services that hold GPUs: stopped for a reset, in this order, and started again after it.
    pub services: Vec<String>,
    /// NVIDIA's tool: a path, or a name that is looked up.
    pub nvidia_smi: String,
    /// What stops and starts services.
    pub systemctl: String,
    /// How long one reset may take.
    #[serde(deserialize_with = "span")]
    pub reset_timeout: Duration,
    /// How long a switch of persistence mode may take.
    #[serde(deserialize_with = "span")]
    pub switch_timeout: Duration,
}

impl Default for Gpus {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            nvidia_smi: "nvidia-smi".into(),
            systemctl: "systemctl".into(),
            // A reset takes seconds; a board with eight GPUs and NVLink most of a minute.
            reset_timeout: Duration::from_mins(2),
            switch_timeout: Duration::from_secs(15),
        }
    }
}

/// Uploads of commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Uploads {
    /// Certificates of the authorities that stores are believed by, in PEM; none is those of the system.
    pub ca_file: Option<PathBuf>,
}

impl Default for Nvml {
    fn default() -> Self {
        Self { library: LIBRARY.into() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            role: Role::Host,
            grants: BTreeMap::new(),
            root: "/".into(),
            nvml: Nvml::default(),
            http: http::Settings::default(),
            gpus: Gpus::default(),
            program_path: process::PATH.into(),
            disks: Tools::default(),
            images: Images::default(),
            kernel_log: kernel_log::Source::default(),
            cache_dir: None,
            state_dir: None,
            plugin_dir: None,
            gateways: Vec::new(),
            boot_id_file: None,
            upgrade: Upgrade::default(),
            reboot: Reboot::default(),
            uploads: Uploads::default(),
            metrics: None,
            stop_grace: Duration::from_secs(10),
        }
    }
}

/// Why a configuration was not taken.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unusable {
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{} does not fit: {error}", path.display())]
    Invalid { path: PathBuf, error: Box<toml::de::Error> },
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Unusable> {
        read_toml(path)
    }

    /// Where what outlives the process is kept.
    pub fn state_dir(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| STATE_DIR.into())
    }

    /// The file that holds the kernel's boot id.
    pub fn boot_id_file(&self) -> PathBuf {
        self.boot_id_file.clone().unwrap_or_else(|| self.root.join("proc/sys/kernel/random/boot_id"))
    }

    /// The grants as a policy.
    pub fn policy(&self) -> Policy {
        Policy { grants: self.grants.clone() }
    }
}

/// Reads a file that holds `[grants]` alone.
pub fn read_policy(path: &Path) -> Result<Policy, Unusable> {
    read_toml(path)
}

/// A span as people write it: `10s`, `2m`.
pub(crate) fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(D::Error::custom)
}

fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Unusable> {
    let text = std::fs::read_to_string(path).map_err(|error| Unusable::Unreadable { path: path.into(), error })?;
    toml::from_str(&text).map_err(|error| Unusable::Invalid { path: path.into(), error: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_names_what_it_does_not_understand() {
        let config: Config = toml::from_str(
            "role = 'ramdisk'\ngateways = ['https://g:1']\nstop-grace = '2s'\nreboot = { delay = '1m', path = '/x', program = ['/sbin/reboot', '-f'] }\nkernel-log = { file = 'kernel.log' }\n[upgrade]\nconfirm-within = '9s'\n[nvml]\nlibrary = '/x.so'\n[disks]\npoll = '1s'\n[images]\nsources = ['file:///srv/']\n[http]\nca-file = '/ca.pem'\ninsecure-origins = ['https://bmc-*']\n[grants.'diag.*']\nnvml = {}",
        )
        .expect("every key is known");
        assert!(config.policy().grants_of("diag.nvml").nvml.is_some());
        assert_eq!((config.gateways[0].to_string(), config.stop_grace), ("https://g:1".into(), Duration::from_secs(2)));
        assert_eq!((config.reboot.delay, config.reboot.program.len()), (Duration::from_mins(1), 2));
        assert_eq!(config.kernel_log, kernel_log::Source::File("kernel.log".into()));
        for wrong in [
            "rolle = 'host'",
            "role = 'router'",
            "kernel-log = 'syslog'",
            "[nvml]\nlib = ''",
            "[upgrade]\nunsigned = true",
            "[http]\ninsecure = true",
            "gateways = ['g:1']",
            "stop-grace = 5",
            "reboot = { delay = 5 }",
            "reboot = { after = '5s' }",
            "[uploads]\nca = 'x'",
        ] {
            assert!(toml::from_str::<Config>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn promise_22_the_default_configuration_grants_nothing() {
        assert_eq!(Config::default().policy().grants_of("diag.nvml"), Grants::default());
    }
}
