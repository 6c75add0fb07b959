//! Exit codes: what a program that runs this one can rely on.
//!
//! **Invariant:** 0 means that what was asked for is known to have happened. Whatever is not known is 8.

use std::process::ExitCode;

use bc_proto::rules::state::State;

pub use bc_host::words::state;

/// The codes, for `--help`.
pub const HELP: &str = "Exit codes: 0 succeeded, 1 usage or refused by the API, 2 failed, 3 rejected by the node, 5 expired, \
                        6 cancelled, 7 awaits approval, 8 unknown (contact was lost), 9 a log or receipt that does not hold, 124 the wait timed out, 130 interrupted.";

/// A transparency log or a receipt does not hold. No wait for a command ends so.
pub const NOT_TRUE: u8 = 9;

/// How a wait for a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The command's state, as the server says it.
    Stands(State),
    /// It was queued, and nobody asked to wait for it.
    Queued,
    /// It waits for people, who may take long.
    AwaitsApproval,
    /// The wait was to last this long and no longer.
    TimedOut,
    /// The person who waited went away.
    Interrupted,
    /// Nobody answers, or the answer is not understood.
    Unknown,
}

/// The exit code.
pub const fn code(ending: Ending) -> u8 {
    match ending {
        Ending::Stands(State::Succeeded) | Ending::Queued => 0,
        Ending::Stands(State::Failed) => 2,
        Ending::Stands(State::Rejected) => 3,
        Ending::Stands(State::Expired) => 5,
        Ending::Stands(State::Cancelled) => 6,
        Ending::AwaitsApproval => 7,
        // A wait that ends while the command goes on does not know how it ends.
        Ending::Stands(State::Pending | State::Dispatched | State::Acked | State::Running) | Ending::Unknown => 8,
        Ending::TimedOut => 124,
        Ending::Interrupted => 130,
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(code(ending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_10_an_unknown_outcome_never_exits_0() {
        let others = [Ending::Queued, Ending::AwaitsApproval, Ending::TimedOut, Ending::Interrupted, Ending::Unknown];
        let endings = State::ALL.map(Ending::Stands).into_iter().chain(others);
        let table: Vec<_> = endings.clone().map(|ending| format!("{:>3}  {ending:?}", code(ending))).collect();
        insta::assert_snapshot!(table.join("\n"));
        assert!(endings.clone().all(|ending| code(ending) != NOT_TRUE));
        let zero: Vec<_> = endings.filter(|ending| code(*ending) == 0).collect();
        assert_eq!(zero, [Ending::Stands(State::Succeeded), Ending::Queued]);
    }

    #[test]
    fn a_state_from_the_future_is_not_known() {
        assert!(State::ALL.into_iter().all(|it| state(&it.to_string()) == Some(it)));
        assert_eq!(state("paused"), None);
        assert_eq!(state("Succeeded"), None);
    }
}
