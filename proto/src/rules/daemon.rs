//! The node's side of the protocol: what the daemon writes down, says and starts, for everything that happens to it.
//!
//! The shell feeds [`Core::on`] and carries out each [`Step`] in the order of its fields. A crash may come between any two of
//! them; [`Core::restart`] goes on from what was saved.
//!
//! **Invariant:** nothing is said or started that is not saved before, and nothing starts but on a delivery. So a command that
//! is not retry-safe starts at most once, a saved result is said until the control plane has it, and nothing starts that was
//! called off or is over.

mod book;
mod glass;
mod held;
mod intent;
mod recovery;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use self::book::{Book, Entry, Inconsistent, Record};
use self::glass::Glass;
use self::held::{Held, Standing, deny, interrupted, update, with_message};
pub use self::intent::{After, Fulfilment, Intent};
use crate::id::{CommandId, NodeId};
use crate::manifest::{Lane, Role, Trait};
use crate::rules::accept::{self, Decision, Delivery, Known, Refusal};
use crate::rules::lane::PerLane;
use crate::rules::trust::{Distrust, TrustBundle};
use crate::sign::WorkerSignature;
use crate::sign::body::CancelBody;
use crate::wire::{Deliver, Report, Update};

/// How often a retry-safe command is started before it counts as interrupted: a run that takes the daemon down with it must
/// not do so for ever.
pub const MAX_ATTEMPTS: u32 = 5;

/// After this long without an acknowledgement a result is said again on the same session, in milliseconds.
pub const RESEND_MS: u64 = 30_000;

/// What the node is, for as long as the daemon lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub node: NodeId,
    /// Its life.
    pub incarnation: u64,
    /// Its role.
    pub role: Role,
    /// The kernel's boot id.
    pub boot: String,
    /// The daemon's version, semver.
    pub version: String,
}

/// What a node knows of a kind by name and digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It can run it.
    Loaded {
        /// Its lane.
        lane: Lane,
        /// Its traits.
        traits: BTreeSet<Trait>,
        /// The roles it is for.
        roles: Vec<Role>,
        /// How long a run may take, by its manifest, milliseconds.
        timeout_ms: u64,
    },
    /// It has no component of that digest.
    Unavailable,
    /// It has no kind of that name.
    Unsupported,
}

/// What the decision needs of the world, read when it is made.
pub struct World<'a> {
    /// Server time, milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Free workers.
    pub free: PerLane,
    /// Whether the journal can promise room for a terminal record.
    pub has_room: bool,
    /// Looks a kind up by name and digest.
    pub kind: &'a dyn Fn(&str, &str) -> Availability,
    /// What the node trusts.
    pub trust: &'a TrustBundle,
}

/// What happens to a daemon.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A session was opened, and this is what its Welcome says.
    SessionOpened {
        /// The session.
        epoch: u64,
        /// Every command with a lower seq is settled for good.
        settled_below_seq: u64,
    },
    /// The session is gone.
    SessionClosed {
        /// The session.
        epoch: u64,
    },
    /// A command came.
    Delivered {
        /// The session it came on.
        epoch: u64,
        /// The command.
        deliver: Box<Deliver>,
    },
    /// A command is called off.
    CancelReceived {
        /// The session it came on.
        epoch: u64,
        /// The command.
        command: CommandId,
        /// The control plane's signature.
        signature: Option<Box<WorkerSignature>>,
    },
    /// Updates are durable on the control plane.
    UpdateAcked {
        /// The session it came on.
        epoch: u64,
        /// Whose.
        commands: Vec<CommandId>,
        /// Every command with a lower seq is settled for good.
        settled_below_seq: u64,
    },
    /// A run is over.
    RunFinished {
        /// The command.
        command: CommandId,
        /// How it ended: a terminal report.
        report: Report,
        /// Why, as a stable code.
        reason: String,
        /// The result, JSON; empty for none.
        result: Vec<u8>,
    },
    /// A run is over, and asks for what ends the daemon.
    RunIntends {
        /// The command.
        command: CommandId,
        /// What it asks for.
        intent: Intent,
        /// The run's own result, JSON: the command's if the intent comes true.
        result: Vec<u8>,
    },
    /// The version that runs now stays: its probation is over, and that is durable.
    Confirmed,
    /// The node applied a spec.
    SpecApplied {
        /// Its generation.
        generation: u64,
    },
    /// Time passed.
    Tick,
}

