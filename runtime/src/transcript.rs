//! A run as the sequence of its host calls and their answers, to be replayed elsewhere.
//!
//! **Invariant:** a transcript holds no secret: answers of secret calls are redacted before they are recorded.

use std::collections::VecDeque;

use bc_proto::schema::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One host call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Interface and function, `nvml.devices`.
    pub call: String,
    /// The arguments.
    pub args: Value,
    /// The answer.
    pub answer: Value,
    /// Whether it changed the node.
    pub effect: bool,
    /// Microseconds from the start of the run to the start of the call.
    pub at_us: u64,
    /// Microseconds that the call took.
    pub took_us: u64,
}

/// A recorded run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transcript {
    /// The component that ran.
    pub digest: String,
    /// Its kind.
    pub kind: String,
    /// The payload that it ran with.
    pub payload: Value,
    /// Its calls, in order.
    pub calls: Vec<Entry>,
}

/// The answers that are still to be given in a replay.
#[derive(Debug)]
pub struct Replay(VecDeque<Entry>);

impl Replay {
    /// Replays these calls.
    pub fn new(transcript: Transcript) -> Self {
        Self(transcript.calls.into())
    }

    /// The recorded call that comes next, if there is one.
    pub(crate) fn next(&self) -> Option<&str> {
        self.0.front().map(|entry| entry.call.as_str())
    }

    /// The recorded answer to a call, if it is the one that comes next. Log lines and progress may differ: they have no
    /// answer that the guest could see.
    pub(crate) fn answer(&mut self, call: &str, args: &Value) -> Result<Value, Problem> {
        let Some(next) = self.0.pop_front() else {
            return Err(Problem::new("", format!("it calls {call} where the recorded run had ended")));
        };
        if next.call != call {
            return Err(Problem::new("", format!("it calls {call} where the recorded run called {}", next.call)));
        }
        if next.args != *args {
            return Err(Problem::new("", format!("it calls {call} with {args}, the recorded run with {}", next.args)));
        }
        Ok(next.answer)
    }
}
