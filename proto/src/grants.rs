//! Capabilities with their arguments: what a manifest declares, what a node's policy grants, and what a call needs.
//!
//! Declaration and grant have one shape, [`Grants`], so that "is this granted?" is a comparison of two values and its
//! answer names exactly what is missing.
//!
//! **Invariant:** the empty value grants nothing, and [`Grants::allows`] says yes only to what a field of it states.

mod need;
mod policy;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use self::need::{Denied, Need};
pub use self::policy::{Missing, Policy};
use crate::pattern::Pattern;
use crate::quantity::Bytes;

/// A power of the node that a kind has to declare and a policy has to grant: one WIT interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is the WIT interface of its name")]
pub enum Capability {
    Inventory,
    Nvml,
    Gpus,
    System,
    Process,
    Upload,
    BlockDevices,
    Secrets,
    Upgrade,
    Files,
    Http,
}

impl Capability {
    /// Every capability of the host ABI.
    pub const ALL: [Self; 11] = [
        Self::Inventory,
        Self::Nvml,
        Self::Gpus,
        Self::System,
        Self::Process,
        Self::Upload,
        Self::BlockDevices,
        Self::Secrets,
        Self::Upgrade,
        Self::Files,
        Self::Http,
    ];

    /// The WIT interface's name, which is also the key in manifests and policies.
    pub const fn interface(self) -> &'static str {
        match self {
            Self::Inventory => "inventory",
            Self::Nvml => "nvml",
            Self::Gpus => "gpus",
            Self::System => "system",
            Self::Process => "process",
            Self::Upload => "upload",
            Self::BlockDevices => "block-devices",
            Self::Secrets => "secrets",
            Self::Upgrade => "upgrade",
            Self::Files => "files",
            Self::Http => "http",
        }
    }

    /// The capability behind a WIT interface.
    pub fn from_interface(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.interface() == name)
    }
}

/// Capabilities with their arguments. An absent one is not granted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Grants {
    /// Reading the machine's inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<Plain>,
    /// Reading NVML and the kernel's GPU errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml: Option<Plain>,
    /// Reading GPU holds, and with `reset` resetting GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
    /// Reading boot id and role, and with `reboot` rebooting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<System>,
    /// Running the listed programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Uploading one file to the command's destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Upload>,
    /// Reading disks, and with `erase` or `write` changing them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_devices: Option<BlockDevices>,
    /// Reading values of the listed secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Secrets>,
    /// Replacing the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Plain>,
    /// Reading files below the listed folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// Asking the listed HTTP servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
}

/// A capability without arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plain {}

/// Arguments of `gpus`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpus {
    /// Whether GPUs may be reset.
    #[serde(default)]
    pub reset: bool,
}

/// Arguments of `system`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Whether the node may be rebooted.
    #[serde(default)]
    pub reboot: bool,
}

/// Arguments of `process`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// What may be run.
    #[serde(default)]
    pub programs: BTreeSet<Program>,
}

/// One program with one shape of arguments; several shapes are several entries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Program {
    /// A name looked up in the node's fixed `PATH`, or an absolute path.
    pub program: String,
    /// One pattern an argument, in order; as many arguments as patterns.
    #[serde(default)]
    pub argv: Vec<Pattern>,
    /// Whether running it changes nothing, so that it needs no effect record and runs in plan mode too.
    #[serde(default)]
    pub read_only: bool,
}

/// Arguments of `upload`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Upload {
    /// The most bytes of one upload; none leaves it to the command's own cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<Bytes>,
}

/// Arguments of `block-devices`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockDevices {
    /// Paths of the devices that may be changed, as patterns.
    #[serde(default)]
    pub devices: BTreeSet<Pattern>,
    /// Whether they may be erased.
    #[serde(default)]
    pub erase: bool,
    /// Whether images may be written to them.
    #[serde(default)]
    pub write: bool,
}

