//! The document that `better-compute:host/nvml.xids` answers.
//!
//! **Invariant:** its fields are those that the WIT documents; adding one is a change of the interface.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{action::Action, pci::PciAddress, scan::Findings};

/// The GPU errors that the kernel logged since this boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// False when the start of this boot's log is gone, so that errors may be missing.
    pub complete: bool,
    /// Which log was read: `journald`, `kmsg` or `file`.
    pub source: String,
    /// What could not be read, for people.
    pub problems: Vec<String>,
    /// One per GPU, MIG instance, code and action, in that order.
    pub events: Vec<Event>,
}

/// Log lines that say the same of the same GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The XID; none for a GPU that fell off the bus without one.
    pub code: Option<u32>,
    /// Where the GPU is.
    pub pci: PciAddress,
    /// `GPU-<uuid>`; none where neither NVML nor the log tells.
    pub gpu: Option<String>,
    /// The MIG GPU instance.
    pub gi: Option<u32>,
    /// The MIG compute instance.
    pub ci: Option<u32>,
    /// How many lines. The driver limits their rate: a sign of repetition, not a measure.
    pub count: u64,
    /// What it asks for.
    pub action: Action,
    /// The last line's message.
    pub last_message: String,
    /// When the first was logged, in milliseconds since boot.
    pub first_ms: Option<u64>,
    /// When the last was logged, in milliseconds since boot.
    pub last_ms: Option<u64>,
}

impl Report {
    /// Puts the document together. `uuid_of` names the GPU at an address of the form `dddd:bb:dd`; where it cannot (NVML
    /// does not list a lost GPU), the log's own word counts. `problems` precede those of the scan.
    pub fn new(
        findings: Findings,
        source: &str,
        complete: bool,
        mut problems: Vec<String>,
        uuid_of: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let Findings { conditions, gpus, problems: scan_problems } = findings;
        problems.extend(scan_problems);
        let events = conditions
            .into_iter()
            .map(|condition| Event {
                code: condition.code,
                pci: condition.pci,
                gpu: uuid_of(&condition.pci.to_string()).or_else(|| gpus.get(&condition.pci).cloned()),
                gi: condition.gi,
                ci: condition.ci,
                count: condition.count,
                action: condition.action,
                last_message: condition.last_message,
                first_ms: condition.first_us.map(|us| us / 1000),
                last_ms: condition.last_us.map(|us| us / 1000),
            })
            .collect();
        Self { complete, source: source.to_owned(), problems, events }
    }

    /// When the last line about a GPU was logged, in milliseconds since boot; `None` where there is none with a time.
    pub fn last_ms_of(&self, gpu: &str) -> Option<u64> {
        self.events.iter().filter(|event| event.gpu.as_deref() == Some(gpu)).filter_map(|event| event.last_ms).max()
    }

    /// Leaves out what was logged of GPUs up to the reset that cured them: `reset_ms` answers the time of the last line before it,
    /// in milliseconds since boot. Lines without a time stay: nobody knows when they were logged. What is left out is said among
    /// the problems.
    pub fn leave_out(&mut self, reset_ms: &dyn Fn(&str) -> Option<u64>) {
        let mut cured: BTreeMap<String, u64> = BTreeMap::new();
        self.events.retain(|event| {
            let Some(gpu) = &event.gpu else { return true };
            let is_before = event.last_ms.zip(reset_ms(gpu)).is_some_and(|(last_ms, reset_ms)| last_ms <= reset_ms);
            if is_before {
                *cured.entry(gpu.clone()).or_default() += 1;
            }
            !is_before
        });
        self.problems.extend(cured.into_iter().map(|(gpu, count)| {
            format!("{gpu} was reset and is healthy since: errors of {count} kinds from before do not count any more")
        }));
    }
}
