//! The one door for every host call.
//!
//! [`Gate::pass`] does, in this order: grant check → cancel check → deadline → plan or replay → intent to the effect journal
//! → the call → outcome to the journal → transcript → span and metrics. Whoever adds a host function calls it, and gets all
//! of these for every kind in every language.
//!
//! **Invariant:** no capability is reached beside it. A call that may not be made does not return to the guest: it ends the
//! run with a [`Stop`].

mod meter;

use std::future::Future;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bc_proto::grants::{Grants, Need};
use bc_proto::manifest::Manifest;
use bc_proto::rules::ask;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub(crate) use self::meter::Meter;
use crate::capability::{Answer, Capabilities};
use crate::effect::{EffectJournal, Effects, State};
use crate::redact::Known;
use crate::run::{Slot, Watcher};
use crate::transcript::{Recording, Replay};
use crate::v1::{Error, LogBudget};

/// What a transcript holds in place of a secret.
const REDACTED: &str = "[redacted]";

/// The code of the error with which a capability says that it was called off.
const CANCELLED: &str = "cancelled";

/// The code of the error that stands for a capability's panic.
const PANICKED: &str = "host-panicked";

/// One host call as the gate sees it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The WIT interface, without package and version.
    pub interface: &'static str,
    /// The function.
    pub function: &'static str,
    /// What it needs of the grants; `None` for the ambient interfaces.
    pub need: Option<Need<'a>>,
    /// What it does to the node.
    pub action: Action,
    /// Whether its answer must not be recorded.
    pub secret: bool,
}

/// What a call does to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Read,
    /// It changes it: journaled before and after, and not performed in a plan.
    Effect,
    /// It goes on with an effect that was journaled when it began: not performed in a plan either.
    Part,
}

impl<'a> Call<'a> {
    /// A call that needs no grant.
    pub(crate) const fn ambient(interface: &'static str, function: &'static str) -> Self {
        Self { interface, function, need: None, action: Action::Read, secret: false }
    }

    /// A call that reads.
    pub(crate) const fn read(interface: &'static str, function: &'static str, need: Need<'a>) -> Self {
        Self { interface, function, need: Some(need), action: Action::Read, secret: false }
    }

    /// A call that changes the node.
    pub(crate) const fn effect(interface: &'static str, function: &'static str, need: Need<'a>) -> Self {
        Self { interface, function, need: Some(need), action: Action::Effect, secret: false }
    }

    /// A call that goes on with an effect.
    pub(crate) const fn part(interface: &'static str, function: &'static str, need: Need<'a>) -> Self {
        Self { interface, function, need: Some(need), action: Action::Part, secret: false }
    }

    /// Interface and function, as they stand in journals, transcripts and messages.
    pub fn name(&self) -> String {
        format!("{}.{}", self.interface, self.function)
    }

    /// Log and progress have no answer that a guest could see: they are not part of what a run did.
    fn recorded(&self) -> bool {
        !matches!(self.interface, "log" | "progress")
    }
}

/// Why the gate ended a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    #[error("denied: {0}")]
    Denied(String),
    #[error("cancelled")]
    Cancelled,
    #[error("deadline")]
    Deadline { during: Option<String> },
    #[error("CPU budget used up")]
    Cpu,
    #[error("memory limit")]
    Memory,
    #[error("diverged: {0}")]
    Diverged(String),
    #[error("host failure: {0}")]
    Host(String),
}

/// What a run is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// To do it.
    Live,
    /// To see what it would do: effects get their dry answer.
    Plan,
    /// To see what it did: every answer comes from the recording.
    Replay(Replay),
    /// To check a payload: nothing but log may be called.
    Validate,
}

/// A value that a host call answers with.
pub(crate) trait Reply: Serialize + DeserializeOwned + Send {
    /// The error that the node gave, if it gave one.
    fn error(&self) -> Option<&Error>;
    /// What a transcript may hold of a secret answer.
    fn redacted(&self) -> Value {
        match self.error() {
            Some(error) => serde_json::json!({ "Err": error }),
            None => serde_json::json!({ "Ok": REDACTED }),
        }
    }
}

impl<T: Serialize + DeserializeOwned + Send> Reply for Answer<T> {
    fn error(&self) -> Option<&Error> {
        self.as_ref().err()
    }
}

