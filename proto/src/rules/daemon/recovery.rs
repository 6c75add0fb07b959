//! What becomes of a journal's entries in a process that comes after.
//!
//! **Invariant:** nothing starts in here: what may run again waits until it is delivered again.

use super::glass::Glass;
use super::held::{Held, Standing, fulfilled, interrupted};
use super::{After, Core, Entry, Fulfilment, MAX_ATTEMPTS, Record, Step};
use crate::manifest::Trait;
use crate::rules::resume::{self, Journaled, Recovery};

impl Core {
    pub(super) fn recover(&mut self, entry: Entry, on_trial: bool, now_ms: u64, step: &mut Step) {
        let (command, seq, cancel_requested) = (entry.deliver.command, entry.deliver.seq, entry.cancel_requested);
        let (not_after_ms, may_end) = (entry.deliver.not_after_ms, entry.traits.contains(&Trait::SelfTerminating));
        let glass = Glass::of(&entry.deliver, &entry.traits, entry.accepted_at_ms);
        let journaled = match (&entry.update, entry.attempt) {
            (Some(_), _) => Journaled::Finished,
            (None, 0) => Journaled::Accepted,
            (None, _) => Journaled::Started,
        };
        let same_boot = entry.boot == self.identity.boot;
        let after = After { same_boot, version: &self.identity.version, on_trial };
        let fulfilment = entry.intended.as_ref().filter(|_| entry.update.is_none()).map(|it| it.0.fulfilment(after));
        let recovery = match fulfilment {
            None => resume::recover(journaled, &entry.traits, same_boot),
            Some(Fulfilment::Open | Fulfilment::Trial) => Recovery::AwaitSettlement,
            Some(Fulfilment::Done | Fulfilment::Not(_)) => Recovery::Report,
        };
        let standing = match recovery {
            Recovery::Report if entry.update.is_none() => {
                let update = fulfilled(&entry, fulfilment, now_ms);
                step.save.push(Record::Finished { update: update.clone() });
                Standing::Settled { update, acknowledged: false, said_ms: 0 }
            }
            Recovery::Report => match entry.update {
                Some(update) => Standing::Settled { update, acknowledged: entry.acknowledged, said_ms: 0 },
                None => unreachable!("only what is finished is reported"),
            },
            Recovery::AwaitSettlement if fulfilment == Some(Fulfilment::Trial) => Standing::OnTrial(Box::new(entry)),
            Recovery::AwaitSettlement => Standing::AwaitingSettlement,
            Recovery::Run if !cancel_requested && entry.attempt < MAX_ATTEMPTS => Standing::CutOff(Box::new(entry)),
            Recovery::Run | Recovery::Interrupt => {
                let update = interrupted(&entry, now_ms);
                step.save.push(Record::Finished { update: update.clone() });
                Standing::Settled { update, acknowledged: false, said_ms: 0 }
            }
        };
        self.held.insert(command, Held { seq, standing, cancel_requested, may_end, not_after_ms, glass });
    }

    /// Settles what asked for the version that runs.
    pub(super) fn confirmed(&mut self, now_ms: u64, step: &mut Step) {
        for held in self.held.values_mut() {
            if let Standing::OnTrial(entry) = &held.standing {
                let update = fulfilled(entry, Some(Fulfilment::Done), now_ms);
                step.save.push(Record::Finished { update: update.clone() });
                step.say(&update);
                held.standing = Standing::Settled { said_ms: now_ms, update, acknowledged: false };
            }
        }
    }
}
