//! One run of a component file on this machine, without a control plane: `bcd kind run` and `better-compute kind run`.
//!
//! **Invariant:** it takes the same way as a command would: admission, gate, capabilities, limits.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bc_proto::rules::admission::Obstacle;
use bc_runtime::{Inspected, LoadError, Mode, Outcome, Rejected, Report, Run};
use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::capability::process::with_programs;
use crate::capability::upload::ToFile;
use crate::config::{self, Config};
use crate::node::Node;

/// The most bytes of an upload into a file, where no grant says less: what a control plane allows unless it is told otherwise.
const DEFAULT_UPLOAD_BYTES: u64 = 256 * 1024 * 1024;

/// What `kind run` takes.
#[derive(Debug, Args)]
pub struct KindRun {
    /// The component
    pub file: PathBuf,
    /// The payload, as JSON
    #[arg(long, default_value = "{}", value_name = "JSON")]
    pub payload: String,
    /// List the effects that it would have, and perform none
    #[arg(long)]
    pub plan: bool,
    /// The node's configuration; without it, the defaults
    #[arg(long, value_name = "FILE", env = "BCD_CONFIG")]
    pub config: Option<PathBuf>,
    /// A file with [grants], in place of the configuration's
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// Grant whatever the kind's own manifest declares: for trying out a kind that you trust
    #[arg(long, conflicts_with = "grants")]
    pub grant_declared: bool,
    /// Write the file that it uploads here, in place of a store
    #[arg(long, value_name = "FILE")]
    pub upload_to: Option<PathBuf>,
    /// End it after this long; the manifest's timeout is the most
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
    /// Write the host calls and their answers to this file
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
}

/// How it went.
#[derive(Debug)]
pub enum Attempt {
    /// It ran (or its payload was refused).
    Ran(Box<Report>),
    /// It was not loaded.
    Refused {
        /// The kind's name.
        kind: String,
        /// Everything that stands in its way.
        obstacles: Vec<Obstacle>,
    },
}

impl Attempt {
    /// The exit code: 0 succeeded, 2 failed, 3 refused, 6 cancelled.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { .. } => 3,
            Self::Ran(report) => match report.outcome {
                Outcome::Succeeded { .. } => 0,
                Outcome::InvalidPayload { .. } => 3,
                Outcome::Cancelled => 6,
                _ => 2,
            },
        }
    }
}

impl Attempt {
    /// The report as JSON, in the form that `--json` prints.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Refused { kind, obstacles } => json!({
                "outcome": "refused",
                "kind": kind,
                "obstacles": obstacles
                    .iter()
                    .map(|obstacle| json!({ "message": obstacle.to_string(), "remedy": obstacle.remedy() }))
                    .collect::<Vec<_>>(),
            }),
            Self::Ran(report) => {
                let mut document = serde_json::to_value(&report.outcome).expect("outcomes are JSON objects");
                document["effects"] = json!(report.effects);
                document["stats"] = json!({
                    "hostCalls": report.host_calls,
                    "droppedLogLines": report.dropped_log_lines,
                    "cpuUs": report.cpu.as_micros(),
                    "wallUs": report.wall.as_micros(),
                    "peakMemoryBytes": report.peak_memory_bytes,
                });
                document
            }
        }
    }
}

/// What a command line says, and exits with, when there was no attempt: 3 for a file that is no kind, with the remedy; 1 for
/// everything else that could not be read or was asked for wrongly.
pub fn explain(error: &anyhow::Error) -> (String, u8) {
    match error.downcast_ref::<LoadError>() {
        Some(load) => {
            let code = if matches!(load.rejected, Rejected::Unreadable(_)) { 1 } else { 3 };
            (format!("error: {error:#}\n  → {}", load.rejected.remedy()), code)
        }
        None => (format!("error: {error:#}"), 1),
    }
}

/// Prints what clap has to say: help and version are results; anything else is wrong usage, which exits 1, since clap's own
/// 2 means that a kind failed.
pub fn print_usage(usage: &clap::Error) -> ExitCode {
    // A closed pipe must not change the exit code.
    let _ = usage.print();
    if usage.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs the kind on a runtime of its own. A host call that hangs (a driver that does not answer) does not keep the process:
/// its thread is left behind.
pub fn block_on(run: &KindRun, cancel: CancellationToken) -> anyhow::Result<Attempt> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let attempt = runtime.block_on(async {
        let interrupted = cancel.clone();
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                interrupted.cancel();
            }
        });
        run.run(cancel).await
    });
    runtime.shutdown_background();
    attempt
}

impl KindRun {
    /// Reads the configuration that the arguments name.
    pub fn node_config(&self) -> anyhow::Result<Config> {
        let mut config = self.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        if let Some(path) = &self.grants {
            config.grants = config::read_policy(path)?.grants;
        }
        Ok(config)
    }

    /// Runs the kind. Ends it when `cancel` is cancelled, between two actions.
    pub async fn run(&self, cancel: CancellationToken) -> anyhow::Result<Attempt> {
        let payload: Value =
            serde_json::from_str(&self.payload).map_err(|error| anyhow::anyhow!("--payload is not JSON: {error}"))?;
        let mut node = Node::new(&self.node_config()?)?;
        let component = Inspected::read(&self.file)?;
        let name = component.manifest.name.clone();
        if self.grant_declared {
            node.policy.grants.insert(name.as_str().into(), component.manifest.capabilities.clone());
        }
        let obstacles = node.obstacles(&component);
        if !obstacles.is_empty() {
            return Ok(Attempt::Refused { kind: name, obstacles });
        }
        let kind = node.engine.load(&component).map_err(|rejected| LoadError { file: self.file.clone(), rejected })?;
        // As where commands are queued: what the kind's own check refuses does not run.
        match kind.validate(&payload).await {
            Ok(problems) if problems.is_empty() => {}
            Ok(problems) => return Ok(Attempt::Ran(Box::new(Report::invalid_payload(problems)))),
            Err(outcome) => return Ok(Attempt::Ran(Box::new(Report::without_run(outcome)))),
        }
        let (programs, stopped) = (node.programs().map(Arc::new), cancel.clone());
        if let Some(programs) = programs.clone() {
            node.capabilities.process = Some(programs);
        }
        if let Some(file) = &self.upload_to {
            let granted = node.policy.grants_of(&name).upload.and_then(|upload| upload.max_bytes);
            let cap = granted.map_or(DEFAULT_UPLOAD_BYTES, |bytes| bytes.0);
            node.capabilities.upload = Some(Arc::new(ToFile::new(file.clone(), cap)));
        }
        let over = CancellationToken::new();
        let _over = over.clone().drop_guard();
        if node.capabilities.block_devices.is_none() {
            node.capabilities.block_devices = node.own_disks(cancel.clone(), over);
        }
        let run = Run {
            timeout: self.timeout,
            mode: if self.plan { Mode::Plan } else { Mode::Live },
            record: self.transcript.is_some(),
            ..node.run_of(&kind, payload, cancel)
        };
        let report = with_programs(programs, stopped, kind.run(run)).await;
        if let (Some(path), Some(transcript)) = (&self.transcript, &report.transcript) {
            std::fs::write(path, serde_json::to_vec_pretty(transcript)?)
                .map_err(|error| anyhow::anyhow!("{} cannot be written: {error}", path.display()))?;
        }
        Ok(Attempt::Ran(Box::new(report)))
    }
}
