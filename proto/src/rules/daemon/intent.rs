//! What a run asks for that ends the daemon: done once its result is durable, by the daemon and not by the run.
//!
//! **Invariant:** an intent is carried out at most once: the process that wrote it down does it, and no later one. A switch is done
//! only when the version that it brought was confirmed: one that does not stay leaves no success behind.

use serde::{Deserialize, Serialize};

use super::held::{Held, Standing, not_carried_out};
use super::{Core, Record, Step, World};
use crate::id::CommandId;
use crate::rules::lane::PerLane;
use crate::wire::Report;

/// How long a process that is about to end takes no new runs, in milliseconds. A reboot is some seconds off, and then systemd gives
/// what runs 90 seconds to stop (`DefaultTimeoutStopSec`). What has not come by then may never come: the node serves again, and the
/// command ends by its timeout.
pub(super) const HOLD_MS: u64 = 120_000;

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

impl Core {
    /// The workers that may be taken: none while the daemon is about to end, since what starts then would be cut off. The gateway
    /// puts back what comes meanwhile.
    pub(super) fn free(&self, world: &World<'_>, step: &Step) -> PerLane {
        if self.is_ending(world.now_ms) {
            return PerLane::default();
        }
        world.free.free(PerLane::count(step.start.iter().map(|start| start.lane)))
    }

    /// Whether this process is about to end, so that it takes no new runs.
    pub fn is_ending(&self, now_ms: u64) -> bool {
        self.ending(now_ms).is_some()
    }

    /// The command that is about to end this process, for as long as that can be expected.
    fn ending(&self, now_ms: u64) -> Option<CommandId> {
        let is_ending = |held: &Held| matches!(held.standing, Standing::Ending { since_ms } if now_ms < since_ms.saturating_add(HOLD_MS));
        self.held.iter().find(|(_, held)| is_ending(held)).map(|(command, _)| *command)
    }

    /// Nothing is reported: the command goes on until the intent has come true, or cannot any more. It can no longer be called off.
    /// Where it is not to be carried out, this is the command's end.
    pub(super) fn intends(&mut self, command: CommandId, intent: Intent, result: Vec<u8>, at_ms: u64, step: &mut Step) {
        let other = self.ending(at_ms);
        let Some(held) = self.held.get_mut(&command).filter(|held| held.standing == Standing::Running) else { return };
        let refused = if held.cancel_requested {
            Some((Report::Cancelled, "cancelled", "it was called off before what it asked for was done".to_owned()))
        // Another version is no new boot: the kind's trait would have a power cut read as its success.
        } else if !held.may_end && !matches!(intent, Intent::Switch { .. }) {
            Some((
                Report::Failed,
                "not-self-terminating",
                "only a kind with the trait `self-terminating` may end the daemon".to_owned(),
            ))
        } else {
            other.map(|other| (Report::Failed, "already-ending", format!("{other} is about to end the daemon already")))
        };
        if let Some((report, code, why)) = refused {
            return self.finished(not_carried_out(command, report, code, &why, &result, at_ms), step);
        }
        held.standing = Standing::Ending { since_ms: at_ms };
        step.save.push(Record::Intended { command, intent: intent.clone(), result, at_ms });
        step.intend.push((command, intent));
    }
}
