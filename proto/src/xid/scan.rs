//! Folds a kernel log into the conditions it tells of.
//!
//! **Invariant:** memory is bounded by [`MAX_CONDITIONS`] whatever the log holds, and reaching it is said.

use std::collections::BTreeMap;

use super::{
    action::Action,
    grammar::{Line, Xid, parse},
    pci::PciAddress,
};

/// The most distinct conditions kept. Ours: sixteen GPUs with seven MIG instances and thirty codes each stay below it.
pub const MAX_CONDITIONS: usize = 4096;

/// The most bytes kept of a message. The kernel's own limit for one record is 1024 on most builds.
const MAX_MESSAGE_BYTES: usize = 1024;

/// How long after another XID a 45 counts as its consequence. Ours: tearing down the channels of a failed GPU takes
/// seconds, and the limit on message rates can delay lines further.
const CONSEQUENCE_US: u64 = 60_000_000;

/// Lines that say the same of the same GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Where the GPU is.
    pub pci: PciAddress,
    /// The MIG GPU instance.
    pub gi: Option<u32>,
    /// The MIG compute instance.
    pub ci: Option<u32>,
    /// The XID; none for a GPU that fell off the bus without one.
    pub code: Option<u32>,
    /// What it asks for.
    pub action: Action,
    /// How many lines.
    pub count: u64,
    /// The first line's time in microseconds since boot.
    pub first_us: Option<u64>,
    /// The last line's time in microseconds since boot.
    pub last_us: Option<u64>,
    /// The last line's message.
    pub last_message: String,
}

/// What a log held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Sorted by GPU, MIG instance, code and action.
    pub conditions: Vec<Condition>,
    /// The UUIDs that the driver logged, by address.
    pub gpus: BTreeMap<PciAddress, String>,
    /// What was left out, for people.
    pub problems: Vec<String>,
}

/// What makes two lines the same. The order of the fields is the order of the findings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    pci: PciAddress,
    gi: Option<u32>,
    ci: Option<u32>,
    code: Option<u32>,
    action: Action,
}

/// Reads a log line by line.
pub struct Scanner {
    limit: usize,
    conditions: BTreeMap<Key, Condition>,
    gpus: BTreeMap<PciAddress, String>,
    /// The GPU of a message over several lines that may turn out to be its loss.
    the_gpu: Option<PciAddress>,
    beyond_limit: u64,
    unreadable: u64,
    first_unreadable: Option<String>,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// Keeps at most [`MAX_CONDITIONS`].
    pub fn new() -> Self {
        Self::with_limit(MAX_CONDITIONS)
    }

    /// Keeps at most `limit` distinct conditions, and as many UUIDs.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            conditions: BTreeMap::new(),
            gpus: BTreeMap::new(),
            the_gpu: None,
            beyond_limit: 0,
            unreadable: 0,
            first_unreadable: None,
        }
    }

    /// Takes one record of the log, oldest first, with its time in microseconds since boot. The record may hold several
    /// lines: the driver logs the loss of a GPU as three in one.
    pub fn record(&mut self, text: &str, time_us: Option<u64>) {
        for line in text.lines() {
            self.line(line, time_us);
        }
    }

    fn line(&mut self, text: &str, time_us: Option<u64>) {
        match parse(text) {
            // Lines of other parts of the kernel may come in between.
            Line::Foreign | Line::Installed => return,
            Line::TheGpu(pci) => {
                // One of the older forms has it all on one line.
                if text.contains("fallen off the bus") {
                    self.lost(pci, text, time_us);
                }
                self.the_gpu = Some(pci);
                return;
            }
            Line::FallenOff => {
                if let Some(pci) = self.the_gpu {
                    self.lost(pci, "The GPU has fallen off the bus and is not responding to commands.", time_us);
                } else {
                    self.note_unreadable(text);
                }
            }
            Line::HasFallenOff(pci) => {
                // The driver prints it beside XID 79, which says the same.
                if !self.of_gpu(pci).any(|condition| condition.code == Some(79)) {
                    self.lost(pci, text, time_us);
                }
            }
            Line::GpuAt { pci, uuid } => {
                if self.gpus.len() < self.limit || self.gpus.contains_key(&pci) {
                    self.gpus.insert(pci, uuid.to_owned());
                }
            }
            Line::Xid(xid) => self.xid(&xid, time_us),
            Line::Unreadable => self.note_unreadable(text),
            Line::Driver => {}
        }
        self.the_gpu = None;
    }

    fn xid(&mut self, xid: &Xid<'_>, time_us: Option<u64>) {
        let action = match (xid.code, xid.caused_by) {
            (45, None) => self.cause_of_45(xid.pci, time_us).unwrap_or(Action::of(xid)),
            _ => Action::of(xid),
        };
        let key = Key { pci: xid.pci, gi: xid.gi, ci: xid.ci, code: Some(xid.code), action };
        self.fold(key, xid.message, time_us);
    }

    /// Drivers before 575 do not say what caused a 45 (a channel torn down, often thousands of them). One that closely
    /// follows another XID of its GPU asks for what that one does; a solo one is a workflow.
    fn cause_of_45(&self, pci: PciAddress, time_us: Option<u64>) -> Option<Action> {
        let since = time_us?.saturating_sub(CONSEQUENCE_US);
        let causes =
            self.of_gpu(pci).filter(|other| other.code != Some(45) && other.last_us.is_some_and(|us| us >= since));
        causes.map(|other| other.action).max()
    }

    fn lost(&mut self, pci: PciAddress, message: &str, time_us: Option<u64>) {
        // As for XID 79, which says the same where the driver gets to print it.
        let key = Key { pci, gi: None, ci: None, code: None, action: Action::of_code(79) };
        self.fold(key, message.trim(), time_us);
    }

    fn of_gpu(&self, pci: PciAddress) -> impl Iterator<Item = &Condition> {
        let first = Key { pci, gi: None, ci: None, code: None, action: Action::Ignore };
        self.conditions.range(first..).map(|(_, condition)| condition).take_while(move |condition| condition.pci == pci)
    }

    fn fold(&mut self, key: Key, message: &str, time_us: Option<u64>) {
        if self.conditions.len() >= self.limit && !self.conditions.contains_key(&key) {
            self.beyond_limit += 1;
            return;
        }
        let condition = self.conditions.entry(key).or_insert_with(|| Condition {
            pci: key.pci,
            gi: key.gi,
            ci: key.ci,
            code: key.code,
            action: key.action,
            count: 0,
            first_us: None,
            last_us: None,
            last_message: String::new(),
        });
        condition.count += 1;
        condition.first_us = condition.first_us.or(time_us);
        condition.last_us = time_us.or(condition.last_us);
        truncated(message).clone_into(&mut condition.last_message);
    }

    fn note_unreadable(&mut self, text: &str) {
        self.unreadable += 1;
        self.first_unreadable.get_or_insert_with(|| truncated(text.trim()).to_owned());
    }

    /// What the log held.
    pub fn finish(self) -> Findings {
        let mut problems = Vec::new();
        if self.beyond_limit > 0 {
            let (limit, lines) = (self.limit, self.beyond_limit);
            problems
                .push(format!("more than {limit} distinct GPU errors: {lines} lines about further ones were left out"));
        }
        if let Some(first) = self.first_unreadable {
            problems.push(format!(
                "{} lines look like GPU errors but could not be read, the first: {first}",
                self.unreadable
            ));
        }
        Findings { conditions: self.conditions.into_values().collect(), gpus: self.gpus, problems }
    }
}

/// At most [`MAX_MESSAGE_BYTES`], cut between characters.
fn truncated(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_MESSAGE_BYTES)]
}
