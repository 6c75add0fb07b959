//! One leased command, from the lease to its end.
//!
//! **Invariant:** its program runs only after the database has taken the start, and only while the lease counts by this machine's own
//! clock; its whole tree is gone before an end is told.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use bc_proto::id::{CommandId, NodeId};
use bc_proto::rules::action::report::{self, Failed as SaidFailed, VARIABLE};
use bc_proto::rules::action::{Actions, Invocation};
use bc_proto::rules::backoff::Backoff;
use bc_proto::rules::lease::Refusal;
use bc_runtime::capability::Capabilities;
use bc_runtime::capability::process::OutputStream;
use bc_runtime::effect::ReportOnly;
use bc_runtime::{Kind, Mode, Outcome, Run, Watcher};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::allowed::{Allowed, grants};
use super::live::{Live, STREAMS};
use super::postgres::{Database, End, Failed, Leased};
use super::reports::{Reports, Socket};
use super::watcher::OwnLog;
use crate::capability::process::{self, Programs, with_programs};

/// Between two tries of a call that got no answer.
const RETRY: Backoff = Backoff { min: Duration::from_millis(200), max: Duration::from_secs(10) };

/// How often the lease is renewed at the least: a cancel whose word was lost is noticed then.
const MOST_BEAT: Duration = Duration::from_secs(30);

/// How much longer than its program the kind has, to say how that ended.
const TO_SAY: Duration = Duration::from_secs(30);

/// How long a program that has reported its end may take to end.
const TO_END: Duration = Duration::from_secs(10);

/// What all commands of a runner have in common.
pub(super) struct Common {
    pub(super) db: Database,
    pub(super) actions: Actions,
    pub(super) kind: Kind,
    pub(super) supervisor: std::path::PathBuf,
    /// How long an action may take that says nothing of its own.
    pub(super) timeout: Duration,
    pub(super) lease: Duration,
    /// Cancelled when the runner waits no longer for what runs.
    pub(super) stop: CancellationToken,
    /// Cancelled when it waits no longer for the database either.
    pub(super) leave: CancellationToken,
}

/// Why a run is ended before its program has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Halt {
    /// Somebody called it off.
    CalledOff,
    /// The lease may be over: the database could not be asked.
    OutOfReach,
    /// The lease is over: the database says so.
    Lost(String),
    /// The runner stops.
    Stopping,
}

/// One command.
pub(super) struct Command {
    common: Arc<Common>,
    leased: Leased,
    /// Notified when it was called off.
    cancelled: Arc<Notify>,
    until: Mutex<Instant>,
    why: OnceLock<Halt>,
    halt: CancellationToken,
    live: Arc<Live>,
}

/// What the kind says of the program.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Exit {
    Code(i32),
    Signal(i32),
    TimedOut,
}

impl Command {
    pub(super) fn new(common: Arc<Common>, leased: Leased, cancelled: Arc<Notify>) -> Self {
        let until = Mutex::new(leased.until);
        let (why, halt, live) = (OnceLock::new(), CancellationToken::new(), Arc::new(Live::new()));
        Self { common, leased, cancelled, until, why, halt, live }
    }

    /// Runs it, and tells how it ended.
    pub(super) async fn run(self) {
        tracing::info!(command = %self.name(), action = ?self.leased.action, "leased");
        let end = match self.resolve().await {
            Err(words) => Some(End::Failed { exit_code: None, error: words }),
            Ok(invocation) => {
                tokio::select! {
                    // It never ends by itself: the lease is renewed until there is an end.
                    () = self.keep() => None,
                    end = self.carry_out(invocation) => end,
                }
            }
        };
        let Some(end) = end else { return };
        let output = self.live.kept();
        tokio::select! {
            () = self.keep() => {}
            () = self.settle(&end, &output) => {}
        }
    }

    fn name(&self) -> CommandId {
        CommandId::from_uuid(self.leased.id)
    }

    /// What it means; why not, in words.
    async fn resolve(&self) -> Result<Invocation, String> {
        let Leased { action, payload, .. } = &self.leased;
        let invocation =
            self.common.actions.resolve(action, payload).map_err(|refusal| format!("{}: {refusal}", refusal.code()))?;
        match self.common.kind.validate(&self.payload()).await {
            Ok(problems) if problems.is_empty() => Ok(invocation),
            Ok(problems) => {
                let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
                Err(format!("invalid-payload: {}", said.join("; ")))
            }
            Err(outcome) => Err(format!("{}: {outcome}", outcome.name())),
        }
    }

    fn payload(&self) -> Value {
        json!({ "action": self.leased.action, "payload": self.leased.payload })
    }

