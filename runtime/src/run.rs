//! One run of a kind, from payload to report.
//!
//! **Invariant:** a run ends by its deadline, whatever the guest or a host call does, and its report names every effect.

mod ended;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bc_proto::grants::Grants;
use bc_proto::schema::Problem;
use serde_json::Value;
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::capability::Capabilities;
use crate::effect::{EffectJournal, Effects, ReportOnly};
use crate::engine::Ticking;
use crate::gate::{Gate, Meter, Purpose, Stop};
use crate::kind::Kind;
use crate::outcome::{Failure, Outcome, Report};
use crate::redact::Known;
use crate::store::{self, Limiter, RunState};
use crate::transcript::{Recording, Replay, Transcript};
use crate::v1::{self, wit::command};

/// What `validate` may take: it is pure, and it runs where commands are queued.
const VALIDATE_CPU: Duration = Duration::from_millis(500);
const VALIDATE_DEADLINE: Duration = Duration::from_secs(2);

/// The largest result that is taken. Output that is larger belongs into an upload.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// Something that is released when a run and every thread that it started are gone: a lane's worker slot.
pub type Slot = Option<Arc<dyn Any + Send + Sync>>;

/// Who follows a run while it goes on.
pub trait Watcher: Send + Sync {
    /// A log line, within the run's budget.
    fn log(&self, level: v1::wit::log::Level, target: &str, message: &str, fields: &str);
    /// Progress: `done` of `total` in `unit`.
    fn progress(&self, done: u64, total: Option<u64>, unit: &str, message: &str);
    /// Server time in milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
    /// The role that the node has now.
    fn role(&self) -> String;
}

/// What a run is for.
#[derive(Debug, Default)]
pub enum Mode {
    /// To do it.
    #[default]
    Live,
    /// To list the effects that it would have now.
    Plan,
    /// To give it the answers of a recorded run.
    Replay(Transcript),
}

/// One run.
pub struct Run {
    /// The command's id, `cmd_…`.
    pub command_id: String,
    /// The node's id, `node_…`.
    pub node_id: String,
    /// 1 on the first start.
    pub attempt: u32,
    /// The payload.
    pub payload: Value,
    /// How long it may take; the manifest's timeout unless the command has less time left.
    pub timeout: Option<Duration>,
    /// What it is for.
    pub mode: Mode,
    /// Whether to record a transcript.
    pub record: bool,
    /// What the node offers to it.
    pub capabilities: Capabilities,
    /// What the node's operator grants to its kind, read at every call.
    pub grants: Arc<ArcSwap<Grants>>,
    /// Where its effects are written down.
    pub journal: Arc<dyn EffectJournal>,
    /// Ends it between two actions.
    pub cancel: CancellationToken,
    /// Its lane slot.
    pub slot: Slot,
    /// Who follows it.
    pub watcher: Arc<dyn Watcher>,
}

