//! The life of a command: which state follows which event.
//!
//! **Invariant:** a terminal state never changes. What arrives later, however true, is absorbed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// In the queue.
    Pending,
    /// Sent on a session.
    Dispatched,
    /// In the node's journal.
    Acked,
    /// Started on the node.
    Running,
    /// It reached its goal.
    Succeeded,
    /// It did not, or nobody can say.
    Failed,
    /// The node did not accept it.
    Rejected,
    /// It waited past its deadline and never ran.
    Expired,
    /// It was called off; what had already happened is in its result.
    Cancelled,
}

/// What happens to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// It was sent on a session.
    Delivered,
    /// The node has no credits for it.
    Busy,
    /// It is in the node's journal.
    Acked,
    /// The node started it.
    Started,
    /// The node says that it succeeded.
    ReportedSucceeded,
    /// The node says that it failed.
    ReportedFailed,
    /// The node says that it stopped it.
    ReportedCancelled,
    /// The node refused it, other than for credits.
    ReportedRejected,
    /// Somebody called it off.
    CancelRequested,
    /// Its node was deleted.
    NodeDeleted,
    /// Its node was enrolled anew and it must not reach the new one.
    NodeReplaced,
    /// Its deadline passed: `not_after` while it waits, and the kind's timeout on top once it is in flight.
    DeadlinePassed,
    /// The node came back with another journal, and repeating it could do harm.
    JournalLost,
    /// The lease of its runner ran out after it was started, and repeating it could do harm.
    LeaseLost,
    /// The node came back with another boot or role, which is what it was to bring about.
    Rebooted,
}

/// An event that cannot happen to a command in this state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a command that is {state}")]
pub struct Illegal {
    /// Where it stands.
    pub state: State,
    /// What was to happen.
    pub event: Event,
}

impl State {
    /// All of them, in the order of a command's life.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Dispatched,
        Self::Acked,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Rejected,
        Self::Expired,
        Self::Cancelled,
    ];

    /// Whether nothing follows.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Rejected | Self::Expired | Self::Cancelled)
    }

    /// Whether the node has it, or may have it.
    pub const fn is_in_flight(self) -> bool {
        matches!(self, Self::Dispatched | Self::Acked | Self::Running)
    }

    /// The state after an event.
    ///
    /// Reports may skip steps, since acknowledgements get lost. They are taken even while the command counts as pending: the
    /// mark that it was dispatched is not waited for, so a crash of the database can forget it, and the node's word is true
    /// all the same.
    pub const fn on(self, event: Event) -> Result<Self, Illegal> {
        if self.is_terminal() {
            return Ok(self);
        }
        let in_flight = self.is_in_flight();
        Ok(match event {
            Event::Delivered => match self {
                Self::Pending => Self::Dispatched,
                // A replay after a reconnect.
                other => other,
            },
            Event::Busy => match self {
                Self::Pending | Self::Dispatched => Self::Pending,
                _ => return Err(Illegal { state: self, event }),
            },
            Event::Acked => match self {
                // Acknowledgements can be overtaken.
                Self::Running => Self::Running,
                _ => Self::Acked,
            },
            Event::Started => Self::Running,
            // In flight, the node decides what becomes of a command that is called off.
            Event::CancelRequested | Event::NodeDeleted if in_flight => self,
            Event::ReportedCancelled | Event::CancelRequested | Event::NodeDeleted => Self::Cancelled,
            Event::DeadlinePassed | Event::NodeReplaced if !in_flight => Self::Expired,
            Event::JournalLost | Event::LeaseLost | Event::Rebooted if !in_flight => {
                return Err(Illegal { state: self, event });
            }
            Event::ReportedFailed
            | Event::DeadlinePassed
            | Event::NodeReplaced
            | Event::JournalLost
            | Event::LeaseLost => Self::Failed,
            Event::ReportedSucceeded | Event::Rebooted => Self::Succeeded,
            Event::ReportedRejected => Self::Rejected,
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Dispatched => "dispatched",
            Self::Acked => "acked",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 15] = [
        Event::Delivered,
        Event::Busy,
        Event::Acked,
        Event::Started,
        Event::ReportedSucceeded,
        Event::ReportedFailed,
        Event::ReportedCancelled,
        Event::ReportedRejected,
        Event::CancelRequested,
        Event::NodeDeleted,
        Event::NodeReplaced,
        Event::DeadlinePassed,
        Event::JournalLost,
        Event::LeaseLost,
        Event::Rebooted,
    ];

    #[test]
    fn the_whole_table() {
        let mut table = String::new();
        for state in State::ALL {
            for event in EVENTS {
                let next = state.on(event).map_or("illegal".to_owned(), |next| next.to_string());
                table += &format!("{state:<10} {event:<17} {next}\n", event = format!("{event:?}"));
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn terminal_states_absorb_everything() {
        for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
            for event in EVENTS {
                assert_eq!(state.on(event), Ok(state), "{state} on {event:?}");
            }
        }
    }

    #[test]
    fn a_report_ends_a_command_wherever_it_stands() {
        for state in State::ALL.into_iter().filter(|state| !state.is_terminal()) {
            assert_eq!(state.on(Event::ReportedSucceeded), Ok(State::Succeeded), "{state}");
            assert!(state.on(Event::DeadlinePassed).is_ok_and(State::is_terminal), "{state}");
        }
    }
}
