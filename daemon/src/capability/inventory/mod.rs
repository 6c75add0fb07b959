//! What the machine is made of, from sysfs, procfs, DMI and NVML.
//!
//! One file per section. A section is collected when it is first asked for and kept until somebody asks for it anew.
//!
//! **Invariant:** a fact that could not be read is `null` and has an entry in its section's problems: a default would look
//! like a fact.

mod cpu;
mod disks;
mod facts;
mod gpus;
mod memory;
mod nics;
mod os;
mod system;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use bc_runtime::capability::{Answer, Error, Inventory, Nvml};
use serde::Serialize;
use serde_json::Value;

use facts::{Facts, Root};

pub(in crate::capability) use self::disks::vital_product_serial;

/// The sections, in the order they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    System,
    Os,
    Cpu,
    Memory,
    Disks,
    Nics,
    Gpus,
}

impl Section {
    const ALL: [Self; 7] = [Self::System, Self::Os, Self::Cpu, Self::Memory, Self::Disks, Self::Nics, Self::Gpus];

    fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Os => "os",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Disks => "disks",
            Self::Nics => "nics",
            Self::Gpus => "gpus",
        }
    }

    /// Reads the names of a request; none of them means all.
    fn parse(names: &[String]) -> Answer<Vec<Self>> {
        if names.is_empty() {
            return Ok(Self::ALL.to_vec());
        }
        let known = || Self::ALL.map(Self::name).join(", ");
        let find = |name: &String| {
            let found = Self::ALL.into_iter().find(|section| section.name() == name);
            found.ok_or_else(|| Error::new("not-found", format!("no section `{name}`; there are {}", known())))
        };
        names.iter().map(find).collect()
    }
}

/// One section as it was collected.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    /// Milliseconds since 1970.
    collected_at_ms: u64,
    data: Value,
    problems: Vec<String>,
}

/// The inventory of the machine whose file systems lie under a root.
pub struct MachineInventory {
    root: Root,
    nvml: Option<Arc<dyn Nvml>>,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    collected: Mutex<BTreeMap<Section, Kept>>,
    /// Who the GPUs were while NVML could say.
    known_gpus: Mutex<gpus::Known>,
}

impl MachineInventory {
    /// Collects nothing yet. `root` is `/`, or a directory with the same files in it (`proc`, `sys`, `etc`); `now_ms` tells
    /// milliseconds since 1970.
    pub fn new(root: PathBuf, nvml: Option<Arc<dyn Nvml>>, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            root: Root::new(root),
            nvml,
            now_ms: Box::new(now_ms),
            collected: Mutex::default(),
            known_gpus: Mutex::default(),
        }
    }

    fn collect(&self, section: Section) -> Kept {
        let mut facts = Facts::new(&self.root);
        let data = match section {
            Section::System => json(&system::collect(&mut facts)),
            Section::Os => json(&os::collect(&mut facts)),
            Section::Cpu => json(&cpu::collect(&mut facts)),
            Section::Memory => json(&memory::collect(&mut facts)),
            Section::Disks => json(&disks::collect(&mut facts)),
            Section::Nics => json(&nics::collect(&mut facts)),
            Section::Gpus => json(&gpus::collect(&mut facts, self.nvml.as_deref(), &self.known_gpus)),
        };
        Kept { collected_at_ms: (self.now_ms)(), data, problems: facts.into_problems() }
    }

    /// The lock is not held while collecting: a driver that hangs may only cost the call that asked it.
    fn answer(&self, names: &[String], anew: bool) -> Answer<String> {
        let mut document = BTreeMap::new();
        for section in Section::parse(names)? {
            let kept = self.collected.lock().unwrap_or_else(PoisonError::into_inner).get(&section).cloned();
            let collected = match kept {
                Some(kept) if !anew => kept,
                _ => {
                    let collected = self.collect(section);
                    let mut all = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
                    all.insert(section, collected.clone());
                    collected
                }
            };
            document.insert(section.name(), collected);
        }
        Ok(json(&document).to_string())
    }
}

impl Inventory for MachineInventory {
    fn sections(&self) -> Vec<String> {
        Section::ALL.map(|section| section.name().to_owned()).to_vec()
    }

    fn collected(&self, sections: &[String]) -> Answer<String> {
        self.answer(sections, false)
    }

    fn rescan(&self, sections: &[String]) -> Answer<String> {
        self.answer(sections, true)
    }
}

fn json(data: &impl Serialize) -> Value {
    serde_json::to_value(data).expect("the sections have only string keys and finite numbers")
}

#[cfg(test)]
mod tests;