/// Arguments of `secrets`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// References that may be resolved, as patterns.
    #[serde(default)]
    pub refs: BTreeSet<Pattern>,
}

/// Arguments of `files`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// Absolute paths of folders, without a slash at the end: everything below them may be read.
    #[serde(default)]
    pub folders: BTreeSet<String>,
}

/// Arguments of `http`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Whom may be asked, as patterns over origins: `https://bmc-*.site-1.example`, with the port where it is not the scheme's own.
    #[serde(default)]
    pub origins: BTreeSet<Pattern>,
    /// Whether requests may change something: all methods but GET and HEAD.
    #[serde(default)]
    pub write: bool,
    /// Secrets that the host may add to a request as credentials, as patterns over references. The kind never has them.
    #[serde(default)]
    pub credentials: BTreeSet<Pattern>,
}

impl Grants {
    /// The capabilities that are present, whatever their arguments.
    pub fn capabilities(&self) -> BTreeSet<Capability> {
        Capability::ALL.into_iter().filter(|capability| self.has(*capability)).collect()
    }

    /// Whether a capability is present, whatever its arguments.
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::Inventory => self.inventory.is_some(),
            Capability::Nvml => self.nvml.is_some(),
            Capability::Gpus => self.gpus.is_some(),
            Capability::System => self.system.is_some(),
            Capability::Process => self.process.is_some(),
            Capability::Upload => self.upload.is_some(),
            Capability::BlockDevices => self.block_devices.is_some(),
            Capability::Secrets => self.secrets.is_some(),
            Capability::Upgrade => self.upgrade.is_some(),
            Capability::Files => self.files.is_some(),
            Capability::Http => self.http.is_some(),
        }
    }

    /// What `self` states and `granted` does not cover: empty when everything is covered.
    #[must_use]
    pub fn minus(&self, granted: &Self) -> Self {
        /// Keeps what `rest` finds uncovered of a capability; a capability that is wholly absent is missing even when it
        /// asks for no argument.
        fn gap<T: Clone + PartialEq + Default>(
            asked: Option<&T>,
            granted: Option<&T>,
            rest: impl Fn(&T, &T) -> T,
        ) -> Option<T> {
            match (asked?, granted) {
                (asked, None) => Some(asked.clone()),
                (asked, Some(granted)) => Some(rest(asked, granted)).filter(|gap| *gap != T::default()),
            }
        }
        Self {
            inventory: gap(self.inventory.as_ref(), granted.inventory.as_ref(), |_, _| Plain {}),
            nvml: gap(self.nvml.as_ref(), granted.nvml.as_ref(), |_, _| Plain {}),
            gpus: gap(self.gpus.as_ref(), granted.gpus.as_ref(), |a, g| Gpus { reset: a.reset && !g.reset }),
            system: gap(self.system.as_ref(), granted.system.as_ref(), |a, g| System { reboot: a.reboot && !g.reboot }),
            process: gap(self.process.as_ref(), granted.process.as_ref(), |a, g| Process {
                programs: uncovered(&a.programs, &g.programs, Program::covers),
            }),
            upload: gap(self.upload.as_ref(), granted.upload.as_ref(), |a, g| Upload {
                max_bytes: match (a.max_bytes, g.max_bytes) {
                    (Some(asked), Some(cap)) if asked > cap => Some(asked),
                    _ => None,
                },
            }),
            block_devices: gap(self.block_devices.as_ref(), granted.block_devices.as_ref(), |a, g| BlockDevices {
                devices: uncovered(&a.devices, &g.devices, Pattern::covers),
                erase: a.erase && !g.erase,
                write: a.write && !g.write,
            }),
            secrets: gap(self.secrets.as_ref(), granted.secrets.as_ref(), |a, g| Secrets {
                refs: uncovered(&a.refs, &g.refs, Pattern::covers),
            }),
            upgrade: gap(self.upgrade.as_ref(), granted.upgrade.as_ref(), |_, _| Plain {}),
            files: gap(self.files.as_ref(), granted.files.as_ref(), |a, g| Files {
                folders: uncovered(&a.folders, &g.folders, |wide, narrow| is_within(wide, narrow)),
            }),
            http: gap(self.http.as_ref(), granted.http.as_ref(), |a, g| Http {
                origins: uncovered(&a.origins, &g.origins, Pattern::covers),
                write: a.write && !g.write,
                credentials: uncovered(&a.credentials, &g.credentials, Pattern::covers),
            }),
        }
    }

    /// What either side grants.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        fn both<T: Clone>(a: Option<&T>, b: Option<&T>, merge: impl Fn(&T, &T) -> T) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(merge(a, b)),
                (one, other) => one.or(other).cloned(),
            }
        }
        Self {
            inventory: self.inventory.or(other.inventory),
            nvml: self.nvml.or(other.nvml),
            gpus: both(self.gpus.as_ref(), other.gpus.as_ref(), |a, b| Gpus { reset: a.reset || b.reset }),
            system: both(self.system.as_ref(), other.system.as_ref(), |a, b| System { reboot: a.reboot || b.reboot }),
            process: both(self.process.as_ref(), other.process.as_ref(), |a, b| Process {
                programs: &a.programs | &b.programs,
            }),
            upload: both(self.upload.as_ref(), other.upload.as_ref(), |a, b| Upload {
                max_bytes: a.max_bytes.zip(b.max_bytes).map(|(a, b)| a.max(b)),
            }),
            block_devices: both(self.block_devices.as_ref(), other.block_devices.as_ref(), |a, b| BlockDevices {
                devices: &a.devices | &b.devices,
                erase: a.erase || b.erase,
                write: a.write || b.write,
            }),
            secrets: both(self.secrets.as_ref(), other.secrets.as_ref(), |a, b| Secrets { refs: &a.refs | &b.refs }),
            upgrade: self.upgrade.or(other.upgrade),
            files: both(self.files.as_ref(), other.files.as_ref(), |a, b| Files { folders: &a.folders | &b.folders }),
            http: both(self.http.as_ref(), other.http.as_ref(), |a, b| Http {
                origins: &a.origins | &b.origins,
                write: a.write || b.write,
                credentials: &a.credentials | &b.credentials,
            }),
        }
    }
}

