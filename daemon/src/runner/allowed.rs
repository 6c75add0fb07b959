//! The one program that a command's action means, behind the kind's `process` capability.
//!
//! **Invariant:** what runs was resolved from the runner's file before the kind began, and runs once: the kind can say nothing that
//! changes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bc_proto::grants::{Grants, Process as Granted, Program};
use bc_proto::pattern::Pattern;
use bc_proto::rules::action::{Invocation, PROGRAM};
use bc_runtime::capability::process::{Outcome, OutputStream, Request};
use bc_runtime::capability::{Answer, Error, Process};

use super::live::Live;
use crate::capability::process::Programs;

/// It.
pub(super) struct Allowed {
    action: String,
    invocation: Invocation,
    timeout: Duration,
    programs: Arc<Programs>,
    live: Arc<Live>,
    was_run: AtomicBool,
}

/// What the kind is granted for an action: to run it, and nothing else.
pub(super) fn grants(action: &str) -> Grants {
    let program = Program { program: PROGRAM.to_owned(), argv: vec![Pattern(action.to_owned())], read_only: false };
    Grants { process: Some(Granted { programs: [program].into() }), ..Grants::default() }
}

impl Allowed {
    /// For one run.
    pub(super) fn new(
        action: &str,
        invocation: Invocation,
        timeout: Duration,
        programs: Arc<Programs>,
        live: Arc<Live>,
    ) -> Self {
        Self { action: action.to_owned(), invocation, timeout, programs, live, was_run: AtomicBool::new(false) }
    }
}

impl Process for Allowed {
    fn run(&self, request: &Request) -> Answer<Outcome> {
        if request.program != PROGRAM || request.argv != [self.action.as_str()] {
            return Err(Error::new("not-found", format!("this run may do `{}` and nothing else", self.action)));
        }
        if self.was_run.swap(true, Ordering::Relaxed) {
            return Err(Error::new("already-run", "an action's program runs once"));
        }
        let outcome = self.programs.run(&Request {
            program: self.invocation.program.clone(),
            argv: self.invocation.argv.clone(),
            stdin: self.invocation.stdin.clone(),
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            // All of it goes to `live`, together with what the program reports.
            capture_bytes: 0,
        })?;
        let (stdout, stderr) = (self.live.output(OutputStream::Stdout), self.live.output(OutputStream::Stderr));
        Ok(Outcome { exit: outcome.exit, stdout, stderr })
    }

    fn start(&self, _: &Request) -> Answer<u32> {
        Err(Error::new("unsupported", "an action's program is run to its end"))
    }

    fn read(&self, handle: u32, _: OutputStream, _: u32) -> Answer<Option<Vec<u8>>> {
        Err(no_handle(handle))
    }

    fn wait(&self, handle: u32) -> Answer<Outcome> {
        Err(no_handle(handle))
    }

    fn kill(&self, handle: u32) -> Answer<()> {
        Err(no_handle(handle))
    }
}

fn no_handle(handle: u32) -> Error {
    Error::new("not-found", format!("this run has no program with the handle {handle}"))
}