/// A message to the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The command is in the journal.
    Ack(CommandId),
    /// What became of a command.
    Update(Update),
    /// A command is refused, and the node does not sign that: nobody who counts ordered it, or it may have run in a time that is
    /// forgotten here. It is not journaled either. So whoever relays commands cannot make the node swear that one which has run, or
    /// will run, was refused.
    Denied(Update),
    /// A command presupposes a newer spec, of this generation at least.
    SpecWanted(u64),
}

/// A run to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The command.
    pub deliver: Deliver,
    /// Whose worker it takes.
    pub lane: Lane,
    /// 1 on the first start.
    pub attempt: u32,
}

/// What to do, in the order of the fields: nothing may be sent before all of `save` is durable, nor started before that.
#[must_use]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// Made durable together, first.
    pub save: Vec<Record>,
    /// Said on the session; dropped where there is none.
    pub send: Vec<Frame>,
    /// Started.
    pub start: Vec<Start>,
    /// Running commands to stop between two actions.
    pub cancel: Vec<CommandId>,
    /// What ends the daemon, last. Where it cannot be done, the command's run is over as failed.
    pub intend: Vec<(CommandId, Intent)>,
}

impl Step {
    /// This step and then that one, as one: their saves share one write to the disk.
    pub fn and(&mut self, next: Self) {
        self.save.extend(next.save);
        self.send.extend(next.send);
        self.start.extend(next.start);
        self.cancel.extend(next.cancel);
        self.intend.extend(next.intend);
    }

    fn say(&mut self, update: &Update) {
        self.send.push(Frame::Update(update.clone()));
    }
}

/// The daemon's state. Everything in it that matters after a crash is in the journal as well.
#[derive(Debug, Clone, PartialEq)]
pub struct Core {
    identity: Identity,
    generation: u64,
    /// The session that is open.
    session: Option<u64>,
    /// The highest session that was ever open: an older one never comes back.
    newest_session: u64,
    settled_below_seq: u64,
    /// The latest `not_after_ms` that was forgotten.
    replay_floor_ms: u64,
    held: BTreeMap<CommandId, Held>,
    /// Commands that wait for a spec, not journaled.
    waiting: BTreeMap<CommandId, Deliver>,
    /// Called off on this session before they came.
    called_off: BTreeSet<CommandId>,
}

impl Core {
    /// Goes on from a journal: what is finished is reported, what may run again does when it is delivered again, the rest is
    /// settled. Nothing is started.
    pub fn restart(identity: Identity, generation: u64, journal: Book, now_ms: u64) -> (Self, Step) {
        Self::restart_as(identity, false, generation, journal, now_ms)
    }

    /// The same for a process that may be on probation: what asked for its version is not settled before [`Input::Confirmed`].
    pub fn restart_as(identity: Identity, on_trial: bool, generation: u64, journal: Book, now_ms: u64) -> (Self, Step) {
        let mut core = Self {
            identity,
            generation,
            session: None,
            newest_session: 0,
            settled_below_seq: 0,
            replay_floor_ms: journal.replay_floor_ms(),
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            called_off: BTreeSet::new(),
        };
        let mut step = Step::default();
        for entry in journal.into_entries() {
            core.recover(entry, on_trial, now_ms, &mut step);
        }
        (core, step)
    }

    /// Commands accepted, and not finished by anything that this process can wait for.
    pub fn outstanding(&self) -> usize {
        self.held.values().filter(|held| matches!(held.standing, Standing::Running | Standing::CutOff(_))).count()
    }

