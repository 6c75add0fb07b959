//! One schedule: what happens, in which order, drawn from a seed.
//!
//! First chaos, in which everything may fail at any moment; here is what happens in it. Then calm and absence.
//!
//! **Invariant:** a seed and a set of rules give the same schedule on every machine.

use std::collections::BTreeMap;

use bc_proto::manifest::Trait;
use bc_proto::rules::daemon::Input;
use bc_proto::rules::state::State;

use crate::database::{Database, Settled};
use crate::machine::Machine;
use crate::network::Session;
use crate::rules::{KINDS, Rules};
use crate::witness::{Violation, Witness};

/// Things that happen while everything may fail.
const STEPS: u32 = 220;
const MAX_COMMANDS: usize = 14;
const START_MS: u64 = 1_000_000;

/// Everything there is.
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) rng: fastrand::Rng,
    pub(crate) now: u64,
    pub(crate) db: Database,
    pub(crate) machines: Vec<Machine>,
    pub(crate) sessions: BTreeMap<u32, Session>,
    pub(crate) next_session: u32,
    pub(crate) witness: Witness,
    pub(crate) is_chaos: bool,
    /// Whether wall clocks jump; a schedule is otherwise the same.
    wall_clocks_jump: bool,
    /// Cancels that have looked and not yet written: the command, and where it stood.
    wishes: Vec<(u64, State)>,
    trace: Option<Vec<String>>,
}

/// What became of a schedule.
#[derive(Debug, PartialEq)]
pub(crate) struct Story {
    pub(crate) violation: Option<Violation>,
    pub(crate) ends: BTreeMap<u64, Settled>,
    pub(crate) starts: BTreeMap<u64, u32>,
    pub(crate) trace: Vec<String>,
}

/// Plays a seed.
pub(crate) fn play(seed: u64, rules: Rules, wall_clocks_jump: bool, is_traced: bool) -> Story {
    let mut rng = fastrand::Rng::with_seed(seed);
    let nodes = [1, 1, 1, 2, 2, 3][rng.usize(..6)];
    let mut world = World {
        rules,
        rng,
        now: START_MS,
        db: Database::new(rules, nodes),
        machines: (0..nodes).map(|_| Machine::new()).collect(),
        sessions: BTreeMap::new(),
        next_session: 1,
        witness: Witness::default(),
        is_chaos: true,
        wall_clocks_jump,
        wishes: Vec::new(),
        trace: is_traced.then(Vec::new),
    };
    let is_kept = world.chaos() && world.calm() && world.absence();
    debug_assert_eq!(is_kept, world.witness.violation.is_none());
    Story {
        violation: world.witness.violation,
        ends: world.db.settled,
        starts: world.witness.starts,
        trace: world.trace.unwrap_or_default(),
    }
}