    /// Starts it and runs it to its end; `None` where nothing is to be told, since it is nobody's business here any more.
    async fn carry_out(&self, invocation: Invocation) -> Option<End> {
        match self.retried(|| self.common.db.start(&self.leased)).await {
            Ok(()) => {}
            Err(Some((Refusal::CalledOff, message))) => {
                return Some(End::Failed { exit_code: None, error: format!("not started: {message}") });
            }
            Err(refused) => {
                tracing::warn!(command = %self.name(), ?refused, "not started");
                return None;
            }
        }
        let timeout = invocation.timeout.unwrap_or(self.common.timeout);
        let reports = invocation.self_reporting.then(|| Reports::new(Arc::clone(&self.live), self.halt.clone()));
        let socket = match reports.as_ref().map(Reports::serve).transpose() {
            Ok(socket) => socket,
            Err(error) => {
                let error = format!("no-socket: the program has nowhere to report: {error}");
                return Some(End::Failed { exit_code: None, error });
            }
        };
        let outcome = {
            let running = self.program(invocation, timeout, socket.as_ref());
            let stopping = self.common.stop.cancelled();
            let telling = self.tell();
            let ended = async {
                match &reports {
                    Some(reports) => {
                        reports.ended().await;
                        sleep(TO_END).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(running, stopping, telling, ended);
            let (mut is_stopping, mut is_over) = (false, false);
            loop {
                tokio::select! {
                    outcome = &mut running => break outcome,
                    () = &mut stopping, if !is_stopping => {
                        is_stopping = true;
                        self.end(Halt::Stopping);
                    }
                    () = &mut ended, if !is_over => {
                        is_over = true;
                        // What it reported stands; the rest of it is not waited for.
                        self.halt.cancel();
                    }
                    () = &mut telling => {}
                }
            }
        };
        // Who follows it sees all of it before the end.
        let _ = self.tell_all().await;
        let said = reports.as_ref().and_then(|reports| reports.end());
        self.judge(&outcome, reports.is_some(), said, timeout)
    }

    /// Runs the kind with the program behind it.
    async fn program(&self, invocation: Invocation, timeout: Duration, socket: Option<&Socket>) -> Outcome {
        let live = Arc::clone(&self.live);
        let heard: process::Heard = Arc::new(move |stream: OutputStream, bytes: &[u8]| live.add(stream, bytes));
        let mut programs = Programs::new(self.common.supervisor.clone(), process::PATH).heard_by(heard);
        if let Some(socket) = socket {
            programs = programs.with_variable(VARIABLE, socket.path().display().to_string());
        }
        let programs = Arc::new(programs);
        let action = &self.leased.action;
        let allowed = Allowed::new(action, invocation, timeout, Arc::clone(&programs), Arc::clone(&self.live));
        let watcher: Arc<dyn Watcher> = Arc::new(OwnLog { command: self.name() });
        let run = Run {
            command_id: self.name().to_string(),
            // The gateway's own id is not told to whoever leases by its slug.
            node_id: NodeId::from_uuid(Uuid::nil()).to_string(),
            attempt: 1,
            payload: self.payload(),
            timeout: Some(timeout + TO_SAY),
            mode: Mode::Live,
            record: false,
            capabilities: Capabilities { process: Some(Arc::new(allowed)), ..Capabilities::default() },
            grants: Arc::new(ArcSwap::from_pointee(grants(action))),
            journal: Arc::new(ReportOnly),
            cancel: self.halt.clone(),
            slot: None,
            watcher,
        };
        with_programs(Some(programs), self.halt.clone(), self.common.kind.run(run)).await.outcome
    }

    /// How it ended, from what the program said, how it went, and why it was ended.
    fn judge(
        &self,
        outcome: &Outcome,
        is_reporting: bool,
        said: Option<report::End>,
        timeout: Duration,
    ) -> Option<End> {
        let failed = |exit_code, error: String| Some(End::Failed { exit_code, error });
        match said {
            Some(report::End::Completed) => return Some(End::Done),
            Some(report::End::Failed(SaidFailed { error, exit_code })) => return failed(exit_code, error),
            None => {}
        }
        match self.why.get() {
            Some(Halt::CalledOff) => {
                return failed(None, "cancelled: it was called off, and its program was killed".into());
            }
            Some(Halt::Stopping) => {
                return failed(None, "runner-stopped: the runner was stopped, and the program killed".into());
            }
            Some(Halt::OutOfReach) => {
                let words =
                    "lease-over: the database was out of reach until the lease ran out, and the program was killed";
                return failed(None, words.into());
            }
            Some(Halt::Lost(message)) => {
                tracing::warn!(command = %self.name(), why = message, "the lease was lost; the program was killed");
                return None;
            }
            None => {}
        }
        let Outcome::Succeeded { result } = outcome else {
            return failed(None, format!("{}: {outcome}", outcome.name()));
        };
        match Exit::deserialize(&result["exit"]).context("the kind's result has no exit") {
            Ok(Exit::Code(0)) if is_reporting => {
                failed(Some(0), "no-report: the program ended with 0 and did not report an end".into())
            }
            Ok(Exit::Code(0)) => Some(End::Done),
            Ok(Exit::Code(code)) => failed(Some(code), format!("exit-code: the program ended with {code}")),
            Ok(Exit::Signal(signal)) => failed(None, format!("signal: the program was ended by signal {signal}")),
            Ok(Exit::TimedOut) => {
                let within = humantime::format_duration(timeout);
                failed(None, format!("timeout: the program did not end within {within} and was killed"))
            }
            Err(error) => failed(None, format!("host-failure: {error:#}")),
        }
    }

    /// Ends the run, for the first reason there is.
    fn end(&self, why: Halt) {
        if self.why.set(why).is_ok() {
            self.halt.cancel();
        }
    }

    fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the lease, and ends the run when it is called off or the lease is over. Does not return.
    async fn keep(&self) {
        let beat = (self.common.lease / 3).min(MOST_BEAT);
        let mut next = Instant::now() + beat;
        let mut failures = 0;
        loop {
            let until = self.until();
            tokio::select! {
                () = sleep_until(next.min(until)) => {}
                () = self.cancelled.notified() => {}
            }
            if Instant::now() >= until {
                self.end(Halt::OutOfReach);
            }
            next = match self.renewed(until).await {
                Ok((until, is_off)) => {
                    failures = 0;
                    *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
                    if is_off {
                        self.end(Halt::CalledOff);
                    }
                    Instant::now() + beat
                }
                Err(Failed::Refused(_, message)) => {
                    self.end(Halt::Lost(message));
                    std::future::pending().await
                }
                Err(Failed::Away(message)) => {
                    failures += 1;
                    tracing::warn!(command = %self.name(), why = message, "the lease is not renewed; the database is asked again");
                    let again = Instant::now() + wait(failures);
                    // Past its end there is nothing that waits for the next try but the report.
                    if Instant::now() < until { again.min(until) } else { again }
                }
            };
            if Instant::now() >= self.until() {
                self.end(Halt::OutOfReach);
                sleep(wait(failures)).await;
            }
        }
    }

    /// Asks for the lease's renewal, and while it counts no longer than that: a database that does not answer must not keep a program
    /// running beyond it.
    async fn renewed(&self, until: Instant) -> Result<(Instant, bool), Failed> {
        let asked = self.common.db.renew(&self.leased, self.common.lease);
        if Instant::now() >= until {
            return asked.await;
        }
        let in_time = timeout_at(until, asked).await;
        in_time.unwrap_or_else(|_| Err(Failed::Away("the database does not answer before the lease is over".into())))
    }

    /// Tells output as it comes. Returns only when the database wants no more of it.
    async fn tell(&self) {
        loop {
            self.live.gathered().await;
            let mut failures = 0;
            while let Err(failed) = self.tell_all().await {
                if let Failed::Refused(_, message) = failed {
                    tracing::debug!(command = %self.name(), why = message, "its output is wanted no more");
                    return std::future::pending().await;
                }
                failures += 1;
                sleep(wait(failures)).await;
            }
        }
    }

    async fn tell_all(&self) -> Result<(), Failed> {
        while let Some(piece) = self.live.piece() {
            self.common.db.append(&self.leased, STREAMS[piece.stream], piece.offset, &piece.bytes).await?;
            self.live.told(&piece);
        }
        Ok(())
    }

    /// Tells the end until the database has taken it, or says that it is not this runner's to tell.
    async fn settle(&self, end: &End, output: &[Value; 2]) {
        let told = async {
            let mut failures = 0;
            loop {
                match self.common.db.settle(&self.leased, end, output).await {
                    Ok(()) => {
                        tracing::info!(command = %self.name(), ?end, "over");
                        return;
                    }
                    Err(Failed::Refused(refusal, message)) => {
                        tracing::warn!(command = %self.name(), ?refusal, why = message, ?end, "the end was not taken");
                        return;
                    }
                    Err(Failed::Away(message)) => {
                        failures += 1;
                        tracing::warn!(command = %self.name(), why = message, "the end is told again");
                        sleep(wait(failures)).await;
                    }
                }
            }
        };
        tokio::select! {
            () = told => {}
            () = self.common.leave.cancelled() => {
                tracing::error!(command = %self.name(), ?end, "the runner ends before the database has taken this end");
            }
        }
    }

    /// A call until it is answered; `None` when the run was ended, or the runner stopped, before that.
    async fn retried<T, F>(&self, call: impl Fn() -> F) -> Result<T, Option<(Refusal, String)>>
    where
        F: Future<Output = Result<T, Failed>>,
    {
        let mut failures = 0;
        loop {
            if self.halt.is_cancelled() || self.common.stop.is_cancelled() {
                return Err(None);
            }
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(Failed::Refused(refusal, message)) => return Err(Some((refusal, message))),
                Err(Failed::Away(message)) => {
                    failures += 1;
                    tracing::warn!(command = %self.name(), why = message, "asked again");
                    tokio::select! {
                        () = sleep(wait(failures)) => {}
                        () = self.halt.cancelled() => {}
                        () = self.common.stop.cancelled() => {}
                    }
                }
            }
        }
    }
}

/// The wait after so many failures. A runner is one of few, so nothing needs to be spread.
pub(super) fn wait(failures: u32) -> Duration {
    RETRY.wait(failures.saturating_sub(1), 1.0)
}
