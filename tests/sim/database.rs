//! The control plane's tables in memory, and the queue's statements over them.
//!
//! Each function mirrors the statement of the same name in `host/src/queue`: the decision comes from `bc_proto::rules`, and
//! the precondition is the statement's own.
//!
//! **Invariant:** what is committed asynchronously can be forgotten from its end backwards, up to the last durable commit,
//! and nothing else can: that is what Postgres promises of `synchronous_commit = off`.

use std::collections::BTreeMap;

use bc_proto::manifest::{Lane, Role, Trait};
use bc_proto::rules::lane::PerLane;
use bc_proto::rules::resume::{self, Life, Resumption};
use bc_proto::rules::state::{Event, State};
use bc_proto::rules::{backoff, sweep};
use bc_proto::wire::Update;

use crate::rules::{Claims, KINDS, Kind, Rules};

/// A row of `nodes`.
#[derive(Debug, Clone)]
pub(crate) struct NodeRow {
    pub(crate) incarnation: u64,
    pub(crate) greeting: Option<Greeting>,
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
    pub(crate) is_deleted: bool,
}

/// What a node says of its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) incarnation: u64,
    pub(crate) journal: String,
    pub(crate) boot: String,
    pub(crate) role: Role,
}

impl Greeting {
    fn life(&self) -> Life<'_> {
        Life { journal: &self.journal, boot: &self.boot, role: self.role }
    }
}

/// A row of `commands`.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) node: usize,
    pub(crate) seq: u64,
    pub(crate) kind: usize,
    pub(crate) incarnation: u64,
    pub(crate) min_generation: Option<u64>,
    pub(crate) not_after: u64,
}

impl Row {
    pub(crate) fn kind(&self) -> &'static Kind {
        &KINDS[self.kind]
    }

    fn only_incarnation(&self) -> Option<u64> {
        self.kind().is(Trait::Destructive).then_some(self.incarnation)
    }
}

/// A row of `ready`.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub(crate) not_before: u64,
    pub(crate) only_incarnation: Option<u64>,
    pub(crate) attempt: u32,
}

/// A row of `in_flight`.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub(crate) state: State,
    pub(crate) epoch: u64,
    pub(crate) sent_to: Greeting,
    pub(crate) attempt: u32,
    pub(crate) due: u64,
    pub(crate) is_cancelled: bool,
}

/// A row of `settled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) state: State,
    pub(crate) reason: String,
    pub(crate) result: Vec<u8>,
    pub(crate) is_reported: bool,
}

/// What a row was before an asynchronous commit.
#[derive(Debug)]
enum Before {
    Ready(u64, Option<Ready>),
    Flight(u64, Option<Flight>),
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Landed {
    Now,
    Before,
    Dropped,
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) epoch: u64,
    pub(crate) below: u64,
    /// Commands, and whether they are called off.
    pub(crate) replay: Vec<(u64, bool)>,
}

/// What a hello came to.
#[derive(Debug)]
pub(crate) enum Greeted {
    Open(Opened),
    Overtaken(u64),
    Unknown,
}

/// What a session can take in one lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) lane: Lane,
    pub(crate) credits: u32,
    pub(crate) above_seq: u64,
}

/// The tables, by command number. Numbers count up over all nodes, so that their order is each node's seq order.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) rules: Rules,
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) commands: BTreeMap<u64, Row>,
    pub(crate) ready: BTreeMap<u64, Ready>,
    pub(crate) in_flight: BTreeMap<u64, Flight>,
    pub(crate) settled: BTreeMap<u64, Settled>,
    /// Counts what changed.
    pub(crate) writes: u64,
    relaxed: Vec<Vec<Before>>,
}

impl Database {
    pub(crate) fn new(rules: Rules, nodes: usize) -> Self {
        let fresh = NodeRow { incarnation: 1, greeting: None, epoch: 0, next_seq: 1, is_deleted: false };
        Self {
            rules,
            nodes: vec![fresh; nodes],
            commands: BTreeMap::new(),
            ready: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            settled: BTreeMap::new(),
            writes: 0,
            relaxed: Vec::new(),
        }
    }

    /// A durable commit takes every earlier one with it.
    pub(crate) fn flush(&mut self) {
        self.relaxed.clear();
    }

