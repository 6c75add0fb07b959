//! A command that the daemon has: where it stands, and what is said of it.
//!
//! **Invariant:** whatever is told of a command follows from where it stands, so that a duplicate gets the answer of the first.

use serde_json::{Value, json};

use super::glass::Glass;
use super::{Entry, Frame, Fulfilment, Record, Start, Step, World};
use crate::id::CommandId;
use crate::rules::accept::Refusal;
use crate::rules::lane::PerLane;
use crate::wire::{Report, Update};

/// Where a journaled command stands in this process.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    Running,
    /// Its run is over, and this process carries out what it asked for. It cannot be called off any more.
    Ending {
        /// When it asked, server time, milliseconds since the Unix epoch.
        since_ms: u64,
    },
    /// A restart cut it off, and it may run again. It does when it is delivered again, and not before: only the control plane
    /// knows whether it was called off, ran out of time or was meant for an earlier life meanwhile.
    CutOff(Box<Entry>),
    /// The control plane settles it by itself, or has: it does not run again.
    AwaitingSettlement,
    /// It asked for the version that runs now, which is on probation.
    OnTrial(Box<Entry>),
    Settled {
        update: Update,
        acknowledged: bool,
        said_ms: u64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub(super) seq: u64,
    pub(super) standing: Standing,
    pub(super) cancel_requested: bool,
    /// Whether its kind may end the daemon.
    pub(super) may_end: bool,
    /// Until when it may be delivered: before that it is not forgotten, or it could be run once more.
    pub(super) not_after_ms: u64,
    /// Set for one that was accepted, destructive and outside a batch.
    pub(super) glass: Option<Glass>,
}

impl Held {
    /// Starts the next attempt of what a restart cut off, as soon as there is a worker. Past `not_after` none begins, since it
    /// could not be over when the control plane gives it up: this is its end then.
    pub(super) fn run_again(
        &mut self,
        boot: &str,
        free: PerLane,
        world: &World<'_>,
        step: &mut Step,
    ) -> Option<Update> {
        let Standing::CutOff(entry) = &self.standing else { return None };
        if world.now_ms >= entry.deliver.not_after_ms {
            return Some(interrupted(entry, world.now_ms));
        }
        if free.get(entry.lane) == 0 {
            return None;
        }
        let (deliver, lane, attempt) = (entry.deliver.clone(), entry.lane, entry.attempt + 1);
        step.save.push(Record::Started { command: deliver.command, attempt, boot: boot.to_owned() });
        step.start.push(Start { deliver, lane, attempt });
        self.standing = Standing::Running;
        None
    }

    /// What a duplicate is told.
    pub(super) fn answer(&mut self, command: CommandId, now_ms: u64, step: &mut Step) {
        match &mut self.standing {
            Standing::Running | Standing::Ending { .. } => step.say(&update(command, Report::Running, "", now_ms)),
            Standing::CutOff(_) | Standing::AwaitingSettlement | Standing::OnTrial(_) => {
                step.send.push(Frame::Ack(command));
            }
            Standing::Settled { update, said_ms, .. } => {
                *said_ms = now_ms;
                step.say(update);
            }
        }
    }
}

/// Refuses a command and leaves no trace of it: the next delivery is decided anew.
pub(super) fn deny(command: CommandId, refusal: Refusal, why: &str, now_ms: u64, step: &mut Step) {
    let update = update(command, Report::Rejected, refusal.code(), now_ms);
    step.send.push(Frame::Denied(with_message(update, why)));
}

pub(super) fn with_message(mut update: Update, why: &str) -> Update {
    if !why.is_empty() {
        update.result = json!({ "message": why }).to_string().into_bytes();
    }
    update
}

pub(super) fn update(command: CommandId, report: Report, reason: &str, at_ms: u64) -> Update {
    Update { command, report, reason: reason.to_owned(), result: Vec::new(), at_ms, node_sig: Vec::new() }
}

/// The end of a command whose intent is not carried out, with the result of its run: what that did has happened.
pub(super) fn not_carried_out(
    command: CommandId,
    report: Report,
    code: &str,
    why: &str,
    run: &[u8],
    now_ms: u64,
) -> Update {
    let result: Value = serde_json::from_slice(run).unwrap_or_default();
    let document = json!({ "outcome": code, "message": why, "result": result });
    Update { result: document.to_string().into_bytes(), ..update(command, report, code, now_ms) }
}

/// The end of a command whose intent came true, or did not.
pub(super) fn fulfilled(entry: &Entry, fulfilment: Option<Fulfilment>, now_ms: u64) -> Update {
    let command = entry.deliver.command;
    match (fulfilment, &entry.intended) {
        (Some(Fulfilment::Done), Some((_, result))) => {
            Update { result: result.clone(), ..update(command, Report::Succeeded, "", now_ms) }
        }
        (Some(Fulfilment::Not(reason)), _) => {
            let document = json!({ "outcome": reason, "effects": entry.effects });
            Update { result: document.to_string().into_bytes(), ..update(command, Report::Failed, reason, now_ms) }
        }
        _ => interrupted(entry, now_ms),
    }
}

/// The end of a command that a restart cut off: called off if that was wanted and nothing had happened yet; else failed, with
/// the effects that it is known to have begun.
pub(super) fn interrupted(entry: &Entry, now_ms: u64) -> Update {
    let command = entry.deliver.command;
    if entry.cancel_requested && entry.effects.is_empty() {
        return update(command, Report::Cancelled, "cancelled", now_ms);
    }
    let effects = json!({ "outcome": "interrupted", "attempt": entry.attempt, "effects": entry.effects });
    Update { result: effects.to_string().into_bytes(), ..update(command, Report::Failed, "interrupted", now_ms) }
}
