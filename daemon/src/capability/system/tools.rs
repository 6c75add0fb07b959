//! Runs systemd's programs, each for a short time.
//!
//! **Invariant:** one that does not end is killed with all that it started.

use std::path::PathBuf;
use std::time::Duration;

use bc_runtime::capability::process::{Exit, Output, Request};
use bc_runtime::capability::{Answer, Error, Process as _};

use crate::capability::process::Programs;

/// How long one may take; they answer in milliseconds where systemd is well.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The list of all inhibitors of a desktop is a few kilobytes.
const CAPTURE_BYTES: u32 = 256 * 1024;

/// Where they are, and what supervises them.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    pub(super) supervisor: Option<PathBuf>,
    pub(super) path: String,
}

/// How a program ended.
pub(super) struct Said {
    /// `None` when it ended otherwise than with an exit code.
    pub(super) code: Option<i32>,
    pub(super) out: String,
    /// How it ended and what it complained of, for people.
    pub(super) end: String,
}

impl Tools {
    /// Runs one to its end. Errors when it cannot be started.
    pub(super) fn run(&self, program: &str, argv: &[&str]) -> Answer<Said> {
        let supervisor = self.supervisor.clone().ok_or_else(|| {
            Error::new("no-supervisor", "there is no `bcd` beside this program, which would supervise what it runs")
        })?;
        let programs = Programs::new(supervisor, &self.path);
        let outcome = programs.run(&Request {
            program: program.to_owned(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            stdin: None,
            timeout_ms: u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX),
            capture_bytes: CAPTURE_BYTES,
        })?;
        let (code, how) = match outcome.exit {
            Exit::Code(code) => (Some(code), format!("{program} ended with exit code {code}")),
            Exit::Signal(signal) => (None, format!("{program} was ended by signal {signal}")),
            Exit::TimedOut => (None, format!("{program} did not end within {TIMEOUT:?} and was killed")),
        };
        let text = |output: &Output| format!("{}{}", output.head, output.tail);
        let complaint = text(&outcome.stderr);
        let complaint = complaint.trim();
        let end = if complaint.is_empty() { how } else { format!("{how}: {complaint}") };
        Ok(Said { code, out: text(&outcome.stdout), end })
    }
}
