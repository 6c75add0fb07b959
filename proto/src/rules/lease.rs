//! Leases of commands by runners: what becomes of one that ran out, and what a refusal means.
//!
//! **Invariant:** a command that was started runs again only if its kind says that this does no harm, and never once it was
//! called off.

use std::collections::BTreeSet;

use crate::manifest::Trait;
use crate::rules::state::{Event, State};

/// The longest lease, in seconds: a day. Who needs more renews it.
pub const MAX_SECONDS: u32 = 86_400;

/// The most bytes that are kept of each output stream: half from its start and half from its end.
pub const OUTPUT_KEPT: usize = 64 * 1024;

/// The reason of a command that its runner lost.
pub const LOST: &str = "lease-lost";

/// The NOTIFY channel that wakes runners. The payload is the gateway's slug.
pub const CHANNEL: &str = "better_compute_runner";

/// The NOTIFY channel that tells of leased commands which were called off. The payload is the command's id.
pub const CANCEL_CHANNEL: &str = "better_compute_runner_cancel";

/// What becomes of a command whose lease ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOut {
    /// It is pending again.
    Back,
    /// It is over: from this state, by this event, for this reason.
    Settle(State, Event, &'static str),
}

/// Decides about a lease that ran out.
pub fn run_out(traits: &BTreeSet<Trait>, is_started: bool, is_cancelled: bool) -> RunOut {
    match (is_started, is_cancelled) {
        // Nothing has happened, so it is as good as pending, and pending commands are cancelled at once.
        (false, true) => RunOut::Settle(State::Pending, Event::CancelRequested, "cancelled"),
        (true, false) if traits.contains(&Trait::RetrySafe) => RunOut::Back,
        (true, _) => RunOut::Settle(State::Running, Event::LeaseLost, LOST),
        (false, false) => RunOut::Back,
    }
}

/// Why the database refused a call of a runner. Its SQLSTATE says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no gateway with that slug, or the user does not act for it.
    UnknownGateway,
    /// An argument that cannot be; the message names it.
    Argument,
    /// The lease ran out, and the command was taken back or ended.
    Stale,
    /// The command is over.
    Over,
    /// Nobody has leased the command.
    NotLeased,
    /// It was started before, and the caller did not say by which lease.
    StartedBefore,
    /// It was completed without having been started.
    NotStarted,
    /// It was called off, or its gateway lives another life: do not run it.
    CalledOff,
    /// The lease ran out before the command was started.
    RanOut,
    /// There is no such command, or it is another gateway's.
    UnknownCommand,
    /// Nothing can be queued: the kind `runner.action` is not registered.
    NoKind,
    /// The idempotency key means another command.
    Conflict,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::UnknownGateway,
        Self::Argument,
        Self::Stale,
        Self::Over,
        Self::NotLeased,
        Self::StartedBefore,
        Self::NotStarted,
        Self::CalledOff,
        Self::RanOut,
        Self::UnknownCommand,
        Self::NoKind,
        Self::Conflict,
    ];

    /// Its SQLSTATE.
    pub const fn sqlstate(self) -> &'static str {
        match self {
            Self::UnknownGateway => "BC001",
            Self::Argument => "BC002",
            Self::Stale => "BC003",
            Self::Over => "BC004",
            Self::NotLeased => "BC005",
            Self::StartedBefore => "BC006",
            Self::NotStarted => "BC007",
            Self::CalledOff => "BC008",
            Self::RanOut => "BC009",
            Self::UnknownCommand => "BC010",
            Self::NoKind => "BC011",
            Self::Conflict => "BC012",
        }
    }

    /// Reads a SQLSTATE.
    pub fn of(sqlstate: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.sqlstate() == sqlstate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_runs_again_only_if_that_is_safe() {
        let (plain, safe) = (BTreeSet::new(), BTreeSet::from([Trait::RetrySafe]));
        let lost = RunOut::Settle(State::Running, Event::LeaseLost, LOST);
        let cancelled = RunOut::Settle(State::Pending, Event::CancelRequested, "cancelled");
        for (traits, is_started, is_cancelled, expected) in [
            (&plain, false, false, RunOut::Back),
            (&plain, true, false, lost),
            (&safe, true, false, RunOut::Back),
            (&plain, false, true, cancelled),
            (&safe, false, true, cancelled),
            (&plain, true, true, lost),
            (&safe, true, true, lost),
        ] {
            assert_eq!(run_out(traits, is_started, is_cancelled), expected, "{traits:?} {is_started} {is_cancelled}");
        }
    }

    #[test]
    fn what_ends_by_running_out_is_over() {
        assert_eq!(State::Running.on(Event::LeaseLost), Ok(State::Failed));
        assert_eq!(State::Pending.on(Event::CancelRequested), Ok(State::Cancelled));
    }

    #[test]
    fn each_refusal_has_a_sqlstate_of_its_own() {
        assert!(Refusal::ALL.into_iter().all(|refusal| Refusal::of(refusal.sqlstate()) == Some(refusal)));
        assert_eq!(Refusal::of("42501"), None);
    }
}
