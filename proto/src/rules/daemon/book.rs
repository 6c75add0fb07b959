//! What a journal holds: records in the order they were made durable, and what they say of each command.
//!
//! **Invariant:** a journal is the sum of its records. Reading them in order gives what was known when the last was saved.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

use super::Intent;
use crate::id::CommandId;
use crate::manifest::{Lane, Trait};
use crate::wire::{Deliver, Update};

/// One fact about a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// It was accepted.
    Accepted {
        /// The command, whole.
        deliver: Box<Deliver>,
        /// Its kind's lane.
        lane: Lane,
        /// Its kind's traits.
        traits: BTreeSet<Trait>,
        /// The boot in which it was accepted.
        boot: String,
        /// When, server time, milliseconds since the Unix epoch.
        at_ms: u64,
    },
    /// It was settled without being accepted: refused, or called off before.
    Refused {
        /// The command, whole.
        deliver: Box<Deliver>,
        /// The answer, exactly as it is reported.
        update: Update,
    },
    /// It is about to run.
    Started {
        /// The command.
        command: CommandId,
        /// 1 on the first start.
        attempt: u32,
        /// The boot in which it starts.
        boot: String,
    },
    /// An effect is about to be performed, or its outcome is known; the later record of one effect counts.
    Effect {
        /// The command.
        command: CommandId,
        /// The attempt.
        attempt: u32,
        /// Its place among the attempt's effects.
        seq: u32,
        /// The effect, as JSON.
        effect: Value,
    },
    /// Its run is over and asks for what ends the daemon.
    Intended {
        /// The command.
        command: CommandId,
        /// What it asks for.
        intent: Intent,
        /// The run's own result.
        result: Vec<u8>,
        /// When, server time, milliseconds since the Unix epoch.
        at_ms: u64,
    },
    /// It was called off while it ran.
    CancelRequested {
        /// The command.
        command: CommandId,
    },
    /// It is over.
    Finished {
        /// The result, exactly as it is reported.
        update: Update,
    },
    /// The control plane has its result.
    Acknowledged {
        /// The command.
        command: CommandId,
    },
    /// It is settled for good and can come no more, and nothing more is kept of it.
    Forgotten {
        /// The command.
        command: CommandId,
    },
    /// Of commands whose time was over by then nothing is known any more: what comes with such a time is a replay.
    ReplayFloor {
        /// The latest `not_after_ms` that was forgotten.
        not_after_ms: u64,
    },
}

impl Record {
    /// Whose fact it is; the nil id for what is nobody's.
    pub fn command(&self) -> CommandId {
        match self {
            Self::Accepted { deliver, .. } | Self::Refused { deliver, .. } => deliver.command,
            Self::Finished { update } => update.command,
            Self::ReplayFloor { .. } => CommandId::from_uuid(Uuid::nil()),
            Self::Started { command, .. }
            | Self::Effect { command, .. }
            | Self::Intended { command, .. }
            | Self::CancelRequested { command }
            | Self::Acknowledged { command }
            | Self::Forgotten { command } => *command,
        }
    }
}

/// What a journal knows of one command.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The command.
    pub deliver: Deliver,
    /// Its kind's lane.
    pub lane: Lane,
    /// Its kind's traits.
    pub traits: BTreeSet<Trait>,
    /// The boot in which it was started last, or accepted if it never was.
    pub boot: String,
    /// How often it was started.
    pub attempt: u32,
    /// Whether it was called off.
    pub cancel_requested: bool,
    /// The effects of all attempts as JSON, in order.
    pub effects: Vec<Value>,
    /// What it asks for that ends the daemon, and its run's own result.
    pub intended: Option<(Intent, Vec<u8>)>,
    /// Its result.
    pub update: Option<Update>,
    /// Whether the control plane has it.
    pub acknowledged: bool,
    /// When it was accepted, server time, milliseconds since the Unix epoch; 0 if it never was.
    pub accepted_at_ms: u64,
}

/// A record that does not follow from those before it: something was lost in between.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{command} has a record of a command that was never taken")]
pub struct Inconsistent {
    /// The command.
    pub command: CommandId,
}

/// A journal's contents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Book {
    replay_floor_ms: u64,
    entries: BTreeMap<CommandId, Page>,
}

#[derive(Debug, Clone, PartialEq)]
struct Page {
    entry: Entry,
    /// Attempt and place of each of the entry's effects.
    places: Vec<(u32, u32)>,
}

impl Book {
    /// Reads records in their order.
    pub fn read(records: impl IntoIterator<Item = Record>) -> Result<Self, Inconsistent> {
        let mut book = Self::default();
        for record in records {
            book.add(record)?;
        }
        Ok(book)
    }

    /// Adds one.
    pub fn add(&mut self, record: Record) -> Result<(), Inconsistent> {
        let command = record.command();
        match record {
            Record::Accepted { deliver, lane, traits, boot, at_ms } => {
                let mut page = Page::new(*deliver, lane, traits, boot);
                page.entry.accepted_at_ms = at_ms;
                self.entries.insert(command, page);
            }
            Record::Refused { deliver, update } => {
                let mut page = Page::new(*deliver, Lane::Control, BTreeSet::new(), String::new());
                page.entry.update = Some(update);
                self.entries.insert(command, page);
            }
            Record::Started { attempt, boot, .. } => {
                let page = self.page(command)?;
                page.entry.attempt = attempt;
                page.entry.boot = boot;
            }
            Record::Effect { attempt, seq, effect, .. } => {
                // Effects are written beside the other records, so one may come after its command is forgotten.
                let Some(page) = self.entries.get_mut(&command) else { return Ok(()) };
                if let Some(known) = page.places.iter().position(|place| *place == (attempt, seq)) {
                    page.entry.effects[known] = effect;
                } else {
                    page.places.push((attempt, seq));
                    page.entry.effects.push(effect);
                }
            }
            Record::Intended { intent, result, .. } => self.page(command)?.entry.intended = Some((intent, result)),
            Record::CancelRequested { .. } => self.page(command)?.entry.cancel_requested = true,
            Record::Finished { update } => self.page(command)?.entry.update = Some(update),
            Record::Acknowledged { .. } => self.page(command)?.entry.acknowledged = true,
            Record::Forgotten { .. } => drop(self.entries.remove(&command)),
            Record::ReplayFloor { not_after_ms } => self.replay_floor_ms = self.replay_floor_ms.max(not_after_ms),
        }
        Ok(())
    }

    fn page(&mut self, command: CommandId) -> Result<&mut Page, Inconsistent> {
        self.entries.get_mut(&command).ok_or(Inconsistent { command })
    }

    /// What it knows of one command.
    pub fn find(&self, command: CommandId) -> Option<&Entry> {
        self.entries.get(&command).map(|page| &page.entry)
    }

    /// The latest `not_after_ms` that was forgotten; 0 for none.
    pub fn replay_floor_ms(&self) -> u64 {
        self.replay_floor_ms
    }

    /// The commands in seq order.
    pub fn into_entries(self) -> Vec<Entry> {
        let mut entries: Vec<_> = self.entries.into_values().map(|page| page.entry).collect();
        entries.sort_by_key(|entry| entry.deliver.seq);
        entries
    }
}

impl Page {
    fn new(deliver: Deliver, lane: Lane, traits: BTreeSet<Trait>, boot: String) -> Self {
        let entry = Entry {
            deliver,
            lane,
            traits,
            boot,
            attempt: 0,
            cancel_requested: false,
            effects: Vec::new(),
            intended: None,
            update: None,
            acknowledged: false,
            accepted_at_ms: 0,
        };
        Self { entry, places: Vec::new() }
    }
}
