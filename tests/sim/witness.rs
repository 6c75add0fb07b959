//! What an outside observer saw happen, and the promises that it must not contradict.
//!
//! **Invariant:** nothing here is told to the programs: they crash and forget, the witness does not.

use std::collections::{BTreeMap, BTreeSet};

use bc_proto::manifest::{Lane, Trait};
use bc_proto::rules::lane::{LIMITS, PerLane};
use bc_proto::rules::state::State;
use bc_proto::wire::Update;

use crate::database::{Database, Row, Settled};

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) promise: &'static str,
    pub(crate) what: String,
}

/// The observer.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    /// Runs that really began.
    pub(crate) starts: BTreeMap<u64, u32>,
    /// Reboots that a command really made.
    reboots: BTreeMap<u64, u32>,
    /// Ends that were made durable on a node.
    saved: BTreeMap<u64, Vec<Update>>,
    /// Ends that the control plane recorded.
    ends: BTreeMap<u64, Settled>,
    /// What each session was sent, and the highest seq of each of its lanes.
    sent: BTreeMap<u32, (BTreeSet<u64>, [u64; 3])>,
    /// The first broken promise.
    pub(crate) violation: Option<Violation>,
}

impl Witness {
    pub(crate) fn violate(&mut self, promise: &'static str, what: String) {
        self.violation.get_or_insert(Violation { promise, what });
    }

    /// A run begins on a node that lives this life.
    pub(crate) fn started(&mut self, number: u64, row: &Row, incarnation: u64, is_running: bool, state: State) {
        let kind = row.kind();
        let starts = self.starts.entry(number).or_default();
        *starts += 1;
        let starts = *starts;
        if starts > 1 && !kind.is(Trait::RetrySafe) {
            let promise = if kind.is(Trait::SelfTerminating) { "promise_01" } else { "promise_02" };
            self.violate(promise, format!("#{number}, a {}, starts for the {starts}. time", kind.name));
        }
        if is_running {
            self.violate("promise_02", format!("#{number}, a {}, runs twice at once", kind.name));
        }
        if kind.is(Trait::Destructive) && row.incarnation != incarnation {
            let (meant, name) = (row.incarnation, kind.name);
            self.violate("promise_15", format!("#{number}, a {name} for life {meant}, starts in life {incarnation}"));
        }
        if state.is_terminal() {
            self.violate("promise_13", format!("#{number}, a {}, starts after it is {state}", kind.name));
        }
    }

    /// A node takes a command's reboot in hand; `is_called_off` if it knew of a cancel by then.
    pub(crate) fn intends(&mut self, number: u64, is_called_off: bool) {
        if is_called_off {
            self.violate("promise_13", format!("#{number} is to reboot its machine after it was called off"));
        }
    }

    /// A command reboots its machine.
    pub(crate) fn rebooted(&mut self, number: u64) {
        let reboots = self.reboots.entry(number).or_default();
        *reboots += 1;
        if *reboots > 1 {
            self.violate("promise_01", format!("#{number} reboots its machine twice"));
        }
    }

    /// A node made an end durable.
    pub(crate) fn saved(&mut self, number: u64, update: &Update) {
        self.saved.entry(number).or_default().push(update.clone());
    }

    /// A node says that it has no worker for a command, while these are busy.
    pub(crate) fn refused_busy(&mut self, number: u64, lane: Lane, busy: PerLane) {
        if busy.get(lane) < LIMITS.get(lane) {
            let held = busy.get(lane);
            self.violate("promise_14", format!("#{number} finds no worker, with {held} of its lane's taken"));
        }
    }

    /// A command was sent on a session; `was_put_back` if a node had no worker for it before.
    pub(crate) fn sent(&mut self, session: u32, number: u64, row: &Row, was_put_back: bool) {
        let lane = row.kind().lane as usize;
        let (sent, tops) = self.sent.entry(session).or_default();
        let (top, is_new) = (tops[lane], sent.insert(number));
        tops[lane] = top.max(row.seq);
        if is_new && row.seq < top && !was_put_back {
            self.violate("promise_08", format!("#{number}, seq {}, is sent after seq {top} of its lane", row.seq));
        }
    }

    /// A frame of a session that is not its node's newest was taken by the control plane.
    pub(crate) fn took_stale(&mut self, writes_before: u64, db: &Database) {
        if db.writes != writes_before {
            self.violate("promise_09", "a frame of an older session changed the database".into());
        }
    }

    /// What holds after every event.
    pub(crate) fn look(&mut self, db: &Database) {
        let places = db.ready.len() + db.in_flight.len() + db.settled.len();
        let is_twice = || {
            let open = db.ready.keys().chain(db.in_flight.keys());
            let found = open.chain(db.settled.keys()).collect::<BTreeSet<_>>().len();
            found != db.commands.len()
        };
        if places != db.commands.len() || is_twice() {
            self.violate("one_place", format!("{places} places for {} commands", db.commands.len()));
        }
        for (number, settled) in &db.settled {
            match self.ends.get(number) {
                Some(end) if end == settled => {}
                Some(end) => {
                    self.violate("terminal", format!("#{number} was {end:?} and is {settled:?}"));
                }
                None => self.ended(*number, settled),
            }
        }
        for number in self.ends.keys().filter(|number| !db.settled.contains_key(number)) {
            let what = format!("#{number} was over and is not");
            self.violation.get_or_insert(Violation { promise: "terminal", what });
        }
    }

    fn ended(&mut self, number: u64, settled: &Settled) {
        let is_as_saved = |update: &Update| {
            State::Dispatched.on(update.report.event()) == Ok(settled.state)
                && (&update.reason, &update.result) == (&settled.reason, &settled.result)
        };
        if settled.is_reported && !self.saved.get(&number).is_some_and(|saved| saved.iter().any(is_as_saved)) {
            self.violate("promise_03", format!("#{number} landed as {settled:?}, which no node saved"));
        }
        self.ends.insert(number, settled.clone());
    }

    /// What holds after a claim.
    pub(crate) fn claimed(&mut self, db: &Database, node: usize) {
        let outstanding = db.outstanding(node);
        for lane in Lane::ALL {
            if outstanding.get(lane) > LIMITS.get(lane) {
                let count = outstanding.get(lane);
                self.violate("promise_08", format!("{count} commands are outstanding in lane {lane:?}"));
            }
        }
    }

    /// What holds after a sweep.
    pub(crate) fn swept(&mut self, db: &Database, now: u64) {
        let waiting = db.ready.keys().find(|number| db.commands[number].not_after <= now);
        let flying = db.in_flight.iter().find(|(_, flight)| flight.due <= now).map(|(number, _)| number);
        if let Some(number) = waiting.or(flying) {
            self.violate("promise_04", format!("#{number} is not over after its time and a sweep"));
        }
    }

    /// What holds when every node was connected for a while: no end that a node has kept is unknown to the control plane.
    pub(crate) fn calm(&mut self, db: &Database, kept: impl IntoIterator<Item = u64>) {
        for number in kept {
            if !db.settled.contains_key(&number) {
                self.violate("promise_03", format!("the result of #{number} does not land"));
            }
        }
    }
}
