//! The daemon's shell around its core: decide, save, say, start, with a crash at any point between.
//!
//! **Invariant:** the order is the one of `daemon/src/shell.rs`, and so is the batching of inputs.

use std::collections::BTreeMap;

use bc_proto::id::CommandId;
use bc_proto::manifest::Role;
use bc_proto::rules::daemon::{Core, Frame, Input, Intent, Record, Start, Step, World as CoreWorld};
use bc_proto::rules::lane::PerLane;
use bc_proto::rules::trust::TrustBundle;
use bc_proto::wire::Report;
use uuid::Uuid;

use crate::machine::{Process, Run, number};
use crate::network::Up;
use crate::rules::availability;
use crate::world::World;

pub(crate) fn id(number: u64) -> CommandId {
    CommandId::from_uuid(Uuid::from_u128(u128::from(number)))
}

/// Where a crash cuts a step off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    BeforeSave,
    BeforeSend,
    WhileSending,
    WhileStarting,
    BeforeIntent,
    After,
}

impl World {
    pub(crate) fn feed(&mut self, node: usize, inputs: Vec<Input>) {
        self.feed_from(node, inputs, false);
    }

    /// Decides a batch as one step, and carries it out. `is_stale`: all of it came on a session that is not the present one.
    pub(crate) fn feed_from(&mut self, node: usize, inputs: Vec<Input>, is_stale: bool) {
        let (now, rules) = (self.now, self.rules);
        let machine = &mut self.machines[node];
        let Some(process) = &mut machine.process else { return };
        let mut together = Step::default();
        let mut said = Vec::new();
        for input in inputs {
            let mut server_now = process.server_now(now);
            if !rules.ignores_wall_clock {
                server_now = server_now.saturating_add_signed(machine.wall_offset_ms);
            }
            let begun = PerLane::count(together.start.iter().map(|start| start.lane));
            let world = CoreWorld {
                now_ms: server_now,
                free: process.free(rules.lanes_apart).free(begun),
                has_room: true,
                kind: &|name, _| availability(name),
                trust: &TrustBundle::NONE,
            };
            let mut step = process.core.on(input, &world);
            if !rules.repeats_results {
                let (save, send) = (&step.save, &mut step.send);
                send.retain(|frame| match frame {
                    Frame::Update(update) if update.report.is_terminal() => {
                        save.iter().any(|record| record.command() == update.command)
                    }
                    _ => true,
                });
            }
            said.extend(step.send.iter().filter_map(|frame| match frame {
                // While it is about to end there is no worker, however many are free.
                Frame::Update(update) if update.report == Report::Busy && !process.core.is_ending(server_now) => {
                    let mut busy = process.busy();
                    for start in &together.start {
                        *busy.get_mut(start.lane) += 1;
                    }
                    Some((number(update.command), busy))
                }
                _ => None,
            }));
            together.and(step);
        }
        for (number, busy) in said {
            self.witness.refused_busy(number, self.db.commands[&number].kind().lane, busy);
        }
        if is_stale && together != Step::default() {
            self.witness
                .violate("promise_09", format!("a frame of an older session makes node {node} do {together:?}"));
        }
        self.carry_out(node, together);
    }

    fn carry_out(&mut self, node: usize, step: Step) {
        let crash = (self.is_chaos && step != Step::default() && self.chance(5)).then(|| {
            let points = [
                Crash::BeforeSave,
                Crash::BeforeSend,
                Crash::WhileSending,
                Crash::WhileStarting,
                Crash::BeforeIntent,
                Crash::After,
            ];
            points[self.rng.usize(..points.len())]
        });
        let Step { save, send, start, cancel, intend } = step;
        let (mut first, mut last) = (start, Vec::new());
        if self.rules.saves_first {
            std::mem::swap(&mut first, &mut last);
        }
        for start in first {
            self.begin(node, &start);
        }
        if crash == Some(Crash::BeforeSave) {
            return self.kill(node, "crashes before it saves");
        }
        self.save(node, &save);
        if crash == Some(Crash::BeforeSend) {
            return self.kill(node, "crashes after it saved");
        }
        for frame in send {
            if crash == Some(Crash::WhileSending) && self.rng.bool() {
                return self.kill(node, "crashes while it sends");
            }
            self.send(node, frame);
        }
        for start in last {
            if crash == Some(Crash::WhileStarting) && self.rng.bool() {
                return self.kill(node, "crashes while it starts");
            }
            self.begin(node, &start);
        }
        for command in cancel {
            let running = self.machines[node].process.as_mut().map(|process| &mut process.running);
            if let Some(run) = running.and_then(|running| running.get_mut(&number(command))) {
                run.is_cancelled = true;
            }
        }
        if crash == Some(Crash::BeforeIntent) {
            return self.kill(node, "crashes before it carries out what ends it");
        }
        for (command, _) in intend {
            self.intend(node, number(command));
        }
        if crash.is_some() {
            self.kill(node, "crashes");
        }
    }

