//! The daemon's event loop: input → core → journal → send → start. The order is the point.
//!
//! The session is not in here: it feeds inputs through a [`Handle`] and takes what is said through a [`FrameSink`].
//!
//! **Invariant:** a step's frames leave, and its runs start, only after [`Journal::save`] has returned for its records. When
//! the journal does not take them, nothing of the step happens and the loop ends: the next process goes on from the disk.

mod terminal;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bc_proto::id::CommandId;
use bc_proto::rules::daemon::{Book, Core, Frame, Identity, Input, Record, Start, Step, World};
use bc_proto::rules::lane::PerLane;
use bc_runtime::capability::process::OutputStream;
use bc_runtime::v1::wit::log::Level;
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub use self::terminal::{NoTerminal, NotDone, Terminal};
use self::worker::Worker;
use crate::capability::commanded::Provider;
use crate::faults::crash_at;
use crate::journal::{Journal, NotSaved};
use crate::kinds::Kinds;
use crate::kinds::kept::Kept;
use crate::lanes::Lanes;
use crate::metrics;
use crate::node::Node;
use crate::server_time::ServerTime;
use crate::trust::Trust;

/// Inputs that wait for the loop; a sender waits when there are more.
const INBOX: usize = 256;
/// Inputs that are decided together, so that they share one write to the disk.
const BATCH: usize = 64;
/// How often the core is told that time passed.
const TICK: Duration = Duration::from_secs(1);

/// Where what the daemon says goes: the session, or a test's list.
#[async_trait]
pub trait FrameSink: Send + Sync {
    /// What is durable on this side. Must not block.
    fn frame(&self, frame: Frame);
    /// Returns when what was said has left this process, or there is no session that it could leave by.
    async fn flushed(&self) {}
    /// How far a run is. May be dropped.
    fn progress(&self, command: CommandId, done: u64, total: Option<u64>, unit: &str, message: &str);
    /// What a program of a run wrote, the pieces of a stream one after the other. Must not block; from another thread than the runtime's.
    fn output(&self, _command: CommandId, _attempt: u32, _stream: OutputStream, _bytes: &[u8]) {}
    /// A line of a run's log. May be dropped.
    fn log(&self, command: CommandId, level: Level, target: &str, message: &str, fields: &str);
}

/// What the loop works with.
pub struct Parts {
    /// The machine.
    pub node: Arc<Node>,
    /// What it is to the control plane.
    pub identity: Identity,
    /// The kinds that it can run.
    pub kinds: Kinds,
    /// Those that were fetched earlier and are loaded on demand.
    pub kept: Option<Kept>,
    /// The durable memory.
    pub journal: Journal,
    /// Worker pools.
    pub lanes: Lanes,
    /// Server time.
    pub time: ServerTime,
    /// What the node trusts.
    pub trust: Trust,
    /// What stands behind the capabilities of commands, besides the machine.
    pub providers: Vec<Arc<dyn Provider>>,
    /// What ends the daemon.
    pub terminal: Arc<dyn Terminal>,
    /// Where what it says goes.
    pub sink: Arc<dyn FrameSink>,
    /// Called about once a second, as long as the loop gets on.
    pub alive: Box<dyn Fn() + Send + Sync>,
}

/// Feeds the loop.
#[derive(Clone)]
pub struct Handle {
    inbox: mpsc::Sender<Input>,
    outstanding: watch::Receiver<usize>,
}

impl Handle {
    /// Hands an input over. False when the loop is gone.
    pub async fn input(&self, input: Input) -> bool {
        self.inbox.send(input).await.is_ok()
    }

    /// Commands accepted and not finished.
    pub fn outstanding(&self) -> usize {
        *self.outstanding.borrow()
    }

    /// Returns when nothing is outstanding, or the loop is gone.
    pub async fn idle(&self) {
        let _ = self.outstanding.clone().wait_for(|outstanding| *outstanding == 0).await;
    }
}

/// The loop.
pub struct Shell {
    parts: Arc<Parts>,
    core: Core,
    inbox: mpsc::Receiver<Input>,
    handle: mpsc::Sender<Input>,
    outstanding: watch::Sender<usize>,
    running: HashMap<CommandId, CancellationToken>,
}