macro_rules! plain_replies {
    ($($plain:ty),*) => {$(
        impl Reply for $plain {
            fn error(&self) -> Option<&Error> {
                None
            }
        }
    )*};
}
plain_replies!((), u64, String, Vec<String>);

/// The door of one run.
pub struct Gate {
    pub(crate) purpose: Purpose,
    pub(crate) manifest: Arc<Manifest>,
    /// Read at every call, so that a grant that is taken away is gone at once.
    pub(crate) grants: Arc<ArcSwap<Grants>>,
    pub(crate) capabilities: Capabilities,
    pub(crate) cancel: CancellationToken,
    pub(crate) deadline: Instant,
    pub(crate) journal: Arc<dyn EffectJournal>,
    pub(crate) slot: Slot,
    pub(crate) watcher: Arc<dyn Watcher>,
    pub(crate) meter: Meter,
    pub(crate) effects: Effects,
    pub(crate) recording: Option<Recording>,
    pub(crate) calls: u64,
    pub(crate) log: LogBudget,
    pub(crate) last_words: Option<String>,
    /// The secrets that the guest has.
    pub(crate) known: Known,
}

impl Gate {
    /// Passes one call. `args` are what journals and transcripts hold of the arguments; `dry` is the answer that a plan gives
    /// in place of an effect, `None` for reads.
    pub(crate) async fn pass<T: Reply>(
        &mut self,
        call: Call<'_>,
        args: impl Fn() -> Value,
        dry: Option<T>,
        perform: impl Future<Output = T>,
    ) -> wasmtime::Result<T> {
        self.calls += 1;
        self.check(&call)?;
        match &mut self.purpose {
            Purpose::Plan => {
                if call.action == Action::Effect {
                    let args = self.known.json(args());
                    self.effects.begin(call.name(), args, State::Planned).map_err(Stop::Denied)?;
                }
                if let Some(dry) = dry {
                    return Ok(dry);
                }
                if call.action == Action::Effect {
                    return Err(Stop::Host(format!("{} has no dry answer for a plan", call.name())).into());
                }
            }
            Purpose::Replay(replay) if call.recorded() => {
                let answer =
                    replay.answer(&call.name(), &self.known.json(args())).map_err(|p| Stop::Diverged(p.to_string()))?;
                let answer = serde_json::from_value(answer);
                return Ok(answer.map_err(|e| Stop::Diverged(format!("{}'s recorded answer: {e}", call.name())))?);
            }
            _ => {}
        }
        let started = Instant::now();
        let span = tracing::debug_span!("host_call", interface = call.interface, function = call.function);
        let perform = perform.instrument(span.clone());
        let answer = match call.action {
            Action::Effect => {
                self.meter.pause();
                let args = self.known.json(args());
                let answer = self.perform_effect(&call, args, perform).await;
                self.meter.resume();
                answer?
            }
            Action::Read | Action::Part => self.perform(&call, perform).await?,
        };
        let took = started.elapsed();
        if let Some(recording) = self.recording.as_mut().filter(|_| call.recorded()) {
            let answer = if call.secret {
                answer.redacted().to_string()
            } else if self.known.is_empty() {
                serde_json::to_string(&answer)?
            } else {
                self.known.json(serde_json::to_value(&answer)?).to_string()
            };
            let at = started.into_std().saturating_duration_since(self.meter.origin());
            recording.add(&call, self.known.json(args()), &answer, micros(at), micros(took));
        }
        tracing::debug!(
            parent: &span,
            action = ?call.action,
            took_us = micros(took),
            error = answer.error().map(|error| error.code.as_str()),
            "answered"
        );
        // Not by function: kinds times interfaces is what a page has room for, and spans have the rest.
        let kind = self.manifest.name.clone();
        metrics::histogram!("better_compute_host_call_seconds", "kind" => kind, "interface" => call.interface)
            .record(took);
        Ok(answer)
    }