    /// What reboots the machine takes it in hand, or refuses.
    fn intend(&mut self, node: usize, number: u64) {
        let is_called_off = self.machines[node].knows_of_cancel(number);
        self.witness.intends(number, is_called_off);
        if self.is_chaos && self.chance(15) {
            self.say(|world| format!("node {node} cannot be rebooted for {}", world.name(number)));
            let (report, reason) = (Report::Failed, "inhibited".into());
            let input = Input::RunFinished { command: id(number), report, reason, result: b"{}".to_vec() };
            return self.feed(node, vec![input]);
        }
        self.say(|world| format!("node {node} is about to be rebooted for {}", world.name(number)));
        self.machines[node].scheduled.insert(number);
    }

    /// The reboot that is under way comes.
    pub(crate) fn scheduled_reboot(&mut self, node: usize) -> bool {
        let scheduled = std::mem::take(&mut self.machines[node].scheduled);
        if scheduled.is_empty() {
            return false;
        }
        for number in scheduled {
            self.witness.rebooted(number);
            self.say(|world| format!("{} reboots node {node}", world.name(number)));
        }
        self.kill(node, "is rebooted");
        self.change_boot(node);
        true
    }

    fn save(&mut self, node: usize, records: &[Record]) {
        for record in records {
            if let Record::Finished { update } | Record::Refused { update, .. } = record {
                let number = number(update.command);
                self.witness.saved(number, update);
                self.say(|world| {
                    format!("node {node} saves that {} is {:?} {}", world.name(number), update.report, update.reason)
                });
            }
        }
        self.machines[node].save(records);
    }

    fn send(&mut self, node: usize, frame: Frame) {
        if let Frame::Denied(update) = &frame {
            // No record of it, but of what denies it: the same answer comes to every delivery.
            self.witness.saved(number(update.command), update);
        }
        let current = self.machines[node].process.as_ref().and_then(|process| process.current);
        let Some(session) = current.and_then(|(session, _)| self.sessions.get_mut(&session)) else { return };
        session.up.push_back(match frame {
            Frame::Ack(command) => Up::Ack(number(command)),
            Frame::Update(update) | Frame::Denied(update) => Up::Update(update),
            // Specs come here when the world has them, asked for or not.
            Frame::SpecWanted(_) => return,
        });
    }

    fn begin(&mut self, node: usize, start: &Start) {
        let command = number(start.deliver.command);
        self.say(|world| format!("node {node} starts {}, attempt {}", world.name(command), start.attempt));
        let is_hung = self.is_chaos && self.chance(12);
        let state = self.db.state(command);
        let now = self.now;
        let machine = &mut self.machines[node];
        let Some(process) = &mut machine.process else { return };
        let is_running = process.running.contains_key(&command);
        self.witness.started(command, &self.db.commands[&command], machine.incarnation, is_running, state);
        let run = Run {
            lane: start.lane,
            ends_at: now + start.deliver.timeout_ms,
            is_hung,
            is_cancelled: false,
            attempt: start.attempt,
        };
        process.running.insert(command, run);
    }

    /// A run ends: by itself, by its timeout, or because it was called off.
    pub(crate) fn end_run(&mut self, node: usize, number: u64) {
        // The daemon may have crashed over another run that ended at the same moment.
        let process = self.machines[node].process.as_mut();
        let Some(run) = process.and_then(|process| process.running.remove(&number)) else { return };
        if self.is_self_terminating(number) && !run.is_hung && self.chance(80) {
            let (command, intent) = (id(number), Intent::Reboot { reason: String::new() });
            self.say(|world| format!("{} asks for a reboot of node {node}", world.name(number)));
            return self.feed(node, vec![Input::RunIntends { command, intent, result: b"{}".to_vec() }]);
        }
        let (report, reason) = if run.is_hung {
            (Report::Failed, "deadline")
        } else if run.is_cancelled && self.chance(70) {
            (Report::Cancelled, "cancelled")
        } else if self.is_chaos && self.chance(15) {
            (Report::Failed, "guest-failure")
        } else {
            (Report::Succeeded, "")
        };
        let result = format!("{{\"attempt\":{},\"of\":{number}}}", run.attempt).into_bytes();
        let input = Input::RunFinished { command: id(number), report, reason: reason.into(), result };
        self.feed(node, vec![input]);
    }

    pub(crate) fn change_boot(&mut self, node: usize) {
        self.machines[node].boot += 1;
        self.machines[node].scheduled.clear();
        if self.chance(20) {
            self.machines[node].lose_journal();
            self.machines[node].role = if self.rng.bool() { Role::Ramdisk } else { Role::Host };
        }
    }

    pub(crate) fn kill(&mut self, node: usize, why: &str) {
        if self.machines[node].process.take().is_some() {
            self.say(|_| format!("node {node} {why}"));
            self.process_gone(node);
        }
    }

    pub(crate) fn start(&mut self, node: usize) {
        let machine = &self.machines[node];
        let (core, step) = Core::restart(machine.identity(node), machine.generation, machine.book(), 0);
        self.machines[node].process = Some(Process {
            core,
            running: BTreeMap::new(),
            server_ms: 0,
            welcomed_at: self.now,
            current: None,
            newest: 0,
            connecting: None,
        });
        self.say(|_| format!("the daemon of node {node} begins"));
        let entries = self.machines[node].book().into_entries();
        self.carry_out(node, step);
        if !self.rules.reboots_once {
            for entry in entries.into_iter().filter(|it| it.intended.is_some() && it.update.is_none()) {
                self.intend(node, number(entry.deliver.command));
            }
        }
    }
}
