//! How a run ended, typed.
//!
//! **Invariant:** a guest's own failure, a guest that was stopped and a host that could not do its part are told apart.

use std::fmt;
use std::time::Duration;

use bc_proto::schema::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::effect::Effect;
use crate::transcript::Transcript;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// The guest gave a result that fits its schema.
    Succeeded {
        /// The result.
        result: Value,
    },
    /// The payload breaks the kind's schema; nothing ran.
    InvalidPayload {
        /// Every problem.
        problems: Vec<Problem>,
    },
    /// The guest says why it did not reach its goal.
    GuestFailure(Failure),
    /// The guest called what it was not granted.
    Denied {
        /// The call, and who does not allow it.
        message: String,
    },
    /// The run's time was over.
    Deadline {
        /// The host call it was in, if it was in one.
        during: Option<String>,
    },
    /// The guest used up its CPU budget.
    Cpu {
        /// The budget, in milliseconds.
        limit_ms: u64,
    },
    /// The guest wanted more memory than its limit.
    Memory {
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// The guest trapped or broke the ABI.
    Trap {
        /// Its panic message, else the trap's name.
        message: String,
        /// Innermost first.
        frames: Vec<Frame>,
    },
    /// The run was cancelled between two actions.
    Cancelled,
    /// In a replay, the guest did something else than the recorded run.
    Diverged {
        /// What it did, and what was recorded.
        message: String,
    },
    /// The host could not do its part; the guest is not to blame.
    HostFailure {
        /// What failed.
        message: String,
    },
}

/// Why a guest says it failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable identifier, `gpu-busy`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether the same command may succeed later.
    pub retryable: bool,
    /// Particulars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// One function on the guest's stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Its demangled name, else its index.
    pub function: String,
}

/// Everything that is known about a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What it did to the node, or would do (plan), in order.
    pub effects: Vec<Effect>,
    /// Host calls, log lines included.
    pub host_calls: u64,
    /// Log lines that went past the budget.
    pub dropped_log_lines: u64,
    /// Time in the guest's own code.
    pub cpu: Duration,
    /// Time from start to end.
    pub wall: Duration,
    /// The most linear memory that the guest had, in bytes.
    pub peak_memory_bytes: u64,
    /// The calls and answers, if they were to be recorded.
    pub transcript: Option<Transcript>,
}

impl Outcome {
    /// The outcome's name, as it stands in events and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "succeeded",
            Self::InvalidPayload { .. } => "invalid-payload",
            Self::GuestFailure(_) => "guest-failure",
            Self::Denied { .. } => "denied",
            Self::Deadline { .. } => "deadline",
            Self::Cpu { .. } => "cpu",
            Self::Memory { .. } => "memory",
            Self::Trap { .. } => "trap",
            Self::Cancelled => "cancelled",
            Self::Diverged { .. } => "diverged",
            Self::HostFailure { .. } => "host-failure",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded { .. } => f.write_str("succeeded"),
            Self::InvalidPayload { problems } => {
                write!(f, "the payload has {} problem(s):", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
            Self::GuestFailure(failure) => write!(f, "failed ({}): {}", failure.code, failure.message),
            Self::Denied { message } => write!(f, "denied: {message}"),
            Self::Deadline { during: Some(call) } => write!(f, "stopped at its deadline, in {call}"),
            Self::Deadline { during: None } => f.write_str("stopped at its deadline"),
            Self::Cpu { limit_ms } => write!(f, "stopped: it used up its CPU budget of {limit_ms} ms"),
            Self::Memory { limit_bytes } => write!(f, "stopped: it wanted more than its {limit_bytes} bytes of memory"),
            Self::Trap { message, frames } => {
                write!(f, "trapped: {message}")?;
                frames.iter().try_for_each(|frame| write!(f, "\n    in {}", frame.function))
            }
            Self::Cancelled => f.write_str("cancelled"),
            Self::Diverged { message } => write!(f, "the replay went another way: {message}"),
            Self::HostFailure { message } => write!(f, "the host failed: {message}"),
        }
    }
}
