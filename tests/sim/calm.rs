//! After the chaos: first calm, in which all nodes are connected and nothing fails; then absence, in which they are gone.
//!
//! **Invariant:** whatever the chaos left, calm lets everything flow and absence ends everything. Both are bounded.

use bc_proto::manifest::Lane;
use bc_proto::rules::daemon::Input;
use bc_proto::rules::lane::LIMITS;
use bc_proto::rules::state::State;
use bc_proto::rules::sweep;

use crate::world::World;

/// How long the calm lasts; longer than the longest wait after BUSY, and no run but a hung one takes so long.
const CALM_SECONDS: u64 = 45;
/// No spec that a command presupposes is ahead of this one.
const LAST_GENERATION: u64 = 1_000_000;

impl World {
    /// Nothing fails any more: every lane of every node flows, whatever hangs in another, and no result that a node has is
    /// unknown to the control plane.
    pub(crate) fn calm(&mut self) -> bool {
        self.say(|_| "--- calm".into());
        self.is_chaos = false;
        let probes = self.connect_all();
        for second in 0..CALM_SECONDS {
            self.now += 1_000;
            self.settle_down();
            if second % 5 == 0 {
                self.sweep();
                for session in self.session_ids() {
                    self.reconcile(session);
                }
            }
            if !self.look() {
                return false;
            }
        }
        for probe in probes {
            let (row, state) = (&self.db.commands[&probe], self.db.state(probe));
            if state != State::Succeeded {
                let lane = row.kind().lane;
                let is_one_hung = Lane::ALL.iter().any(|lane| self.machines[row.node].hung(*lane) > 0);
                let promise = if is_one_hung { "promise_14" } else { "promise_08" };
                self.witness.violate(promise, format!("the probe #{probe} of lane {lane:?} is {state} after the calm"));
            }
        }
        for node in 0..self.machines.len() {
            if !self.db.nodes[node].is_deleted {
                self.witness.calm(&self.db, self.machines[node].kept_ends());
            }
        }
        self.look()
    }

    /// Every node on a session of its own, and a command in each lane that has a worker which does not hang.
    fn connect_all(&mut self) -> Vec<u64> {
        let mut probes = Vec::new();
        for session in self.session_ids() {
            self.cut(session);
        }
        self.sessions.clear();
        for node in 0..self.machines.len() {
            self.machines[node].generation = LAST_GENERATION;
            if self.machines[node].process.is_none() {
                self.start(node);
            } else {
                self.feed(node, vec![Input::SpecApplied { generation: LAST_GENERATION }]);
            }
            if self.db.nodes[node].is_deleted {
                continue;
            }
            self.connect(node);
            // The first kinds are the lanes' probes.
            for (kind, lane) in Lane::ALL.into_iter().enumerate() {
                let probe = self.db.enqueue(node, kind, None, self.now + 600_000, false).expect("it is not deleted");
                if self.machines[node].hung(lane) < LIMITS.get(lane) as usize {
                    probes.push(probe);
                }
            }
        }
        probes
    }

    /// Frames, claims and runs until nothing moves.
    fn settle_down(&mut self) {
        for node in 0..self.machines.len() {
            self.feed(node, vec![Input::Tick]);
        }
        let mut has_moved = true;
        while has_moved {
            has_moved = false;
            for session in self.session_ids() {
                while self.frame_to_gateway(session) {
                    has_moved = true;
                }
                self.claim(session);
                while self.frame_to_node(session, 1) {
                    has_moved = true;
                }
            }
            for node in 0..self.machines.len() {
                has_moved |= self.move_on(node);
            }
        }
    }

    /// Ends a node's runs; returns whether anything moved. A run may reboot the machine, which then comes back.
    fn move_on(&mut self, node: usize) -> bool {
        let over = self.machines[node].over(self.now);
        for number in &over {
            self.end_run(node, *number);
        }
        let has_rebooted = self.scheduled_reboot(node);
        if self.machines[node].process.is_none() {
            self.start(node);
        }
        let process = self.machines[node].process.as_ref();
        let is_alone = process.is_some_and(|it| it.current.is_none() && it.connecting.is_none());
        if is_alone && !self.db.nodes[node].is_deleted {
            self.connect(node);
            return true;
        }
        has_rebooted || !over.is_empty()
    }

    /// The nodes are gone for good: every command is over by its deadline, its kind's timeout and one sweep.
    pub(crate) fn absence(&mut self) -> bool {
        self.say(|_| "--- absence".into());
        for node in 0..self.machines.len() {
            self.kill(node, "is gone for good");
        }
        self.sessions.clear();
        let last = self.db.commands.values().map(|row| row.not_after + row.kind().timeout_ms).max();
        self.now = self.now.max(last.unwrap_or(0)) + sweep::PERIOD_MS;
        self.sweep();
        if let Some(number) = self.db.commands.keys().find(|number| !self.db.state(**number).is_terminal()) {
            let state = self.db.state(*number);
            self.witness.violate("promise_04", format!("#{number} is {state} for ever"));
        }
        self.look()
    }
}