    /// Decides what follows from an input.
    pub fn on(&mut self, input: Input, world: &World<'_>) -> Step {
        let mut step = Step::default();
        match input {
            Input::SessionOpened { epoch, settled_below_seq } => {
                if epoch > self.newest_session {
                    self.open(epoch, settled_below_seq, world.now_ms, &mut step);
                }
            }
            Input::SessionClosed { epoch } => {
                if self.session == Some(epoch) {
                    self.session = None;
                }
            }
            Input::Delivered { epoch, deliver } if self.session == Some(epoch) => {
                self.delivered(*deliver, world, &mut step);
            }
            Input::CancelReceived { epoch, command, signature } if self.session == Some(epoch) => {
                let body = CancelBody { command, node: self.identity.node };
                // Nobody but the control plane calls off what it ordered.
                if world.trust.cancel(&body, signature.as_deref(), world.now_ms).is_ok() {
                    self.cancel(command, world.now_ms, &mut step);
                }
            }
            Input::UpdateAcked { epoch, commands, settled_below_seq } if self.session == Some(epoch) => {
                self.acked(&commands, settled_below_seq, world.now_ms, &mut step);
            }
            // A frame of another session has no effect.
            Input::Delivered { .. } | Input::CancelReceived { .. } | Input::UpdateAcked { .. } => {}
            Input::RunFinished { command, report, reason, result } => {
                let update = Update { command, report, reason, result, at_ms: world.now_ms, node_sig: Vec::new() };
                self.finished(update, &mut step);
            }
            Input::RunIntends { command, intent, result } => {
                self.intends(command, intent, result, world.now_ms, &mut step);
            }
            Input::Confirmed => self.confirmed(world.now_ms, &mut step),
            Input::SpecApplied { generation } => {
                // Two sessions may tell of two specs in either order.
                self.generation = self.generation.max(generation);
                self.decide_waiting(world, &mut step);
            }
            Input::Tick => {
                self.decide_waiting(world, &mut step);
                self.forget(world.now_ms, &mut step);
                self.repeat(world.now_ms, RESEND_MS, &mut step);
            }
        }
        if self.session.is_none() {
            step.send.clear();
        }
        step
    }

    fn open(&mut self, epoch: u64, settled_below_seq: u64, now_ms: u64, step: &mut Step) {
        self.session = Some(epoch);
        self.newest_session = epoch;
        // Not a maximum: a control plane that was restored from a backup counts from where it then was.
        self.settled_below_seq = settled_below_seq;
        self.called_off.clear();
        // What still waits comes again, on this session.
        self.waiting.clear();
        self.forget(now_ms, step);
        self.repeat(now_ms, 0, step);
    }

    /// Whether a command is one that this node has or had: delivering it again changes nothing.
    pub fn has_seen(&self, deliver: &Deliver) -> bool {
        self.held.contains_key(&deliver.command) || deliver.seq < self.settled_below_seq
    }

    fn delivered(&mut self, deliver: Deliver, world: &World<'_>, step: &mut Step) {
        let free = self.free(world, step);
        if let Some(held) = self.held.get_mut(&deliver.command) {
            if let Some(update) = held.run_again(&self.identity.boot, free, world, step) {
                return self.finished(update, step);
            }
            held.answer(deliver.command, world.now_ms, step);
        } else if deliver.seq >= self.settled_below_seq {
            if deliver.not_after_ms <= self.replay_floor_ms {
                // It may have run: whatever the clock of the control plane says, its time was over when it was forgotten.
                deny(deliver.command, Refusal::Expired, "commands of that time are forgotten here", world.now_ms, step);
            } else if world.trust.is_ordered(&deliver, world.now_ms) && self.called_off.remove(&deliver.command) {
                self.settle_untaken(deliver, Report::Cancelled, "cancelled", "", world.now_ms, step);
            } else {
                let (command, wanted) = (deliver.command, deliver.min_generation);
                self.decide(deliver, world, step);
                if self.waiting.contains_key(&command) {
                    step.send.extend(wanted.map(Frame::SpecWanted));
                }
            }
        }
        // Below that it is an echo of something settled for good: whatever it was, it must not run.
    }

