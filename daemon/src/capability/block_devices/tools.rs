//! The system's disk tools, each run below a supervisor.
//!
//! **Invariant:** a tool ends by itself, by its timeout, or when its run is over: a cancel alone stops none, since a drive goes on
//! with what it was told, whoever waits for it.

use std::time::Duration;

use bc_runtime::capability::process::{Exit, Request};
use bc_runtime::capability::{Answer, Error, Process};

use crate::capability::process::Programs;

/// As much of a tool's output as is kept: `hdparm -I` says about 6 KiB, `nvme id-ctrl -o json` about 4.
const OUTPUT_BYTES: u32 = 64 * 1024;

/// How long a question to a drive may take.
pub(super) const QUESTION: Duration = Duration::from_mins(1);

/// How a tool ended.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    /// What it said, in one line, for a message.
    pub(super) fn words(&self) -> String {
        let all = format!("{} {}", self.err, self.out);
        let words: Vec<_> = all.split_whitespace().collect();
        let mut words = words.join(" ");
        if let Some((end, _)) = words.char_indices().nth(400) {
            words.truncate(end);
        }
        format!("it ended with {} and said: {words}", self.code)
    }

    /// Whether it says so anywhere, in capitals or not.
    pub(super) fn says(&self, words: &str) -> bool {
        let words = words.to_lowercase();
        [&self.out, &self.err].into_iter().any(|text| text.to_lowercase().contains(&words))
    }
}

/// Runs a tool to its end. Errors `not-found` where it is not installed, `timeout`, `tool-failed` where a signal ended it.
pub(super) fn run(programs: &Programs, tool: &str, argv: &[&str], timeout: Duration) -> Answer<Said> {
    let outcome = programs.run(&Request {
        program: tool.to_owned(),
        argv: argv.iter().map(ToString::to_string).collect(),
        stdin: None,
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        capture_bytes: OUTPUT_BYTES,
    })?;
    match outcome.exit {
        Exit::Code(code) => Ok(Said {
            code,
            out: outcome.stdout.head + &outcome.stdout.tail,
            err: outcome.stderr.head + &outcome.stderr.tail,
        }),
        Exit::Signal(signal) => {
            Err(Error::native("tool-failed", signal, format!("`{tool}` was ended by the signal {signal}")))
        }
        Exit::TimedOut => {
            let message = format!("`{tool}` did not answer within {} s and was killed", timeout.as_secs());
            Err(Error::new("timeout", message))
        }
    }
}