    /// Passes a call that a capability answers by blocking: it gets a thread of its own, and the run's lane slot stays taken
    /// until that thread returns, even when the run has long ended.
    pub(crate) async fn ask<C: ?Sized + Send + Sync + 'static, T>(
        &mut self,
        call: Call<'_>,
        args: Value,
        dry: Option<T>,
        capability: Option<Arc<C>>,
        method: impl FnOnce(&C) -> Answer<T> + Send + 'static,
    ) -> wasmtime::Result<Answer<T>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let slot = self.slot.clone();
        let interface = call.interface;
        let perform = async move {
            let Some(capability) = capability else {
                return Err(Error::new("not-offered", format!("this node has nothing behind `{interface}`")));
            };
            let thread = tokio::task::spawn_blocking(move || {
                let answer = method(&capability);
                drop(slot);
                answer
            });
            thread.await.unwrap_or_else(|panic| Err(Error::new(PANICKED, panic.to_string())))
        };
        self.pass(call, || args.clone(), dry.map(Ok), perform).await
    }

    fn check(&self, call: &Call<'_>) -> Result<(), Stop> {
        if matches!(self.purpose, Purpose::Validate) && call.interface != "log" {
            return Err(Stop::Denied(format!("{} was called by `validate`, which may only log", call.name())));
        }
        if let Some(need) = &call.need {
            self.manifest
                .capabilities
                .allows(need, "the kind's manifest")
                .and_then(|()| self.grants.load().allows(need, "this node's policy"))
                .map_err(|denied| Stop::Denied(denied.to_string()))?;
        }
        self.still_wanted()
    }

    /// In a replay, the recorded call that was not made.
    pub(crate) fn left_to_replay(&self) -> Option<&str> {
        match &self.purpose {
            Purpose::Replay(replay) => replay.next(),
            _ => None,
        }
    }

    /// Between actions: is the run still to go on?
    pub(crate) fn still_wanted(&self) -> Result<(), Stop> {
        if self.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if Instant::now() >= self.deadline {
            return Err(Stop::Deadline { during: None });
        }
        if self.meter.used_up() {
            return Err(Stop::Cpu);
        }
        Ok(())
    }

    /// An effect is not abandoned on cancel: it ends, and then the run does. Its whole time is the host's.
    async fn perform_effect<T: Reply>(
        &mut self,
        call: &Call<'_>,
        args: Value,
        perform: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        let effect = self.effects.begin(call.name(), args, State::Ambiguous).map_err(Stop::Denied)?;
        if let Err(error) = self.journal.intent(effect).await {
            self.effects.take_back();
            return Err(Stop::Host(format!("the intent of {} was not journaled: {error}", call.name())));
        }
        // Writing it down takes as long as the disk likes: an effect is not begun after its run's end.
        if let Err(stop) = self.still_wanted() {
            self.settle(State::Failed(format!("not begun: {stop}"))).await?;
            return Err(stop);
        }
        let Ok(answer) = tokio::time::timeout_at(self.deadline, perform).await else {
            return Err(Stop::Deadline { during: Some(call.name()) });
        };
        let state = match answer.error() {
            None => State::Done,
            // Nobody knows how far it came: it stays ambiguous.
            Some(error) if error.code == PANICKED => {
                return Err(Stop::Host(format!("{} panicked: {}", call.name(), error.message)));
            }
            // Nor whether the server got it; the guest may find out.
            Some(error) if call.interface == "http" && ask::may_have_arrived(&error.code) => return Ok(answer),
            Some(error) => State::Failed(self.known.text(&error.in_words()).into_owned()),
        };
        let was_called_off = answer.error().is_some_and(|error| error.code == CANCELLED);
        self.settle(state).await?;
        if was_called_off && self.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        Ok(answer)
    }

    /// Writes down what became of the effect that was begun last.
    async fn settle(&mut self, state: State) -> Result<(), Stop> {
        let effect = self.effects.settle(state);
        let written = self.journal.outcome(effect).await;
        written.map_err(|error| Stop::Host(format!("the outcome of {} was not journaled: {error}", effect.name)))
    }

    async fn perform<T>(&mut self, call: &Call<'_>, perform: impl Future<Output = T>) -> Result<T, Stop> {
        let mut perform = std::pin::pin!(perform);
        // What answers at once needs no timer, and its time counts as the guest's own: a flood of them is the guest's doing.
        if let Some(answer) = poll_once(perform.as_mut()).await {
            return Ok(answer);
        }
        self.meter.pause();
        let answer = tokio::select! {
            biased;
            answer = perform => Ok(answer),
            () = self.cancel.cancelled() => Err(Stop::Cancelled),
            () = tokio::time::sleep_until(self.deadline) => Err(Stop::Deadline { during: Some(call.name()) }),
        };
        self.meter.resume();
        answer
    }
}

async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(answer) => std::task::Poll::Ready(Some(answer)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