impl Program {
    /// Whether a run with these arguments fits.
    pub fn matches(&self, program: &str, argv: &[String]) -> bool {
        self.program == program
            && self.argv.len() == argv.len()
            && self.argv.iter().zip(argv).all(|(pattern, argument)| pattern.matches(argument))
    }

    /// Whether every run that `narrower` allows fits here as well. A program that is read-only here does not cover one that
    /// is declared as an effect, or the other way round: the gate treats the two differently.
    fn covers(&self, narrower: &Self) -> bool {
        self.program == narrower.program
            && self.read_only == narrower.read_only
            && self.argv.len() == narrower.argv.len()
            && self.argv.iter().zip(&narrower.argv).all(|(wide, narrow)| wide.covers(narrow))
    }
}

/// Whether a path is a folder or lies below it, by its text. A path with `.`, `..` or an empty part lies nowhere.
pub(crate) fn is_within(folder: &str, path: &str) -> bool {
    let is_plain = path.starts_with('/') && path[1..].split('/').all(|part| !matches!(part, "" | "." | ".."));
    let below = if folder == "/" { Some(path) } else { path.strip_prefix(folder) };
    is_plain && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn uncovered<T: Ord + Clone>(
    asked: &BTreeSet<T>,
    granted: &BTreeSet<T>,
    covers: impl Fn(&T, &T) -> bool,
) -> BTreeSet<T> {
    asked.iter().filter(|asked| !granted.iter().any(|granted| covers(granted, asked))).cloned().collect()
}

#[cfg(test)]
mod tests;