    fn decide(&mut self, deliver: Deliver, world: &World<'_>, step: &mut Step) {
        let known = (world.kind)(&deliver.kind, &deliver.kind_digest);
        let (kind, lane, traits) = match &known {
            Availability::Loaded { lane, traits, roles, .. } => (Known::Loaded(roles), *lane, traits.clone()),
            Availability::Unavailable => (Known::Unavailable, Lane::Control, BTreeSet::new()),
            Availability::Unsupported => (Known::Unsupported, Lane::Control, BTreeSet::new()),
        };
        let now_ms = world.now_ms;
        let signature = world.trust.signature(&deliver, &traits, now_ms);
        let is_ordered = match kind {
            Known::Loaded(_) => signature.is_ok(),
            Known::Unavailable | Known::Unsupported => world.trust.is_ordered(&deliver, now_ms),
        };
        let batch = world.trust.batch(&deliver, &traits, now_ms, self.broken_glass(&deliver, now_ms));
        let refused = |check: &Result<(), Distrust>| check.as_ref().copied().map_err(|it| it.refusal);
        let (meant_for, node) = (deliver.node.to_string(), self.identity.node.to_string());
        let delivery = Delivery {
            node: &meant_for,
            incarnation: deliver.incarnation,
            min_generation: deliver.min_generation,
            not_after_ms: deliver.not_after_ms,
            lane,
        };
        let node = accept::Node {
            id: &node,
            incarnation: self.identity.incarnation,
            role: self.identity.role,
            generation: self.generation,
            now_ms: world.now_ms,
            free: self.free(world, step),
            has_room: world.has_room,
        };
        let distrust = |refusal| {
            let checks = [&signature, &batch].into_iter().filter_map(|it| it.as_ref().err());
            checks.filter(|it| it.refusal == refusal).map(|it| it.why.clone()).next().unwrap_or_default()
        };
        let decision = accept::decide(&delivery, kind, &node, refused(&signature), refused(&batch));
        match decision {
            _ if !is_ordered => {
                let Decision::Refuse(refusal) = decision else {
                    // It does not even wait: nothing of it is to be held.
                    let refusal = Refusal::BadSignature;
                    return deny(deliver.command, refusal, &distrust(refusal), now_ms, step);
                };
                deny(deliver.command, refusal, &distrust(refusal), now_ms, step);
            }
            Decision::Accept => {
                let mut deliver = deliver;
                if let (Availability::Loaded { timeout_ms, .. }, Some(_)) = (&known, &deliver.signature) {
                    // The signature does not cover it, but the component: what its manifest says counts.
                    deliver.timeout_ms = *timeout_ms;
                }
                self.take(deliver, lane, traits, now_ms, step);
            }
            Decision::AwaitSpec => {
                self.waiting.insert(deliver.command, deliver);
            }
            Decision::Refuse(Refusal::Busy) => {
                step.say(&update(deliver.command, Report::Busy, Refusal::Busy.code(), world.now_ms));
            }
            Decision::Refuse(refusal) => {
                self.settle_untaken(deliver, Report::Rejected, refusal.code(), &distrust(refusal), now_ms, step);
            }
        }
    }

    /// Acceptance promises a free worker, so that the start is written down with it, in one write.
    fn take(&mut self, deliver: Deliver, lane: Lane, traits: BTreeSet<Trait>, now_ms: u64, step: &mut Step) {
        let (command, seq, boot) = (deliver.command, deliver.seq, self.identity.boot.clone());
        let held = Held {
            seq,
            standing: Standing::Running,
            cancel_requested: false,
            may_end: traits.contains(&Trait::SelfTerminating),
            not_after_ms: deliver.not_after_ms,
            glass: Glass::of(&deliver, &traits, now_ms),
        };
        let (boxed, boot_then) = (Box::new(deliver.clone()), boot.clone());
        step.save.push(Record::Accepted { deliver: boxed, lane, traits, boot: boot_then, at_ms: now_ms });
        step.save.push(Record::Started { command, attempt: 1, boot });
        step.send.push(Frame::Ack(command));
        step.say(&update(command, Report::Running, "", now_ms));
        step.start.push(Start { deliver, lane, attempt: 1 });
        self.held.insert(command, held);
    }

    /// Settles what was never accepted, with what there is to say of it. It is journaled, so that a duplicate gets the same
    /// answer.
    fn settle_untaken(
        &mut self,
        deliver: Deliver,
        report: Report,
        reason: &str,
        why: &str,
        now_ms: u64,
        step: &mut Step,
    ) {
        let update = with_message(update(deliver.command, report, reason, now_ms), why);
        let (command, seq, not_after_ms) = (deliver.command, deliver.seq, deliver.not_after_ms);
        step.save.push(Record::Refused { deliver: Box::new(deliver), update: update.clone() });
        step.say(&update);
        let standing = Standing::Settled { update, acknowledged: false, said_ms: now_ms };
        let (cancel_requested, may_end, glass) = (false, false, None);
        self.held.insert(command, Held { seq, standing, cancel_requested, may_end, not_after_ms, glass });
    }