impl Shell {
    /// Goes on from the journal's contents: settles, repeats and starts what the core decides. `generation` is that of the
    /// spec which was applied last.
    pub async fn start(parts: Parts, generation: u64, book: Book) -> Result<(Self, Handle), NotSaved> {
        let (handle, inbox) = mpsc::channel(INBOX);
        let now_ms = parts.time.at(Instant::now());
        let on_trial = parts.terminal.on_trial();
        let (core, step) = Core::restart_as(parts.identity.clone(), on_trial, generation, book, now_ms);
        let (outstanding, seen) = watch::channel(0);
        let fed = Handle { inbox: handle.clone(), outstanding: seen };
        let mut shell = Self { parts: Arc::new(parts), core, inbox, handle, outstanding, running: HashMap::new() };
        shell.carry_out(step).await?;
        Ok((shell, fed))
    }

    /// Runs until it is to stop, or until the journal takes no more. Runs that go on are left to the process's end: the
    /// journal knows of them.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), NotSaved> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                _ = self.inbox.recv_many(&mut batch, BATCH) => {}
                _ = ticks.tick() => batch.push(Input::Tick),
            }
            let ticked = batch.last() == Some(&Input::Tick);
            let decided = self.decide(batch.drain(..));
            self.carry_out(decided).await?;
            if ticked {
                (self.parts.alive)();
            }
        }
    }

    /// Decides a batch as one step.
    fn decide(&mut self, inputs: impl Iterator<Item = Input>) -> Step {
        let mut together = Step::default();
        let parts = Arc::clone(&self.parts);
        let trust = parts.trust.now();
        for input in inputs {
            if let Input::RunFinished { command, .. } | Input::RunIntends { command, .. } = &input {
                self.running.remove(command);
            }
            if let Input::Delivered { deliver, .. } = &input
                && self.core.has_seen(deliver)
            {
                metrics::absorbed();
            }
            let begun = PerLane::count(together.start.iter().map(|start| start.lane));
            let world = World {
                now_ms: parts.time.at(Instant::now()),
                free: parts.lanes.free().free(begun),
                has_room: !matches!(input, Input::Delivered { .. } | Input::Tick | Input::SpecApplied { .. })
                    || parts.journal.has_room(),
                kind: &|name, digest| parts.kinds.availability_under(&trust.publishers, name, digest),
                trust: &trust,
            };
            together.and(self.core.on(input, &world));
        }
        together
    }

    async fn carry_out(&mut self, step: Step) -> Result<(), NotSaved> {
        if !step.save.is_empty() {
            crash_at("journal.before-save");
            self.parts.journal.save(&step.save).await?;
            crash_at("journal.after-save");
            self.see(&step.save);
        }
        for frame in step.send {
            crash_at("frame.before-send");
            self.parts.sink.frame(frame);
            crash_at("frame.after-send");
        }
        for start in step.start {
            crash_at("run.before-start");
            self.begin(start);
            crash_at("run.after-start");
        }
        for command in step.cancel {
            if let Some(cancel) = self.running.get(&command) {
                cancel.cancel();
            }
        }
        for (command, intent) in step.intend {
            crash_at("intent.before-carry-out");
            let (parts, inbox) = (Arc::clone(&self.parts), self.handle.clone());
            tokio::spawn(async move {
                if let Some(not_done) = terminal::carry_out(parts, command, intent).await {
                    let _ = inbox.send(not_done).await;
                }
            });
            crash_at("intent.after-carry-out");
        }
        let outstanding = self.core.outstanding();
        self.outstanding.send_if_modified(|known| std::mem::replace(known, outstanding) != outstanding);
        Ok(())
    }

    /// What was accepted was signed, where that is wanted: it is at least as late as it says.
    fn see(&self, saved: &[Record]) {
        let issued = saved.iter().filter_map(|record| match record {
            Record::Accepted { deliver, .. } => deliver.signature.as_ref().map(|signed| signed.issued_at_ms),
            _ => None,
        });
        let trust = &self.parts.trust;
        if let Some(issued_at_ms) = issued.max()
            && !trust.now().roots.is_empty()
        {
            trust.seen(issued_at_ms);
            self.parts.time.advance(trust.floor_ms(), Instant::now());
        }
    }

    fn begin(&mut self, start: Start) {
        let cancel = CancellationToken::new();
        self.running.insert(start.deliver.command, cancel.clone());
        // Taken before the next input is decided, so that its credits are right.
        let slot = self.parts.lanes.try_take(start.lane);
        let worker = Worker { parts: Arc::clone(&self.parts), start, slot, cancel };
        let inbox = self.handle.clone();
        tokio::spawn(async move {
            let finished = worker.run().await;
            // The loop is gone only when the process ends; the journal then says that this run was cut off.
            let _ = inbox.send(finished).await;
        });
    }
}
