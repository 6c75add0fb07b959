//! A run as the sequence of its host calls and their answers, to be replayed elsewhere.
//!
//! **Invariant:** a transcript holds no secret: answers of secret calls are redacted before they are recorded, and so are secrets that the guest
//! hands on.

use std::collections::VecDeque;

use bc_proto::schema::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gate::{Action, Call};

/// The most bytes of arguments and answers that are recorded, as JSON text and with [`ENTRY_BYTES`] for each call: a
/// diagnostic of eight GPUs takes some 50 KiB. In memory, bytes as a JSON array take nine times this.
const MAX_BYTES: usize = 4 * 1024 * 1024;
const ENTRY_BYTES: usize = 128;

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
    /// How many calls came after them and were not recorded, because the recording was full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unrecorded_calls: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The calls of a run that goes on.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    calls: Vec<Entry>,
    bytes: usize,
    unrecorded: u64,
}

impl Recording {
    /// Adds a call with its answer as JSON text. Once one does not fit, calls are only counted: what is recorded has no gap.
    pub(crate) fn add(&mut self, call: &Call<'_>, args: Value, answer: &str, at_us: u64, took_us: u64) {
        self.bytes = self.bytes.saturating_add(ENTRY_BYTES + args.to_string().len() + answer.len());
        if self.bytes > MAX_BYTES {
            self.unrecorded += 1;
            return;
        }
        let answer = serde_json::from_str(answer).expect("it was written from a value");
        let effect = call.action == Action::Effect;
        self.calls.push(Entry { call: call.name(), args, answer, effect, at_us, took_us });
    }

    pub(crate) fn finish(self, digest: String, kind: String, payload: Value) -> Transcript {
        Transcript { digest, kind, payload, calls: self.calls, unrecorded_calls: self.unrecorded }
    }
}

/// The answers that are still to be given in a replay.
#[derive(Debug)]
pub struct Replay {
    calls: VecDeque<Entry>,
    unrecorded: u64,
}

impl Replay {
    /// Replays these calls.
    pub fn new(transcript: Transcript) -> Self {
        Self { calls: transcript.calls.into(), unrecorded: transcript.unrecorded_calls }
    }

    /// The recorded call that comes next, if there is one.
    pub(crate) fn next(&self) -> Option<&str> {
        self.calls.front().map(|entry| entry.call.as_str())
    }

    /// The recorded answer to a call, if it is the one that comes next. Log lines and progress may differ: they have no
    /// answer that the guest could see.
    pub(crate) fn answer(&mut self, call: &str, args: &Value) -> Result<Value, Problem> {
        let Some(next) = self.calls.pop_front() else {
            if self.unrecorded > 0 {
                return Err(Problem::new(
                    "",
                    format!("{} calls were not recorded, {call} is the first", self.unrecorded),
                ));
            }
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
