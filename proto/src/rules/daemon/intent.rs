//! What a run asks for that ends the daemon: done once its result is durable, by the daemon and not by the run.
//!
//! **Invariant:** an intent is carried out at most once: the process that wrote it down does it, and no later one. A switch is done
//! only when the version that it brought was confirmed: one that does not stay leaves no success behind.

use serde::{Deserialize, Serialize};

/// A terminal intent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "intent")]
pub enum Intent {
    /// To boot the machine anew. The next boot settles the command.
    Reboot {
        /// Why, for the machine's own log.
        reason: String,
    },
    /// To go on as another version of the daemon. That version's first word settles the command.
    Switch {
        /// The version, semver.
        version: String,
    },
}

/// What the process is that finds an intent in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct After<'a> {
    /// Whether the machine still runs in the boot in which it was written down.
    pub same_boot: bool,
    /// The version that runs now, semver.
    pub version: &'a str,
    /// Whether that version is on probation: the one before may come back.
    pub on_trial: bool,
}

/// What became of an intent, by the process that comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fulfilment {
    /// It was done: the run's own result counts.
    Done,
    /// It was done, and may be undone: it counts when this process is confirmed.
    Trial,
    /// It was not, and will not be: why, as a stable code.
    Not(&'static str),
    /// The control plane settles it: by the new boot, or when its time is over.
    Open,
}

impl Intent {
    /// Decides what became of it.
    pub fn fulfilment(&self, after: After<'_>) -> Fulfilment {
        match self {
            // The boot that was asked for may still come.
            Self::Reboot { .. } => Fulfilment::Open,
            Self::Switch { version } if version == after.version && after.on_trial => Fulfilment::Trial,
            Self::Switch { version } if version == after.version => Fulfilment::Done,
            // The one that was to come did not stay, or never started.
            Self::Switch { .. } => Fulfilment::Not("rolled-back"),
        }
    }
}
