//! What a reconnect proves: of the control plane's commands in flight, and of the daemon's own journal after a restart.
//!
//! **Invariant:** what may have happened is never repeated unless the kind is retry-safe, and what did happen is never
//! reported as anything else.

use std::collections::BTreeSet;

use crate::manifest::{Role, Trait};
use crate::rules::state::{Event, State};

/// What a node said of itself, at one hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life<'a> {
    /// The journal it has.
    pub journal: &'a str,
    /// The boot it runs in.
    pub boot: &'a str,
    /// The role it has.
    pub role: Role,
}

/// What to do with one command in flight when its node says hello again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumption {
    /// It is settled by what the hello shows.
    Settle(Event),
    /// It is sent again; the journal answers a duplicate.
    Replay,
}

/// Decides for one command in flight. `before` is the node as it was when the command was last sent.
///
/// A new boot is looked at first: a reboot that came with a new journal (a ramdisk) is still the reboot that was asked for.
pub fn resume(traits: &BTreeSet<Trait>, before: &Life<'_>, now: &Life<'_>) -> Resumption {
    let came_back = before.boot != now.boot || before.role != now.role;
    if traits.contains(&Trait::SelfTerminating) && came_back {
        return Resumption::Settle(Event::Rebooted);
    }
    if before.journal != now.journal && !traits.contains(&Trait::RetrySafe) {
        return Resumption::Settle(Event::JournalLost);
    }
    Resumption::Replay
}

/// How far a command got, by the daemon's own journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journaled {
    /// Accepted, never started.
    Accepted,
    /// Started; no result.
    Started,
    /// There is a result.
    Finished,
}

/// What a daemon does with a journaled command after it was restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Run it, as a further attempt.
    Run,
    /// Settle it `failed: interrupted`.
    Interrupt,
    /// Report the stored result again, until it is acknowledged.
    Report,
    /// Leave it open: the new boot settles it on the control plane's side.
    AwaitSettlement,
}

/// Decides for one entry of the journal. `same_boot`: whether the machine still runs in the boot in which it was started.
pub fn recover(entry: Journaled, traits: &BTreeSet<Trait>, same_boot: bool) -> Recovery {
    match entry {
        Journaled::Finished => Recovery::Report,
        _ if traits.contains(&Trait::SelfTerminating) && !same_boot => Recovery::AwaitSettlement,
        _ if traits.contains(&Trait::RetrySafe) => Recovery::Run,
        Journaled::Accepted | Journaled::Started => Recovery::Interrupt,
    }
}

/// Whether a command that is still pending may reach the node's present life: destructive ones of an earlier life may not.
pub fn survives_replacement(traits: &BTreeSet<Trait>, state: State) -> bool {
    !(state == State::Pending && traits.contains(&Trait::Destructive))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Life<'_> = Life { journal: "j1", boot: "b1", role: Role::Host };

    fn traits(list: &[Trait]) -> BTreeSet<Trait> {
        list.iter().copied().collect()
    }

    #[test]
    fn a_hello_settles_what_it_proves_and_replays_the_rest() {
        let plain = traits(&[]);
        let safe = traits(&[Trait::RetrySafe]);
        let reboot = traits(&[Trait::Destructive, Trait::SelfTerminating]);
        let unchanged = BEFORE;
        let new_boot = Life { boot: "b2", ..BEFORE };
        let new_journal = Life { journal: "j2", ..BEFORE };
        let new_role = Life { role: Role::Ramdisk, ..BEFORE };
        let all_new = Life { journal: "j2", boot: "b2", role: Role::Ramdisk };
        for (traits, now, expected) in [
            (&plain, unchanged, Resumption::Replay),
            (&plain, new_boot, Resumption::Replay),
            (&plain, new_journal, Resumption::Settle(Event::JournalLost)),
            (&safe, new_journal, Resumption::Replay),
            (&safe, all_new, Resumption::Replay),
            (&reboot, unchanged, Resumption::Replay),
            (&reboot, new_boot, Resumption::Settle(Event::Rebooted)),
            (&reboot, new_role, Resumption::Settle(Event::Rebooted)),
            (&reboot, all_new, Resumption::Settle(Event::Rebooted)),
            (&reboot, new_journal, Resumption::Settle(Event::JournalLost)),
        ] {
            assert_eq!(resume(traits, &BEFORE, &now), expected, "{traits:?} {now:?}");
        }
    }

    #[test]
    fn promise_02_a_restart_runs_again_only_what_is_retry_safe() {
        let reboot = traits(&[Trait::SelfTerminating]);
        for entry in [Journaled::Accepted, Journaled::Started] {
            assert_eq!(recover(entry, &traits(&[]), true), Recovery::Interrupt);
            assert_eq!(recover(entry, &traits(&[Trait::RetrySafe]), true), Recovery::Run);
            assert_eq!(
                recover(entry, &reboot, true),
                Recovery::Interrupt,
                "a reboot that did not come is not repeated"
            );
            assert_eq!(recover(entry, &reboot, false), Recovery::AwaitSettlement);
        }
        for same_boot in [true, false] {
            assert_eq!(recover(Journaled::Finished, &reboot, same_boot), Recovery::Report, "a result is never lost");
        }
    }
}