    /// Forgets the last `count` asynchronous commits.
    pub(crate) fn crash(&mut self, count: usize) {
        let kept = self.relaxed.len().saturating_sub(count);
        for before in self.relaxed.drain(kept..).rev().flat_map(|commit| commit.into_iter().rev()).collect::<Vec<_>>() {
            match before {
                Before::Ready(number, Some(row)) => drop(self.ready.insert(number, row)),
                Before::Ready(number, None) => drop(self.ready.remove(&number)),
                Before::Flight(number, Some(row)) => drop(self.in_flight.insert(number, row)),
                Before::Flight(number, None) => drop(self.in_flight.remove(&number)),
            }
        }
        self.flush();
    }

    /// How many asynchronous commits can be forgotten.
    pub(crate) fn at_risk(&self) -> usize {
        self.relaxed.len()
    }

    pub(crate) fn state(&self, number: u64) -> State {
        match (self.settled.get(&number), self.in_flight.get(&number)) {
            (Some(row), _) => row.state,
            (None, Some(row)) => row.state,
            (None, None) => State::Pending,
        }
    }

    fn is_open(&self, node: usize, epoch: u64) -> bool {
        !self.rules.gateway_fences || self.nodes[node].epoch == epoch
    }

    pub(crate) fn enqueue(
        &mut self,
        node: usize,
        kind: usize,
        min_generation: Option<u64>,
        not_after: u64,
        is_held: bool,
    ) -> Option<u64> {
        let row = &mut self.nodes[node];
        if row.is_deleted {
            return None;
        }
        let number = self.commands.len() as u64 + 1;
        let command = Row { node, seq: row.next_seq, kind, incarnation: row.incarnation, min_generation, not_after };
        row.next_seq += 1;
        let not_before = if is_held { u64::MAX } else { 0 };
        let only_incarnation = command.only_incarnation();
        self.commands.insert(number, command);
        self.ready.insert(number, Ready { not_before, only_incarnation, attempt: 0 });
        self.flush();
        Some(number)
    }

    pub(crate) fn claim(&mut self, node: usize, epoch: u64, rooms: &[Room], now: u64) -> Vec<u64> {
        let fenced = &self.nodes[node];
        let Some(sent_to) = fenced.greeting.clone().filter(|_| !fenced.is_deleted && self.is_open(node, epoch)) else {
            return Vec::new();
        };
        let (session, incarnation) = (fenced.epoch, fenced.incarnation);
        let mut taken = Vec::new();
        for room in rooms {
            let candidates = self.ready.iter().filter(|(number, row)| {
                let command = &self.commands[number];
                command.node == node
                    && command.kind().lane == room.lane
                    && command.seq > room.above_seq
                    && row.not_before <= now
                    && command.not_after > now
                    && (!self.rules.binds_incarnations || row.only_incarnation.is_none_or(|only| only == incarnation))
            });
            let numbers = candidates.map(|(number, _)| *number);
            if self.rules.claims_in_order {
                taken.extend(numbers.take(room.credits as usize));
            } else {
                taken.extend(numbers.rev().take(room.credits as usize));
            }
        }
        if self.rules.claims_in_order {
            taken.sort_unstable();
        }
        let mut before = Vec::new();
        for number in &taken {
            let row = self.ready.remove(number).expect("it was picked");
            let command = &self.commands[number];
            let flight = Flight {
                state: State::Dispatched,
                epoch: session,
                sent_to: sent_to.clone(),
                attempt: row.attempt,
                due: sweep::due_ms(State::Dispatched, command.not_after, Some(command.kind().timeout_ms))
                    .expect("it is not over"),
                is_cancelled: false,
            };
            self.in_flight.insert(*number, flight);
            before.push(Before::Ready(*number, Some(row)));
            before.push(Before::Flight(*number, None));
            self.writes += 1;
        }
        let is_relaxed = match self.rules.claims {
            Claims::Durable => false,
            Claims::Relaxed => true,
            Claims::RelaxedWhenRetrySafe => {
                taken.iter().all(|number| self.commands[number].kind().is(Trait::RetrySafe))
            }
        };
        if is_relaxed {
            self.relaxed.push(before);
        } else {
            self.flush();
        }
        taken
    }