impl Kind {
    /// Runs the kind to its end.
    pub async fn run(&self, run: Run) -> Report {
        let problems = self.schema_problems(&run.payload);
        if !problems.is_empty() {
            return Report::invalid_payload(problems);
        }
        let started = Instant::now();
        let timeout = run.timeout.unwrap_or(self.0.manifest.timeout.0).min(self.0.manifest.timeout.0);
        let context = command::RunContext {
            command_id: run.command_id,
            node_id: run.node_id,
            attempt: run.attempt,
            deadline_ms: run.watcher.now_ms().saturating_add(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        };
        let deadline = tokio::time::Instant::now() + timeout;
        let _place = match self.place(deadline, &run.cancel).await {
            Ok(place) => place,
            Err(outcome) => return Report::without_run(outcome),
        };
        let payload = run.payload.to_string();
        let gate = Gate {
            purpose: match run.mode {
                Mode::Live => Purpose::Live,
                Mode::Plan => Purpose::Plan,
                Mode::Replay(transcript) => Purpose::Replay(Replay::new(transcript)),
            },
            capabilities: run.capabilities,
            grants: run.grants,
            journal: run.journal,
            cancel: run.cancel,
            slot: run.slot,
            watcher: run.watcher,
            recording: run.record.then(Recording::default),
            ..self.gate(deadline, self.0.manifest.limits.cpu.0)
        };
        let mut store = store::new(&self.0.engine, self.state(gate));
        let guest = async {
            // The guest starts only if it is still wanted: a short one would be over before anyone looks again.
            store.data().gate.still_wanted()?;
            let guest = self.0.guest.instantiate_async(&mut store).await?;
            guest.better_compute_kind_command().call_run(&mut store, &context, &payload).await
        };
        // The gate ends every host call at the deadline and the epoch callback every computation: this is the net below.
        let span = tracing::info_span!("kind_run", kind = self.0.manifest.name, command = context.command_id);
        let ended = tokio::time::timeout_at(deadline + Duration::from_millis(50), guest).instrument(span).await;
        let ended = ended.unwrap_or_else(|_| Err(Stop::Deadline { during: None }.into()));
        let RunState { gate, limiter, .. } = store.into_data();
        let outcome = match ended {
            Ok(_) if gate.left_to_replay().is_some() => Outcome::Diverged {
                message: format!(
                    "it ended where the recorded run called {}",
                    gate.left_to_replay().unwrap_or_default()
                ),
            },
            Ok(Ok(result)) => self.result(&result),
            Ok(Err(failure)) => Outcome::GuestFailure(failure.into()),
            Err(error) => ended::by(&error, &gate, self.0.manifest.limits.memory.0),
        };
        let outcome = without_secrets(outcome, &gate.known);
        metrics::histogram!(
            "better_compute_kind_run_seconds", "kind" => self.0.manifest.name.clone(), "outcome" => outcome.name()
        )
        .record(started.elapsed());
        Report {
            outcome,
            effects: gate.effects.into_list(),
            host_calls: gate.calls,
            dropped_log_lines: gate.log.dropped(),
            cpu: gate.meter.spent(),
            wall: started.elapsed(),
            peak_memory_bytes: limiter.peak_bytes(),
            transcript: gate
                .recording
                .map(|recording| recording.finish(self.0.digest.clone(), self.0.manifest.name.clone(), run.payload)),
        }
    }

    /// Checks a payload by the kind's schema and by the kind itself: every problem, none if it is right. The kind's code runs
    /// with no capability and a tight budget. `Err` is how that run ended when it gave no answer.
    pub async fn validate(&self, payload: &Value) -> Result<Vec<Problem>, Outcome> {
        let problems = self.schema_problems(payload);
        if !problems.is_empty() {
            return Ok(problems);
        }
        let deadline = tokio::time::Instant::now() + VALIDATE_DEADLINE;
        let _place = self.place(deadline, &CancellationToken::new()).await?;
        let gate = self.gate(deadline, VALIDATE_CPU);
        let mut store = store::new(&self.0.engine, self.state(gate));
        let answer = async {
            let guest = self.0.guest.instantiate_async(&mut store).await?;
            guest.better_compute_kind_command().call_validate(&mut store, &payload.to_string()).await
        };
        let answer = answer.await;
        let gate = store.into_data().gate;
        match answer {
            Ok(Ok(())) => Ok(Vec::new()),
            Ok(Err(problems)) => Ok(problems.into_iter().map(|p| Problem::new(p.pointer, p.message)).collect()),
            Err(error) => Err(ended::by(&error, &gate, self.0.manifest.limits.memory.0)),
        }
    }

    /// Waits for one of the engine's places, and keeps the epoch moving while it is taken.
    async fn place(
        &self,
        deadline: tokio::time::Instant,
        cancel: &CancellationToken,
    ) -> Result<(SemaphorePermit<'_>, Ticking), Outcome> {
        let permit = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Outcome::Cancelled),
            permit = self.0.engine.runs().acquire() => permit.expect("the semaphore is never closed"),
            () = tokio::time::sleep_until(deadline) => return Err(Outcome::Deadline { during: None }),
        };
        Ok((permit, self.0.engine.ticking()))
    }

    fn state(&self, gate: Gate) -> RunState {
        RunState { gate, limiter: Limiter::new(self.0.manifest.limits.memory.0), wasi: v1::Wasi::default() }
    }

    /// A gate that lets nothing but log pass.
    fn gate(&self, deadline: tokio::time::Instant, cpu: Duration) -> Gate {
        Gate {
            purpose: Purpose::Validate,
            manifest: Arc::clone(&self.0.manifest),
            grants: Arc::new(ArcSwap::from_pointee(Grants::default())),
            capabilities: Capabilities::default(),
            cancel: CancellationToken::new(),
            deadline,
            journal: Arc::new(ReportOnly),
            slot: None,
            watcher: Arc::new(Nobody),
            meter: Meter::start(cpu),
            effects: Effects::default(),
            recording: None,
            calls: 0,
            log: v1::LogBudget::default(),
            last_words: None,
            known: Known::default(),
        }
    }

    fn result(&self, text: &str) -> Outcome {
        let invalid = |message: String, problems: Vec<Problem>| {
            Outcome::GuestFailure(Failure {
                code: "invalid-result".into(),
                message,
                retryable: false,
                details: (!problems.is_empty()).then(|| serde_json::json!({ "problems": problems })),
            })
        };
        if text.len() > MAX_RESULT_BYTES {
            return invalid(
                format!("the result has {} bytes; at most {MAX_RESULT_BYTES} are taken", text.len()),
                vec![],
            );
        }
        match serde_json::from_str(text) {
            Err(error) => invalid(format!("the result is not JSON: {error}"), vec![]),
            Ok(result) => match self.0.result().problems(&result) {
                problems if problems.is_empty() => Outcome::Succeeded { result },
                problems => invalid("the result does not fit the manifest's result schema".into(), problems),
            },
        }
    }
}

impl Report {
    /// The report of a run that did not take place, since its payload has problems.
    pub fn invalid_payload(problems: Vec<Problem>) -> Self {
        Self::without_run(Outcome::InvalidPayload { problems })
    }

    /// The report of a run that did not take place.
    pub fn without_run(outcome: Outcome) -> Self {
        Self {
            outcome,
            effects: Vec::new(),
            host_calls: 0,
            dropped_log_lines: 0,
            cpu: Duration::ZERO,
            wall: Duration::ZERO,
            peak_memory_bytes: 0,
            transcript: None,
        }
    }
}

/// The outcome as it may be kept and sent.
fn without_secrets(outcome: Outcome, known: &Known) -> Outcome {
    if known.is_empty() {
        return outcome;
    }
    match known.within(outcome) {
        Ok(Outcome::Succeeded { result }) if result.to_string().len() > MAX_RESULT_BYTES => {
            let message = format!("without the secrets in it, the result has more than {MAX_RESULT_BYTES} bytes");
            Outcome::GuestFailure(Failure { code: "invalid-result".into(), message, retryable: false, details: None })
        }
        Ok(outcome) => outcome,
        Err(_) => Outcome::HostFailure { message: "the outcome held a secret where none can be taken out".into() },
    }
}

/// Follows a validation: nobody does.
struct Nobody;

impl Watcher for Nobody {
    fn log(&self, _: v1::wit::log::Level, _: &str, _: &str, _: &str) {}
    fn progress(&self, _: u64, _: Option<u64>, _: &str, _: &str) {}
    fn now_ms(&self) -> u64 {
        0
    }
    fn role(&self) -> String {
        String::new()
    }
}
