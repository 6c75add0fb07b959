//! `diag.dcgm`: the diagnostics of NVIDIA's DCGM, as `dcgmi diag` runs them.
//!
//! This file asks and runs; [`plan`] says with which arguments, [`output`] reads what came out, [`report`] judges it.
//!
//! **Invariant:** from level 2 on, which loads the GPUs, nothing is begun while anything uses one of them; and what could not be
//! read is never a pass.

mod output;
mod plan;
mod report;

use std::collections::BTreeMap;

use report::Report;
use sdk::process::{self, Exit, OutputStream, Request};
use sdk::{Context, Failure, Kind, Problem, nvml, progress};
use serde::Deserialize;

struct Dcgm;

/// What is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payload {
    pub(crate) level: u8,
    /// None: all.
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) gpus: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) parameters: BTreeMap<String, String>,
}

/// The most output that is read, bytes. A level 4 on sixteen GPUs says a few hundred KiB.
const OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// The size of one read, bytes.
const PIECE_BYTES: u32 = 64 * 1024;
/// What is kept of its complaints, bytes.
const CAPTURE_BYTES: u32 = 16 * 1024;
/// How long the tool may take, milliseconds: a minute less than the kind's own two hours, so that the run can still say so. The same
/// in every run, since a plan that was approved names it.
const TIMEOUT_MS: u64 = 119 * 60_000;

impl Kind for Dcgm {
    type Payload = Payload;
    type Output = Report;

    fn validate(payload: &Payload) -> Vec<Problem> {
        plan::problems(payload)
    }

    fn run(_: &Context, payload: Payload) -> Result<Report, Failure> {
        if let Some(problem) = plan::problems(&payload).into_iter().next() {
            return Err(Failure::new("invalid-payload", format!("{}: {}", problem.pointer, problem.message)));
        }
        let gpus = plan::Gpus::new(nvml::devices());
        let indexes = gpus.indexes(payload.gpus.as_deref())?;
        if payload.level >= plan::LOADS_GPUS {
            gpu_use::refuse_used(&gpus.named(payload.gpus.as_deref())?)?;
        }
        let request = Request {
            program: "dcgmi".into(),
            argv: plan::arguments(&payload, &indexes),
            stdin: None,
            timeout_ms: TIMEOUT_MS,
            capture_bytes: CAPTURE_BYTES,
        };
        progress::report(0, None, "bytes", &plan::expectation(payload.level));
        let (text, outcome) = run(&request)?;
        progress::report(text.len() as u64, None, "bytes", "reading what DCGM found");
        report::report(payload.level, outcome.exit, &text, &complaint(&outcome), &gpus)
    }
}

sdk::export!(Dcgm);

/// Runs it to its end, and says how far it is.
fn run(request: &Request) -> Result<(String, process::Outcome), Failure> {
    let handle = process::start(request).map_err(|error| match error.code.as_str() {
        "not-found" | "not-started" => Failure::new("dcgm-not-installed", sdk::describe(&error).to_string()),
        _ => Failure::from(error),
    })?;
    let mut bytes = Vec::new();
    while let Some(piece) = process::read(handle, OutputStream::Stdout, PIECE_BYTES)? {
        if bytes.len() < OUTPUT_BYTES {
            bytes.extend(piece);
            progress::report(bytes.len() as u64, None, "bytes", "DCGM answers");
        }
    }
    let outcome = process::wait(handle)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), outcome))
}

/// What it said on its standard error.
fn complaint(outcome: &process::Outcome) -> String {
    let text = format!("{}{}", outcome.stderr.head, outcome.stderr.tail);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How it ended, in words.
pub(crate) fn ended(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("dcgmi ended with {code}"),
        Exit::Signal(signal) => format!("dcgmi was ended by signal {signal}"),
        Exit::TimedOut => "dcgmi did not end in its time and was killed".to_owned(),
    }
}
