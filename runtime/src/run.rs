//! One run of a kind, from payload to report.
//!
//! **Invariant:** a run ends by its deadline, whatever the guest or a host call does, and its report names every effect.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bc_proto::grants::Grants;
use bc_proto::schema::Problem;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wasmtime::{Trap, WasmBacktrace};

use crate::capability::Capabilities;
use crate::effect::{EffectJournal, ReportOnly};
use crate::gate::{Gate, Meter, Purpose, Stop};
use crate::kind::Kind;
use crate::outcome::{Failure, Frame, Outcome, Report};
use crate::store::{self, Limiter, RunState};
use crate::transcript::{Replay, Transcript};
use crate::v1::{self, wit::command};

/// What `validate` may take: it is pure, and it runs where commands are queued.
const VALIDATE_CPU: Duration = Duration::from_millis(500);
const VALIDATE_DEADLINE: Duration = Duration::from_secs(2);

/// The largest result that is taken. Output that is larger belongs into an upload.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// Frames of a trap that are reported: a recursion has thousands, and the innermost tell.
const MAX_FRAMES: usize = 32;

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
            return Report::without_run(Outcome::InvalidPayload { problems });
        }
        let _permit = self.0.engine.runs().acquire().await.expect("the semaphore is never closed");
        let _ticking = self.0.engine.ticking();
        let started = Instant::now();
        let timeout = run.timeout.unwrap_or(self.0.manifest.timeout.0).min(self.0.manifest.timeout.0);
        let context = command::RunContext {
            command_id: run.command_id,
            node_id: run.node_id,
            attempt: run.attempt,
            deadline_ms: run.watcher.now_ms().saturating_add(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
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
            transcript: run.record.then(Vec::new),
            ..self.gate(timeout, self.0.manifest.limits.cpu.0)
        };
        let deadline = gate.deadline;
        let mut store = store::new(&self.0.engine, self.state(gate));
        let guest = async {
            let guest = self.0.guest.instantiate_async(&mut store).await?;
            guest.better_compute_kind_command().call_run(&mut store, &context, &payload).await
        };
        // The gate ends every host call at the deadline and the epoch callback every computation: this is the net below.
        let ended = tokio::time::timeout_at(deadline + Duration::from_millis(50), guest).await;
        let ended = ended.unwrap_or_else(|_| Err(Stop::Deadline { during: None }.into()));
        let RunState { gate, limiter } = store.into_data();
        let outcome = match ended {
            Ok(Ok(result)) => self.result(&result),
            Ok(Err(failure)) => Outcome::GuestFailure(failure.into()),
            Err(error) => classify(&error, &gate, self.0.manifest.limits.memory.0),
        };
        metrics::histogram!("bc_kind_run_seconds", "outcome" => outcome.name()).record(started.elapsed());
        Report {
            outcome,
            effects: gate.effects,
            host_calls: gate.calls,
            dropped_log_lines: gate.log.dropped(),
            cpu: gate.meter.spent(),
            wall: started.elapsed(),
            peak_memory_bytes: limiter.peak_bytes(),
            transcript: gate.transcript.map(|calls| Transcript {
                digest: self.0.digest.clone(),
                kind: self.0.manifest.name.clone(),
                payload: serde_json::from_str(&payload).expect("it was written from a value"),
                calls,
            }),
        }
    }

    /// Checks a payload by the kind's schema and by the kind itself: every problem, none if it is right. The kind's code runs
    /// with no capability and a tight budget. `Err` is how that run ended when it gave no answer.
    pub async fn validate(&self, payload: &Value) -> Result<Vec<Problem>, Outcome> {
        let problems = self.schema_problems(payload);
        if !problems.is_empty() {
            return Ok(problems);
        }
        let _permit = self.0.engine.runs().acquire().await.expect("the semaphore is never closed");
        let _ticking = self.0.engine.ticking();
        let gate = self.gate(VALIDATE_DEADLINE, VALIDATE_CPU);
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
            Err(error) => Err(classify(&error, &gate, self.0.manifest.limits.memory.0)),
        }
    }

    fn state(&self, gate: Gate) -> RunState {
        RunState { gate, limiter: Limiter::new(self.0.manifest.limits.memory.0) }
    }

    /// A gate that lets nothing but log pass.
    fn gate(&self, timeout: Duration, cpu: Duration) -> Gate {
        Gate {
            purpose: Purpose::Validate,
            manifest: Arc::clone(&self.0.manifest),
            grants: Arc::new(ArcSwap::from_pointee(Grants::default())),
            capabilities: Capabilities::default(),
            cancel: CancellationToken::new(),
            deadline: tokio::time::Instant::now() + timeout,
            journal: Arc::new(ReportOnly),
            slot: None,
            watcher: Arc::new(Nobody),
            meter: Meter::start(cpu),
            effects: Vec::new(),
            transcript: None,
            calls: 0,
            log: v1::LogBudget::default(),
            last_words: None,
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
    fn without_run(outcome: Outcome) -> Self {
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

impl From<command::Failure> for Failure {
    fn from(failure: command::Failure) -> Self {
        Self {
            code: failure.code,
            message: failure.message,
            retryable: failure.retryable,
            // Details that are not JSON are kept as text rather than dropped.
            details: failure.details.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text))),
        }
    }
}

fn classify(error: &wasmtime::Error, gate: &Gate, memory_bytes: u64) -> Outcome {
    match error.downcast_ref::<Stop>() {
        Some(Stop::Denied(message)) => Outcome::Denied { message: message.clone() },
        Some(Stop::Cancelled) => Outcome::Cancelled,
        Some(Stop::Deadline { during }) => Outcome::Deadline { during: during.clone() },
        Some(Stop::Cpu) => {
            Outcome::Cpu { limit_ms: u64::try_from(gate.meter.budget().as_millis()).unwrap_or(u64::MAX) }
        }
        Some(Stop::Memory) => Outcome::Memory { limit_bytes: memory_bytes },
        Some(Stop::Diverged(message)) => Outcome::Diverged { message: message.clone() },
        Some(Stop::Host(message)) => Outcome::HostFailure { message: message.clone() },
        None => Outcome::Trap { message: last_words(error, gate), frames: frames(error) },
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
        Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
        None => format!("function {}", frame.func_index()),
    };
    backtrace.frames().iter().take(MAX_FRAMES).map(|frame| Frame { function: name(frame) }).collect()
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
