//! One run of a command on its worker.
//!
//! **Invariant:** whatever happens in it, a run ends in one report to the loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bc_proto::id::CommandId;
use bc_proto::rules::accept::Refusal;
use bc_proto::rules::daemon::{Input, Start};
use bc_proto::wire;
use bc_runtime::v1::wit::log::Level;
use bc_runtime::{Outcome, Report, Run, Slot, Watcher};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{FrameSink, Parts};
use crate::capability::commanded::{Asked, Commanded};
use crate::capability::process::{Heard, with_programs};
use crate::server_time::Reading;

pub(super) struct Worker {
    pub(super) parts: Arc<Parts>,
    pub(super) start: Start,
    /// The worker's slot, if one was free.
    pub(super) slot: Option<Slot>,
    pub(super) cancel: CancellationToken,
}

impl Worker {
    /// Runs it, and says how it ended.
    pub(super) async fn run(self) -> Input {
        let command = self.start.deliver.command;
        // A task of its own, so that a panic of the embedding is this command's failure alone.
        match tokio::spawn(self.attempt()).await {
            Ok(finished) => finished,
            Err(panic) => {
                let outcome = json!({ "outcome": "host-failure", "message": panic.to_string() });
                finished(command, wire::Report::Failed, "host-failure", Some(outcome))
            }
        }
    }

    async fn attempt(self) -> Input {
        let Self { parts, start: Start { deliver, lane, attempt }, slot, cancel } = self;
        let called_off = || finished(deliver.command, wire::Report::Cancelled, "cancelled", None);
        let slot = if let Some(slot) = slot {
            slot
        } else {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return called_off(),
                slot = parts.lanes.take(lane) => slot,
            }
        };
        if cancel.is_cancelled() {
            return called_off();
        }
        let mut kind = parts.kinds.take(&deliver.kind, &deliver.kind_digest);
        // It was there when the command was accepted, before a restart.
        if kind.is_none()
            && let Some(kept) = &parts.kept
        {
            kind = kept.load(&deliver.kind_digest).await.filter(|kind| kind.manifest().name == deliver.kind);
        }
        let Some(kind) = kind else {
            return finished(deliver.command, wire::Report::Failed, Refusal::KindUnavailable.code(), None);
        };
        let watcher: Arc<dyn Watcher> = Arc::new(Follower {
            command: deliver.command,
            sink: Arc::clone(&parts.sink),
            time: parts.time.reading(),
            role: parts.identity.role.to_string(),
        });
        let grants = parts.node.policy.grants_of(&deliver.kind);
        let mut capabilities = parts.node.capabilities.clone();
        let asked = Arc::new(Asked::default());
        let over = CancellationToken::new();
        let _over = over.clone().drop_guard();
        let commanded = Commanded {
            deliver: &deliver,
            declared: &kind.manifest().capabilities,
            granted: &grants,
            asked: Arc::clone(&asked),
            cancel: cancel.clone(),
            over,
            watcher: Arc::clone(&watcher),
        };
        for provider in &parts.providers {
            provider.provide(&commanded, &mut capabilities);
        }
        capabilities.files.get_or_insert_with(|| parts.node.files(&grants));
        let heard: Heard = {
            let (sink, command) = (Arc::clone(&parts.sink), deliver.command);
            Arc::new(move |stream, bytes| sink.output(command, attempt, stream, bytes))
        };
        let programs = parts.node.programs().map(|programs| Arc::new(programs.heard_by(heard)));
        if let Some(programs) = programs.clone().filter(|_| capabilities.process.is_none()) {
            capabilities.process = Some(programs);
        }
        let stopped = cancel.clone();
        let run = Run {
            command_id: deliver.command.to_string(),
            node_id: deliver.node.to_string(),
            attempt,
            timeout: Some(Duration::from_millis(deliver.timeout_ms)),
            grants: Arc::new(ArcSwap::from_pointee(grants)),
            journal: parts.journal.effects_of(deliver.command, attempt),
            slot,
            capabilities,
            watcher,
            ..parts.node.run_of(&kind, deliver.payload, cancel)
        };
        let report = with_programs(programs, stopped, kind.run(run)).await;
        tracing::info!(
            command = %deliver.command, kind = deliver.kind, attempt,
            outcome = report.outcome.name(), wall_ms = report.wall.as_millis(),
        );
        match (&report.outcome, asked.take()) {
            (Outcome::Succeeded { result }, Some(intent)) => {
                Input::RunIntends { command: deliver.command, intent, result: result.to_string().into_bytes() }
            }
            // What a run asked for that failed is not done.
            _ => reported(deliver.command, &report),
        }
    }
}

fn finished(command: CommandId, report: wire::Report, reason: &str, result: Option<Value>) -> Input {
    let result = result.map(|result| result.to_string().into_bytes()).unwrap_or_default();
    Input::RunFinished { command, report, reason: reason.to_owned(), result }
}

/// A success is the kind's own result; anything else says how it ended and which effects it had.
fn reported(command: CommandId, report: &Report) -> Input {
    let outcome = &report.outcome;
    if let Outcome::Succeeded { result } = outcome {
        return finished(command, wire::Report::Succeeded, "", Some(result.clone()));
    }
    let mut document = serde_json::to_value(outcome).expect("outcomes are JSON objects");
    document["effects"] = json!(report.effects);
    let state = if *outcome == Outcome::Cancelled { wire::Report::Cancelled } else { wire::Report::Failed };
    finished(command, state, outcome.name(), Some(document))
}

/// Passes what a run says to the sink.
struct Follower {
    command: CommandId,
    sink: Arc<dyn FrameSink>,
    /// The clock that the run began with.
    time: Reading,
    role: String,
}

impl Watcher for Follower {
    fn log(&self, level: Level, target: &str, message: &str, fields: &str) {
        self.sink.log(self.command, level, target, message, fields);
    }

    fn progress(&self, done: u64, total: Option<u64>, unit: &str, message: &str) {
        self.sink.progress(self.command, done, total, unit, message);
    }

    fn now_ms(&self) -> u64 {
        self.time.at(Instant::now())
    }

    fn role(&self) -> String {
        self.role.clone()
    }
}