    pub(crate) fn mark(&mut self, node: usize, epoch: u64, number: u64, event: Event) {
        if !self.is_open(node, epoch) {
            return;
        }
        let Ok(after @ (State::Acked | State::Running)) = State::Dispatched.on(event) else { return };
        if let Some(flight) = self.in_flight.get_mut(&number).filter(|flight| flight.state < after) {
            let before = flight.clone();
            flight.state = after;
            self.relaxed.push(vec![Before::Flight(number, Some(before))]);
            self.writes += 1;
        }
    }

    pub(crate) fn requeue(&mut self, node: usize, epoch: u64, number: u64, now: u64, random: f64) {
        if !self.is_open(node, epoch) {
            return;
        }
        let Some(flight) = self.in_flight.get(&number).filter(|flight| flight.state == State::Dispatched) else {
            return;
        };
        if flight.is_cancelled {
            self.decide(number, State::Pending, true, Event::CancelRequested, "cancelled", b"");
            return;
        }
        let flight = self.in_flight.remove(&number).expect("it was found");
        let wait = backoff::BUSY.wait(flight.attempt, random).as_millis();
        let not_before = now + u64::try_from(wait).expect("half a minute");
        let only_incarnation = self.commands[&number].only_incarnation();
        self.ready.insert(number, Ready { not_before, only_incarnation, attempt: flight.attempt + 1 });
        self.writes += 1;
        self.flush();
    }

    /// A report of a command's end.
    pub(crate) fn settle(&mut self, node: usize, epoch: u64, number: u64, update: &Update) -> Landed {
        if !self.is_open(node, epoch) || self.commands.get(&number).is_none_or(|row| row.node != node) {
            return Landed::Dropped;
        }
        let Ok(state) = State::Dispatched.on(update.report.event()) else { return Landed::Dropped };
        if self.settled.contains_key(&number) && self.rules.settles_by_moving {
            return Landed::Before;
        }
        let (reason, result) = (update.reason.clone(), update.result.clone());
        self.write(number, Settled { state, reason, result, is_reported: true });
        Landed::Now
    }

    /// A decision of the control plane about a command that stood in a state, which it must not have left meanwhile.
    fn decide(&mut self, number: u64, seen: State, in_flight: bool, event: Event, reason: &str, result: &[u8]) -> bool {
        let Ok(state) = seen.on(event) else { return false };
        if seen.is_terminal() || !state.is_terminal() {
            return false;
        }
        let is_there = if in_flight { self.in_flight.contains_key(&number) } else { self.ready.contains_key(&number) };
        if is_there {
            let settled = Settled { state, reason: reason.into(), result: result.into(), is_reported: false };
            self.write(number, settled);
        }
        is_there
    }

    fn write(&mut self, number: u64, settled: Settled) {
        if self.rules.settles_by_moving {
            self.ready.remove(&number);
            self.in_flight.remove(&number);
        }
        self.settled.insert(number, settled);
        self.writes += 1;
        self.flush();
    }

    /// Calls a command off. `seen` is where a first, older look found it.
    pub(crate) fn cancel(&mut self, number: u64, mut seen: State) -> State {
        loop {
            if seen.is_terminal() {
                return seen;
            }
            if self.decide(number, seen, seen.is_in_flight(), Event::CancelRequested, "cancelled", b"") {
                return self.state(number);
            }
            if seen.is_in_flight()
                && let Some(flight) = self.in_flight.get_mut(&number)
            {
                flight.is_cancelled = true;
                let state = flight.state;
                self.flush();
                return state;
            }
            seen = self.state(number);
        }
    }

