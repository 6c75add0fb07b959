//! From what the gate, wasmtime and the guest say about a run's end to its outcome.
//!
//! **Invariant:** what a guest says is bounded: an outcome is stored and sent, and a cut says so.

use serde_json::Value;
use wasmtime::{Trap, WasmBacktrace};

use crate::gate::{Gate, Stop};
use crate::outcome::{Failure, Frame, Outcome};
use crate::v1::wit::command;

/// Frames of a trap that are reported: a recursion has thousands, and the innermost tell.
const MAX_FRAMES: usize = 32;

/// The longest message. A panic's has some hundred bytes; arguments of a refused call may be in it.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// The longest code, as the WIT says.
const MAX_CODE_BYTES: usize = 64;

/// The largest details, in bytes of JSON.
const MAX_DETAILS_BYTES: usize = 256 * 1024;

/// The outcome of a run that an error ended.
pub(super) fn by(error: &wasmtime::Error, gate: &Gate, memory_bytes: u64) -> Outcome {
    let cut = |message: &str| cut(message, MAX_MESSAGE_BYTES);
    match error.downcast_ref::<Stop>() {
        Some(Stop::Denied(message)) => Outcome::Denied { message: cut(message) },
        Some(Stop::Cancelled) => Outcome::Cancelled,
        Some(Stop::Deadline { during }) => Outcome::Deadline { during: during.clone() },
        Some(Stop::Cpu) => {
            Outcome::Cpu { limit_ms: u64::try_from(gate.meter.budget().as_millis()).unwrap_or(u64::MAX) }
        }
        Some(Stop::Memory) => Outcome::Memory { limit_bytes: memory_bytes },
        Some(Stop::Diverged(message)) => Outcome::Diverged { message: cut(message) },
        Some(Stop::Host(message)) => Outcome::HostFailure { message: cut(message) },
        None => Outcome::Trap { message: cut(&last_words(error, gate)), frames: frames(error) },
    }
}

impl From<command::Failure> for Failure {
    fn from(failure: command::Failure) -> Self {
        let details = failure.details.map(|text| match serde_json::from_str(&text) {
            Ok(details) if text.len() <= MAX_DETAILS_BYTES => details,
            // Details that are not JSON, or are too large, are kept as text rather than dropped.
            _ => Value::String(cut(&text, MAX_DETAILS_BYTES)),
        });
        Self {
            code: cut(&failure.code, MAX_CODE_BYTES),
            message: cut(&failure.message, MAX_MESSAGE_BYTES),
            retryable: failure.retryable,
            details,
        }
    }
}

/// The guest's panic message where it left one; else what wasmtime says.
fn last_words(error: &wasmtime::Error, gate: &Gate) -> String {
    match (&gate.last_words, error.downcast_ref::<Trap>()) {
        (Some(words), _) => words.clone(),
        (None, Some(trap)) => trap.to_string(),
        (None, None) => error.root_cause().to_string(),
    }
}

fn frames(error: &wasmtime::Error) -> Vec<Frame> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return Vec::new() };
    let name = |frame: &wasmtime::FrameInfo| match frame.func_name() {
        Some(name) => cut(&format!("{:#}", rustc_demangle::demangle(name)), MAX_MESSAGE_BYTES),
        None => format!("function {}", frame.func_index()),
    };
    backtrace.frames().iter().take(MAX_FRAMES).map(|frame| Frame { function: name(frame) }).collect()
}

/// The text, or its beginning and how long it was.
fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let note = format!("… (cut: {} bytes in all)", text.len());
    let beginning = &text[..text.floor_char_boundary(max_bytes.saturating_sub(note.len()))];
    format!("{beginning}{note}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_05_a_cut_is_bounded_says_so_and_keeps_characters_whole() {
        assert_eq!(cut("short", 64), "short");
        let long = cut(&"é".repeat(100), 64);
        assert_eq!(long, format!("{}… (cut: 200 bytes in all)", "é".repeat(18)));
        assert!(long.len() <= 64);
    }
}