    fn decide_waiting(&mut self, world: &World<'_>, step: &mut Step) {
        for deliver in std::mem::take(&mut self.waiting).into_values() {
            self.decide(deliver, world, step);
        }
    }

    fn cancel(&mut self, command: CommandId, now_ms: u64, step: &mut Step) {
        if let Some(deliver) = self.waiting.remove(&command) {
            return self.settle_untaken(deliver, Report::Cancelled, "cancelled", "", now_ms, step);
        }
        let Some(held) = self.held.get_mut(&command) else {
            // It has not come, or never will. Should it come on this session, it does not start.
            self.called_off.insert(command);
            return;
        };
        if let Standing::CutOff(entry) = &held.standing {
            let called_off = Entry { cancel_requested: true, ..Entry::clone(entry) };
            let update = interrupted(&called_off, now_ms);
            self.finished(update, step);
        } else if held.standing == Standing::Running {
            if !held.cancel_requested {
                held.cancel_requested = true;
                step.save.push(Record::CancelRequested { command });
            }
            step.cancel.push(command);
        } else {
            held.answer(command, now_ms, step);
        }
    }

    fn finished(&mut self, update: Update, step: &mut Step) {
        let Some(held) = self.held.get_mut(&update.command) else { return };
        if !matches!(held.standing, Standing::Running | Standing::Ending { .. } | Standing::CutOff(_)) {
            return;
        }
        step.save.push(Record::Finished { update: update.clone() });
        step.say(&update);
        held.standing = Standing::Settled { said_ms: update.at_ms, update, acknowledged: false };
    }

    fn acked(&mut self, commands: &[CommandId], settled_below_seq: u64, now_ms: u64, step: &mut Step) {
        for command in commands {
            if let Some(Held { standing: Standing::Settled { acknowledged: acknowledged @ false, .. }, .. }) =
                self.held.get_mut(command)
            {
                *acknowledged = true;
                step.save.push(Record::Acknowledged { command: *command });
            }
        }
        self.settled_below_seq = self.settled_below_seq.max(settled_below_seq);
        self.forget(now_ms, step);
    }

    /// Drops what is settled for good on both sides and cannot be delivered any more. A run that goes on is kept: it has a
    /// result to come.
    ///
    /// The control plane's word that it is settled is not enough: a gateway could say so, and deliver a signed command once more.
    fn forget(&mut self, now_ms: u64, step: &mut Step) {
        let (below, floor_ms, signed_ms) = (self.settled_below_seq, self.replay_floor_ms, self.glass_signed_ms());
        self.held.retain(|command, held| {
            let counts = held.glass.is_some_and(|it| it.counts(signed_ms, now_ms));
            let may_come = now_ms < held.not_after_ms;
            let keep = held.seq >= below || held.standing == Standing::Running || may_come || counts;
            if held.seq < below {
                match &mut held.standing {
                    // It was given up while the daemon was away.
                    Standing::CutOff(_) | Standing::Ending { .. } | Standing::OnTrial(_) => {
                        held.standing = Standing::AwaitingSettlement;
                    }
                    Standing::Settled { acknowledged, .. } => *acknowledged = true,
                    Standing::Running | Standing::AwaitingSettlement => {}
                }
            }
            if !keep {
                self.replay_floor_ms = self.replay_floor_ms.max(held.not_after_ms);
                step.save.push(Record::Forgotten { command: *command });
            }
            keep
        });
        if self.replay_floor_ms > floor_ms {
            step.save.push(Record::ReplayFloor { not_after_ms: self.replay_floor_ms });
        }
    }

    /// Says the results again that were not acknowledged for so long.
    fn repeat(&mut self, now_ms: u64, older_ms: u64, step: &mut Step) {
        if self.session.is_none() {
            return;
        }
        for held in self.held.values_mut() {
            if let Standing::Settled { update, acknowledged: false, said_ms } = &mut held.standing
                && now_ms.saturating_sub(*said_ms) >= older_ms
            {
                *said_ms = now_ms;
                step.say(update);
            }
        }
    }
}