    pub(crate) fn hello(&mut self, node: usize, greeting: &Greeting, last_epoch: u64) -> Greeted {
        let row = &mut self.nodes[node];
        if row.is_deleted || row.incarnation != greeting.incarnation {
            return Greeted::Unknown;
        }
        if self.rules.compares_epochs && row.epoch != last_epoch {
            return Greeted::Overtaken(row.epoch);
        }
        row.epoch += 1;
        row.greeting = Some(greeting.clone());
        let epoch = row.epoch;
        for number in self.flights(node) {
            let flight = &self.in_flight[&number];
            let (state, traits) = (flight.state, self.commands[&number].kind().traits());
            let verdict = match resume::resume(&traits, &flight.sent_to.life(), &greeting.life()) {
                Resumption::Settle(Event::JournalLost) if !self.rules.settles_lost_journals => None,
                Resumption::Settle(Event::Rebooted) if !self.rules.settles_reboots => None,
                Resumption::Settle(event @ Event::JournalLost) => Some((event, "journal-lost", &b""[..])),
                Resumption::Settle(event) => Some((event, "", &br#"{"rebooted":true}"#[..])),
                Resumption::Replay
                    if self.commands[&number].incarnation != greeting.incarnation && self.rules.binds_incarnations =>
                {
                    (!resume::survives_replacement(&traits, State::Pending)).then_some((
                        Event::NodeReplaced,
                        "node-replaced",
                        &b""[..],
                    ))
                }
                Resumption::Replay => None,
            };
            if let Some((event, reason, result)) = verdict {
                self.decide(number, state, true, event, reason, result);
            }
        }
        let mut replay = Vec::new();
        for number in self.flights(node) {
            let flight = self.in_flight.get_mut(&number).expect("it is in flight");
            flight.epoch = epoch;
            flight.sent_to = greeting.clone();
            replay.push((number, flight.is_cancelled));
        }
        self.writes += 1;
        self.flush();
        Greeted::Open(Opened { epoch, below: self.settled_below(node), replay })
    }

    fn flights(&self, node: usize) -> Vec<u64> {
        self.in_flight.keys().copied().filter(|number| self.commands[number].node == node).collect()
    }

    /// The lowest seq of the node that is not over, or the next one.
    pub(crate) fn settled_below(&self, node: usize) -> u64 {
        let open = self.ready.keys().chain(self.in_flight.keys()).map(|number| &self.commands[number]);
        let seqs = open.filter(|row| row.node == node).map(|row| row.seq);
        seqs.min().unwrap_or(u64::MAX).min(self.nodes[node].next_seq)
    }

    /// What is in flight to a node, by lane.
    pub(crate) fn outstanding(&self, node: usize) -> PerLane {
        PerLane::count(self.flights(node).into_iter().map(|number| self.commands[&number].kind().lane))
    }

    pub(crate) fn delete(&mut self, node: usize) {
        self.nodes[node].is_deleted = true;
        self.nodes[node].epoch += 1;
        self.settle_pending(node, |_| Some((Event::NodeDeleted, "node-deleted")));
    }

    pub(crate) fn replace(&mut self, node: usize) -> u64 {
        let row = &mut self.nodes[node];
        row.incarnation += 1;
        row.epoch += 1;
        let incarnation = row.incarnation;
        if self.rules.binds_incarnations {
            self.settle_pending(node, |kind| {
                (!resume::survives_replacement(&kind.traits(), State::Pending))
                    .then_some((Event::NodeReplaced, "node-replaced"))
            });
        }
        incarnation
    }

    fn settle_pending(&mut self, node: usize, verdict: impl Fn(&Kind) -> Option<(Event, &'static str)>) {
        let pending: Vec<u64> = self.ready.keys().copied().filter(|it| self.commands[it].node == node).collect();
        for number in pending {
            if let Some((event, reason)) = verdict(self.commands[&number].kind()) {
                self.decide(number, State::Pending, false, event, reason, b"");
            }
        }
        self.flush();
    }

    pub(crate) fn sweep(&mut self, now: u64) {
        let is_due = |state, row: &Row| {
            sweep::due_ms(state, row.not_after, Some(row.kind().timeout_ms)).is_some_and(|due| due <= now)
        };
        let waiting: Vec<u64> =
            self.ready.keys().copied().filter(|it| is_due(State::Pending, &self.commands[it])).collect();
        for number in waiting {
            let is_replaced = self.ready[&number]
                .only_incarnation
                .is_some_and(|only| only != self.nodes[self.commands[&number].node].incarnation);
            let (event, reason) = if is_replaced {
                (Event::NodeReplaced, "node-replaced")
            } else {
                (Event::DeadlinePassed, sweep::reason(State::Pending))
            };
            self.decide(number, State::Pending, false, event, reason, b"");
        }
        if !self.rules.sweeps_in_flight {
            return;
        }
        let flying: Vec<(u64, State)> = self
            .in_flight
            .iter()
            .filter(|(number, flight)| flight.due <= now && is_due(flight.state, &self.commands[number]))
            .map(|(number, flight)| (*number, flight.state))
            .collect();
        for (number, state) in flying {
            self.decide(number, state, true, Event::DeadlinePassed, sweep::reason(state), b"");
        }
    }
}
