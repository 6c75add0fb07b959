//! May this component be loaded here? imports ⊆ manifest ⊆ policy, each obstacle in words with its remedy.
//!
//! **Invariant:** a component is admitted only when nothing stands in its way; all obstacles are named, not the first alone.

use std::collections::BTreeSet;
use std::fmt;

use semver::Version;

use crate::abi::{self, Import};
use crate::grants::{Capability, Missing, Policy};
use crate::manifest::{Manifest, Role};

/// What a node is and offers, as far as admission goes.
#[derive(Debug, Clone)]
pub struct Site<'a> {
    /// The role it has now.
    pub role: Role,
    /// What its operator grants.
    pub policy: &'a Policy,
    /// The capabilities that stand behind its host ABI at all.
    pub offers: &'a BTreeSet<Capability>,
}

/// One reason not to load a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It does not export what a kind exports.
    NoCommandExport,
    /// It imports a capability that its manifest does not declare.
    NotDeclared(Capability),
    /// It imports from a newer host ABI.
    NeedsNewer {
        /// The import.
        import: String,
        /// The host ABI that has it.
        version: Version,
    },
    /// It imports what no node provides.
    Foreign(String),
    /// The policy does not grant what it declares.
    NotGranted(Missing),
    /// This node has nothing behind a capability.
    NotOffered(Capability),
    /// It is not meant for this node's role.
    WrongRole {
        /// The node's.
        role: Role,
        /// The kind's.
        roles: BTreeSet<Role>,
    },
}

/// Obstacles that lie in the component itself, wherever it is loaded.
pub fn faults(manifest: &Manifest, imports: &BTreeSet<String>, exports: &BTreeSet<String>) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if !exports.contains(abi::COMMAND_EXPORT) {
        found.push(Obstacle::NoCommandExport);
    }
    found.extend(imports.iter().filter_map(|import| match abi::classify(import) {
        Import::Ambient => None,
        Import::Capability(capability) => {
            (!manifest.capabilities.has(capability)).then_some(Obstacle::NotDeclared(capability))
        }
        Import::NewerHost(version) => Some(Obstacle::NeedsNewer { import: import.clone(), version }),
        Import::Foreign => Some(Obstacle::Foreign(import.clone())),
    }));
    found
}

/// Obstacles on one node.
pub fn obstacles(
    manifest: &Manifest,
    imports: &BTreeSet<String>,
    exports: &BTreeSet<String>,
    site: &Site<'_>,
) -> Vec<Obstacle> {
    let mut found = faults(manifest, imports, exports);
    if !manifest.roles.contains(&site.role) {
        found.push(Obstacle::WrongRole { role: site.role, roles: manifest.roles.clone() });
    }
    if let Err(missing) = site.policy.admit(&manifest.name, &manifest.capabilities) {
        found.push(Obstacle::NotGranted(*missing));
    }
    found.extend(manifest.capabilities.capabilities().difference(site.offers).copied().map(Obstacle::NotOffered));
    found
}

impl Obstacle {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::NoCommandExport => {
                format!("export `{}`; in Rust, `better_compute_sdk::export!`", abi::COMMAND_EXPORT)
            }
            Self::NotDeclared(capability) => {
                format!("declare it in kind.toml as [capabilities.{}], or do not use it", capability.interface())
            }
            Self::NeedsNewer { version, .. } => {
                format!(
                    "run it on nodes with bcd ≥ {}.{}, or build it against an older host package",
                    version.major, version.minor
                )
            }
            Self::Foreign(_) => {
                "build it for wasm32-unknown-unknown against wit/host, and use its capabilities instead".to_owned()
            }
            Self::NotGranted(missing) => {
                format!("to grant it, add to the node's policy:\n{}", missing.as_toml().trim_end())
            }
            Self::NotOffered(_) => "run it on a node that offers it".to_owned(),
            Self::WrongRole { .. } => "run it on a node of such a role, or widen `roles` in kind.toml".to_owned(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommandExport => write!(f, "the component does not export `{}`", abi::COMMAND_EXPORT),
            Self::NotDeclared(capability) => {
                write!(f, "it imports `{}`, which its manifest does not declare", abi::import_name(*capability))
            }
            Self::NeedsNewer { import, version } => {
                write!(
                    f,
                    "it imports `{import}`: needs bcd ≥ {}.{}, this is {}",
                    version.major,
                    version.minor,
                    abi::HOST_ABI
                )
            }
            Self::Foreign(import) => write!(f, "it imports `{import}`, which no node provides"),
            Self::NotGranted(missing) => write!(f, "not granted: {missing}"),
            Self::NotOffered(capability) => write!(f, "this node has nothing behind `{}`", capability.interface()),
            Self::WrongRole { role, roles } => {
                write!(f, "it is for the roles {}, this node is a {role}", words(roles))
            }
        }
    }
}

fn words(roles: &BTreeSet<Role>) -> String {
    roles.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn manifest(capabilities: &str) -> Manifest {
        let text = format!(
            "name = 'metal.disk.wipe'\nversion = '1.0.0'\nsummary = 'x'\nmodule = 'metal'\nlane = 'control'\n\
             timeout = '1m'\nroles = ['ramdisk']\npayload = {{ type = 'object' }}\nresult = {{}}\n{capabilities}"
        );
        Manifest::from_toml(&text).expect("the test's manifest is right")
    }

    #[test]
    fn promise_21_a_link_failure_lists_every_missing_import_in_words() {
        let manifest =
            manifest("[capabilities.nvml]\n[capabilities.block-devices]\nerase = true\ndevices = ['/dev/nvme*']");
        let imports = names(&[
            "better-compute:host/log@1.0.0",
            "better-compute:host/nvml@1.0.0",
            "better-compute:host/block-devices@1.0.0",
            "better-compute:host/gpus@1.0.0",
            "better-compute:host/fabric@1.2.0",
            "wasi:sockets/tcp@0.2.3",
        ]);
        let policy = Policy::from_toml("[grants.'metal.*']\nnvml = {}\nblock-devices = {}").expect("a policy");
        let site = Site { role: Role::Host, policy: &policy, offers: &BTreeSet::from([Capability::Nvml]) };
        let found = obstacles(&manifest, &imports, &names(&["run"]), &site);
        insta::assert_snapshot!(found.iter().map(|o| format!("{o}\n  → {}\n", o.remedy())).collect::<String>());
    }

    #[test]
    fn a_component_within_its_grants_is_admitted() {
        let manifest = manifest("[capabilities.nvml]");
        let policy = Policy::from_toml("[grants.'metal.disk.wipe']\nnvml = {}").expect("a policy");
        let site = Site { role: Role::Ramdisk, policy: &policy, offers: &BTreeSet::from([Capability::Nvml]) };
        let imports = names(&["better-compute:kind/types@1.0.0", "better-compute:host/nvml@1.0.0"]);
        assert_eq!(obstacles(&manifest, &imports, &names(&[abi::COMMAND_EXPORT]), &site), []);
    }
}