impl World {
    pub(crate) fn say(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>9.3} s  {}", (self.now - START_MS) as f64 / 1000.0, line(self));
            self.trace.get_or_insert_default().push(line);
        }
    }

    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    /// `#7 wipe`
    pub(crate) fn name(&self, number: u64) -> String {
        self.db.commands.get(&number).map_or_else(String::new, |row| format!("#{number} {}", row.kind().name))
    }

    /// Looks at what must hold; returns whether it does.
    pub(crate) fn look(&mut self) -> bool {
        self.witness.look(&self.db);
        self.witness.violation.is_none()
    }

    fn chaos(&mut self) -> bool {
        for _ in 0..STEPS {
            self.happen();
            if !self.look() {
                return false;
            }
        }
        true
    }

    fn happen(&mut self) {
        let node = self.rng.usize(..self.machines.len());
        match self.rng.u32(..1000) {
            0..=329 => self.some_frame_to_node(),
            330..=559 => self.some_frame_to_gateway(),
            560..=659 => self.some_claim(),
            660..=729 => self.queue_something(node),
            730..=769 => self.some_run_ends(node),
            770..=799 => self.go_on(node),
            800..=841 => self.pass_time(),
            842..=849 => {
                let _ = self.scheduled_reboot(node);
            }
            850..=879 => self.call_something_off(),
            880..=894 => self.write_wish(),
            895..=909 => self.some_reconcile(),
            910..=919 => self.sweep(),
            920..=931 => self.feed(node, vec![Input::Tick]),
            932..=941 => self.some_cut(),
            942..=951 => self.kill(node, "is killed"),
            952..=957 => self.reboot(node),
            958..=963 => self.damage_journal(node),
            964..=968 => self.enrol_again(node),
            969..=974 => self.crash_replica(),
            975..=982 => self.crash_database(),
            983..=986 => self.flush(),
            987..=992 => self.jump_clock(node),
            993..=998 => self.apply_spec(node),
            _ => self.delete(node),
        }
    }

    fn queue_something(&mut self, node: usize) {
        if self.db.commands.len() >= MAX_COMMANDS {
            return;
        }
        let kind = self.rng.usize(..KINDS.len());
        let min_generation = self.chance(10).then(|| self.machines[node].generation + 1);
        let not_after = self.now + self.rng.u64(10_000..120_000);
        let is_held = self.chance(3);
        if let Some(number) = self.db.enqueue(node, kind, min_generation, not_after, is_held) {
            self.say(|world| format!("{} is queued for node {node}", world.name(number)));
        }
    }

    fn pass_time(&mut self) {
        let by = match self.rng.u32(..20) {
            0 => self.rng.u64(60_000..900_000),
            1..=3 => self.rng.u64(5_000..40_000),
            _ => self.rng.u64(50..3_000),
        };
        self.now += by;
    }

    /// The next thing that a node does by itself: begin, or connect.
    fn go_on(&mut self, node: usize) {
        let moves_on = self.chance(30);
        match &self.machines[node].process {
            None => self.start(node),
            Some(process) if process.connecting.is_none() && (process.current.is_none() || moves_on) => {
                self.connect(node);
            }
            Some(_) => {}
        }
    }

    fn some_run_ends(&mut self, node: usize) {
        let over = self.machines[node].over(self.now);
        if let Some(number) = self.rng.choice(over) {
            self.end_run(node, number);
        }
    }

    fn call_something_off(&mut self) {
        if self.db.commands.is_empty() {
            return;
        }
        let number = self.rng.u64(1..=self.db.commands.len() as u64);
        self.wishes.push((number, self.db.state(number)));
        if self.chance(80) {
            self.write_wish();
        }
    }

    fn write_wish(&mut self) {
        let Some((number, seen)) = self.wishes.pop() else { return };
        let state = self.db.cancel(number, seen);
        self.say(|world| format!("{} is called off: {state}", world.name(number)));
        if state.is_in_flight() && self.chance(70) {
            self.send_cancel(number);
        }
    }

    pub(crate) fn sweep(&mut self) {
        self.db.sweep(self.now);
        self.witness.swept(&self.db, self.now);
        self.say(|_| "sweep".into());
    }

    fn reboot(&mut self, node: usize) {
        self.kill(node, "is rebooted from outside");
        self.change_boot(node);
    }

    fn damage_journal(&mut self, node: usize) {
        if self.machines[node].process.is_none() {
            self.machines[node].lose_journal();
            self.say(|_| format!("node {node} loses its journal"));
        }
    }

    fn enrol_again(&mut self, node: usize) {
        if self.machines[node].process.is_some() || self.db.nodes[node].is_deleted {
            return;
        }
        self.machines[node].incarnation = self.db.replace(node);
        self.say(|world| format!("node {node} is enrolled as life {}", world.machines[node].incarnation));
        if self.chance(50) {
            self.damage_journal(node);
        }
    }

    fn crash_database(&mut self) {
        let at_risk = self.db.at_risk();
        let lost = self.rng.usize(..=at_risk);
        self.db.crash(lost);
        self.say(|_| format!("the database crashes and forgets {lost} of {at_risk} asynchronous commits"));
    }

    fn flush(&mut self) {
        self.db.flush();
        self.say(|_| "the database writes its log".into());
    }

    fn jump_clock(&mut self, node: usize) {
        let by = self.rng.i64(-86_400_000..86_400_000);
        if self.wall_clocks_jump {
            self.machines[node].wall_offset_ms = by;
            self.say(|_| format!("the wall clock of node {node} jumps to {by} ms"));
        }
    }

    fn apply_spec(&mut self, node: usize) {
        self.machines[node].generation += 1;
        let generation = self.machines[node].generation;
        self.feed(node, vec![Input::SpecApplied { generation }]);
    }

    fn delete(&mut self, node: usize) {
        if !self.db.nodes[node].is_deleted && self.chance(40) {
            self.db.delete(node);
            self.say(|_| format!("node {node} is deleted"));
        }
    }

    /// A command that ends its daemon, by number.
    pub(crate) fn is_self_terminating(&self, number: u64) -> bool {
        self.db.commands[&number].kind().is(Trait::SelfTerminating)
    }
}
