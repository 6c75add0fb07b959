//! `logs.collect`: a node's logs in one bundle, for whoever has to find out what happened on it.
//!
//! This file talks to the host; [`collect`] decides what goes in, [`pieces`] keeps it within bounds, [`archive`] writes it down.
//!
//! **Invariant:** a source that cannot be read costs itself alone: the bundle says what is missing and why.

mod archive;
mod collect;
mod pieces;
mod select;

use collect::{Collected, Exit, Node, Plan, Source};
use sdk::process::{OutputStream, Request};
use sdk::{Context, Error, Failure, Kind, Problem, clock, files, inventory, process, progress, upload};
use serde::{Deserialize, Serialize};

/// What is kept of what a program says on its standard error.
const SAID: u32 = 2048;
/// What is read of a program at a time.
const READ: u32 = 256 * 1024;
/// How many problems the result names; the manifest in the bundle has all of them.
const NAMED: usize = 20;

struct Collect;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    #[serde(default, deserialize_with = "sdk::payload::present")]
    sources: Option<Vec<Source>>,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    since: Option<String>,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    max_bytes: Option<u64>,
    #[serde(default, deserialize_with = "sdk::payload::present")]
    files: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Report {
    bytes: u64,
    sha256: String,
    truncated: bool,
    files: usize,
    skipped: usize,
    problems: Vec<String>,
}

impl Kind for Collect {
    type Payload = Payload;
    type Output = Report;

    fn validate(payload: &Payload) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Some(since) = &payload.since
            && select::span_s(since).is_none()
        {
            problems.push(Problem::new("/since", "is not a span such as 30m, 24h or 7d"));
        }
        for (at, pattern) in payload.files.iter().flatten().enumerate() {
            if pattern.split('/').any(|part| part == "..") {
                problems.push(Problem::new(format!("/files/{at}"), "must not hold `..`"));
            }
        }
        problems
    }

    fn run(ctx: &Context, payload: Payload) -> Result<Report, Failure> {
        let handle = upload::begin("application/zstd").map_err(failure)?;
        // Nothing is written yet: this asks how much may be.
        let allowed = upload::write(handle, &[]).map_err(failure)?;
        let plan = Plan {
            sources: payload.sources.unwrap_or_else(|| Source::ALL.to_vec()),
            since_s: payload.since.as_deref().and_then(select::span_s).unwrap_or(select::DAY_S),
            patterns: payload.files.unwrap_or_else(|| vec!["*".to_owned()]),
            max_bytes: payload.max_bytes.unwrap_or(collect::MAX_BYTES).min(allowed),
        };
        if plan.max_bytes < collect::MIN_BYTES {
            let message =
                format!("the destination takes {allowed} bytes, and a bundle has at least {}", collect::MIN_BYTES);
            return Err(Failure::new("cap-too-small", message));
        }
        let about = collect::About {
            command_id: ctx.command_id.clone(),
            node_id: ctx.node_id.clone(),
            attempt: ctx.attempt,
            server_time_ms: clock::now_ms(),
            since_s: plan.since_s,
        };
        let Collected { files, skipped, problems, truncated } = collect::collect(&mut Host, &plan, &about);
        let (count, left_out) = (files.len(), skipped.len());
        progress::report(0, None, "bytes", "uploading");
        archive::write(files, &skipped, &problems, &mut |bytes| upload::write(handle, bytes).map(drop))
            .map_err(failure)?;
        let receipt = upload::finish(handle).map_err(failure)?;
        Ok(Report {
            bytes: receipt.bytes,
            sha256: receipt.sha256,
            truncated: truncated || receipt.truncated,
            files: count,
            skipped: left_out,
            problems: problems.into_iter().take(NAMED).collect(),
        })
    }
}

sdk::export!(Collect);

/// A store that could not be reached may be there later.
fn failure(error: Error) -> Failure {
    let may_pass = error.code == "unreachable";
    let failure = Failure::from(error);
    if may_pass { failure.retryable() } else { failure }
}

struct Host;

impl Node for Host {
    fn entries(&mut self, folder: &str) -> Result<Vec<files::Entry>, Error> {
        files::entries(folder)
    }

    fn read(&mut self, file: &str, offset: u64, max_bytes: u32) -> Result<Vec<u8>, Error> {
        files::read(file, offset, max_bytes)
    }

    fn inventory(&mut self) -> Result<String, Error> {
        inventory::collected(&[])
    }

    fn stream(
        &mut self,
        program: &str,
        argv: &[String],
        timeout_ms: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<Exit, Error> {
        let handle = process::start(&request(program, argv, timeout_ms))?;
        while let Some(piece) = process::read(handle, OutputStream::Stdout, READ)? {
            take(&piece);
        }
        Ok(exit(&process::wait(handle)?))
    }

    fn run(&mut self, program: &str, argv: &[String], timeout_ms: u64) -> Result<Exit, Error> {
        Ok(exit(&process::run(&request(program, argv, timeout_ms))?))
    }

    fn tell(&mut self, message: &str) {
        progress::report(0, None, "", message);
    }
}

fn request(program: &str, argv: &[String], timeout_ms: u64) -> Request {
    Request { program: program.to_owned(), argv: argv.to_vec(), stdin: None, timeout_ms, capture_bytes: SAID }
}

fn exit(outcome: &process::Outcome) -> Exit {
    let said = || {
        let text = format!("{}{}", outcome.stderr.head, outcome.stderr.tail);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    match outcome.exit {
        process::Exit::Code(0) => Exit::Well,
        process::Exit::Code(code) => Exit::Badly(format!("ended with code {code}: {}", said())),
        process::Exit::Signal(signal) => Exit::Badly(format!("ended by signal {signal}: {}", said())),
        process::Exit::TimedOut => Exit::TimedOut,
    }
}
