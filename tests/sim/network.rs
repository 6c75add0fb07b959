//! Sessions: ordered streams between a node and a replica, that can be cut at any frame; and the replica's side of them.
//!
//! **Invariant:** what a replica remembers of a session is lost with the replica, and nothing depends on it but credits.

use std::collections::{BTreeMap, VecDeque};

use bc_proto::manifest::Lane;
use bc_proto::rules::daemon::Input;
use bc_proto::rules::lane::{LIMITS, PerLane};
use bc_proto::rules::state::Event;
use bc_proto::wire::{Deliver, Report, Update};
use serde_json::Value;

use crate::database::{Greeted, Greeting, Landed, Room};
use crate::machine::{node_id, number};
use crate::world::World;

/// A stream, and what both ends know of it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) node: usize,
    replica: u32,
    /// Set by the hello.
    epoch: Option<u64>,
    pub(crate) up: VecDeque<Up>,
    pub(crate) down: VecDeque<Down>,
    pub(crate) is_open_at_gateway: bool,
    pub(crate) is_open_at_node: bool,
    outstanding: BTreeMap<u64, Lane>,
    above: [u64; 3],
}

/// From a node.
#[derive(Debug)]
pub(crate) enum Up {
    /// With the newest epoch that its process knows of.
    Hello(Greeting, u64),
    Ack(u64),
    Update(Update),
}

/// To a node, with the session's epoch.
#[derive(Debug)]
pub(crate) enum Down {
    Welcome { epoch: u64, server_ms: u64, below: u64 },
    Overtaken(u64),
    Deliver(u64, Box<Deliver>),
    Cancel(u64, u64),
    UpdateAck(u64, u64, u64),
}

/// A stream on which a Welcome took longer is given up.
const KEEPALIVE_MS: u64 = 10_000;

impl World {
    pub(crate) fn connect(&mut self, node: usize) {
        let (id, replica) = (self.next_session, self.rng.u32(..2));
        self.next_session += 1;
        let newest = self.machines[node].process.as_ref().expect("it runs").newest;
        let session = Session {
            node,
            replica,
            epoch: None,
            up: VecDeque::from([Up::Hello(self.machines[node].greeting(), newest)]),
            down: VecDeque::new(),
            is_open_at_gateway: true,
            is_open_at_node: true,
            outstanding: BTreeMap::new(),
            above: [0; 3],
        };
        self.sessions.insert(id, session);
        self.machines[node].process.as_mut().expect("it runs").connecting = Some(id);
        self.say(|_| format!("node {node} says hello on session {id} to replica {replica}"));
    }

    pub(crate) fn session_ids(&self) -> Vec<u32> {
        self.sessions.keys().copied().collect()
    }

    fn some_session(&mut self, is_wanted: impl Fn(&Session) -> bool) -> Option<u32> {
        let wanted = self.sessions.iter().filter(|(_, session)| is_wanted(session)).map(|(id, _)| *id);
        let wanted: Vec<u32> = wanted.collect();
        self.rng.choice(wanted)
    }

    pub(crate) fn some_frame_to_node(&mut self) {
        let session = self.some_session(|it| it.is_open_at_node && (!it.down.is_empty() || !it.is_open_at_gateway));
        if let Some(session) = session {
            let count = self.rng.usize(1..4);
            if !self.frame_to_node(session, count) {
                // The replica is gone, and all that it said has come.
                self.cut(session);
            }
        }
    }

    pub(crate) fn some_frame_to_gateway(&mut self) {
        if let Some(session) = self.some_session(|it| it.is_open_at_gateway && !it.up.is_empty()) {
            self.frame_to_gateway(session);
        }
    }

    pub(crate) fn some_claim(&mut self) {
        if let Some(session) = self.some_session(|it| it.is_open_at_gateway && it.epoch.is_some()) {
            self.claim(session);
        }
    }

    pub(crate) fn some_reconcile(&mut self) {
        if let Some(session) = self.some_session(|it| it.is_open_at_gateway && it.epoch.is_some()) {
            self.reconcile(session);
        }
    }

    pub(crate) fn some_cut(&mut self) {
        if let Some(session) = self.some_session(|it| it.is_open_at_node) {
            self.cut(session);
        }
    }

    /// Up to `count` frames reach a node together. Returns whether there was one.
    pub(crate) fn frame_to_node(&mut self, id: u32, count: usize) -> bool {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id).filter(|it| it.is_open_at_node) else { return false };
        let node = session.node;
        let count = count.min(session.down.len());
        let frames: Vec<Down> = session.down.drain(..count).collect();
        let mut inputs = Vec::new();
        let mut is_stale = false;
        for frame in frames {
            let Some(process) = &mut self.machines[node].process else { break };
            let current = process.current;
            let stamp = |epoch| match current {
                Some((_, current)) if !self.rules.node_fences => current,
                _ => epoch,
            };
            let input = match frame {
                Down::Welcome { server_ms, .. } if now - server_ms > KEEPALIVE_MS => {
                    self.cut(id);
                    break;
                }
                Down::Overtaken(epoch) => {
                    let hello = Up::Hello(self.machines[node].greeting(), epoch);
                    self.sessions.get_mut(&id).expect("it is open").up.push_back(hello);
                    continue;
                }
                Down::Welcome { epoch, server_ms, below } => {
                    process.newest = process.newest.max(epoch);
                    (process.server_ms, process.welcomed_at) = (server_ms, now);
                    process.current = Some((id, epoch));
                    process.connecting = process.connecting.filter(|connecting| *connecting != id);
                    Input::SessionOpened { epoch, settled_below_seq: below }
                }
                Down::Deliver(epoch, deliver) => Input::Delivered { epoch: stamp(epoch), deliver },
                Down::Cancel(epoch, number) => {
                    Input::CancelReceived { epoch: stamp(epoch), command: crate::daemon::id(number), signature: None }
                }
                Down::UpdateAck(epoch, number, settled_below_seq) => {
                    let commands = vec![crate::daemon::id(number)];
                    Input::UpdateAcked { epoch: stamp(epoch), commands, settled_below_seq }
                }
            };
            is_stale |=
                current.is_some_and(|(session, _)| session != id) && !matches!(input, Input::SessionOpened { .. });
            inputs.push(input);
        }
        if !inputs.is_empty() {
            self.feed_from(node, inputs, is_stale);
        }
        count > 0
    }

    /// The next frame reaches the replica. Returns whether there was one.
    pub(crate) fn frame_to_gateway(&mut self, id: u32) -> bool {
        let Some(session) = self.sessions.get_mut(&id).filter(|it| it.is_open_at_gateway) else { return false };
        let Some(frame) = session.up.pop_front() else { return false };
        let node = session.node;
        let (writes, newest) = (self.db.writes, self.db.nodes[node].epoch);
        match (frame, session.epoch) {
            (Up::Hello(greeting, last_epoch), _) => self.hello(id, node, &greeting, last_epoch),
            (_, None) => {}
            (frame, Some(epoch)) => {
                self.report(id, node, epoch, frame);
                if epoch != newest {
                    self.witness.took_stale(writes, &self.db);
                }
            }
        }
        true
    }

    fn hello(&mut self, id: u32, node: usize, greeting: &Greeting, last_epoch: u64) {
        let greeted = self.db.hello(node, greeting, last_epoch);
        self.say(|_| format!("the hello of session {id} of node {node} comes to {greeted:?}"));
        let now = self.now;
        let opened = match greeted {
            Greeted::Open(opened) => opened,
            Greeted::Overtaken(epoch) if self.sessions[&id].is_open_at_node => {
                self.sessions.get_mut(&id).expect("it is open").down.push_back(Down::Overtaken(epoch));
                return;
            }
            Greeted::Overtaken(_) | Greeted::Unknown => return self.hang_up(id),
        };
        let deliveries: Vec<_> = opened
            .replay
            .iter()
            .map(|(number, is_cancelled)| (*number, self.delivery(*number), *is_cancelled))
            .collect();
        let session = self.sessions.get_mut(&id).expect("it is open");
        session.epoch = Some(opened.epoch);
        session.down.push_back(Down::Welcome { epoch: opened.epoch, server_ms: now, below: opened.below });
        for (number, deliver, is_cancelled) in deliveries {
            let row = &self.db.commands[&number];
            session.outstanding.insert(number, row.kind().lane);
            self.witness.sent(id, number, row, self.db.in_flight[&number].attempt > 0);
            session.down.push_back(Down::Deliver(opened.epoch, Box::new(deliver)));
            if is_cancelled {
                session.down.push_back(Down::Cancel(opened.epoch, number));
            }
        }
    }

    fn delivery(&self, number: u64) -> Deliver {
        let row = &self.db.commands[&number];
        Deliver {
            command: crate::daemon::id(number),
            seq: row.seq,
            node: node_id(row.node),
            incarnation: self.db.nodes[row.node].incarnation,
            kind: row.kind().name.into(),
            kind_digest: String::new(),
            payload: Value::Null,
            not_after_ms: row.not_after,
            timeout_ms: row.kind().timeout_ms,
            min_generation: row.min_generation,
            signature: None,
            batch: None,
            approved: None,
            upload: None,
        }
    }

    fn report(&mut self, id: u32, node: usize, epoch: u64, frame: Up) {
        let now = self.now;
        let update = match frame {
            Up::Hello(..) => return,
            Up::Ack(number) => return self.db.mark(node, epoch, number, Event::Acked),
            Up::Update(update) => update,
        };
        let number = number(update.command);
        match update.report {
            Report::Running => self.db.mark(node, epoch, number, Event::Started),
            Report::Busy => {
                self.say(|world| format!("node {node} has no worker for {}", world.name(number)));
                let random = self.rng.f64();
                self.db.requeue(node, epoch, number, now, random);
                let session = self.sessions.get_mut(&id).expect("it is open");
                session.outstanding.remove(&number);
                session.above = [0; 3];
            }
            // The database does not answer: nothing is acknowledged, and the node will say it again.
            _ if self.is_chaos && self.chance(5) => {}
            report => {
                let landed = self.db.settle(node, epoch, number, &update);
                self.say(|world| {
                    format!("{} is reported {report:?} {}: {landed:?}", world.name(number), update.reason)
                });
                if landed != Landed::Dropped {
                    let below = self.db.settled_below(node);
                    let session = self.sessions.get_mut(&id).expect("it is open");
                    session.outstanding.remove(&number);
                    session.down.push_back(Down::UpdateAck(epoch, number, below));
                }
            }
        }
    }

    pub(crate) fn claim(&mut self, id: u32) {
        let Some(session) = self.sessions.get_mut(&id).filter(|it| it.is_open_at_gateway) else { return };
        let (Some(epoch), node) = (session.epoch, session.node) else { return };
        let outstanding = if self.rules.counts_credits {
            PerLane::count(session.outstanding.values().copied())
        } else {
            PerLane::default()
        };
        let free = LIMITS.free(outstanding);
        let rooms =
            Lane::ALL.map(|lane| Room { lane, credits: free.get(lane), above_seq: session.above[lane as usize] });
        let (writes, newest) = (self.db.writes, self.db.nodes[node].epoch);
        let taken = self.db.claim(node, epoch, &rooms, self.now);
        if epoch != newest {
            self.witness.took_stale(writes, &self.db);
        }
        for number in taken {
            self.say(|world| format!("{} is claimed and sent on session {id}", world.name(number)));
            let deliver = self.delivery(number);
            let row = &self.db.commands[&number];
            let session = self.sessions.get_mut(&id).expect("it is open");
            let above = &mut session.above[row.kind().lane as usize];
            *above = (*above).max(row.seq);
            session.outstanding.insert(number, row.kind().lane);
            session.down.push_back(Down::Deliver(epoch, Box::new(deliver)));
            self.witness.sent(id, number, row, self.db.in_flight[&number].attempt > 0);
        }
        self.witness.claimed(&self.db, node);
    }

    /// The slow look of a replica at what it holds: the safety net under lost signals.
    pub(crate) fn reconcile(&mut self, id: u32) {
        let Some(session) = self.sessions.get_mut(&id).filter(|it| it.is_open_at_gateway) else { return };
        let (Some(epoch), node) = (session.epoch, session.node) else { return };
        let row = &self.db.nodes[node];
        if row.epoch != epoch || row.is_deleted {
            return self.hang_up(id);
        }
        session.outstanding.retain(|number, _| self.db.in_flight.contains_key(number));
        session.above = [0; 3];
        for (number, flight) in &self.db.in_flight {
            if flight.is_cancelled && self.db.commands[number].node == node {
                session.down.push_back(Down::Cancel(epoch, *number));
            }
        }
    }

    pub(crate) fn send_cancel(&mut self, number: u64) {
        let node = self.db.commands[&number].node;
        let epoch = self.db.nodes[node].epoch;
        let is_its = |it: &&mut Session| it.node == node && it.epoch == Some(epoch) && it.is_open_at_gateway;
        if let Some(session) = self.sessions.values_mut().find(is_its) {
            session.down.push_back(Down::Cancel(epoch, number));
        }
    }

    fn hang_up(&mut self, id: u32) {
        self.say(|_| format!("the replica ends session {id}"));
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_open_at_gateway = false;
            session.up.clear();
        }
        self.tidy(id);
    }

    /// The node's end closes. The replica may go on for a while with what was on its way.
    pub(crate) fn cut(&mut self, id: u32) {
        let keeps = self.rng.usize(..4);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let node = session.node;
        session.is_open_at_node = false;
        session.down.clear();
        session.up.truncate(keeps);
        self.say(|_| format!("session {id} of node {node} is cut, {keeps} frames are still on their way"));
        self.tidy(id);
        if self.chance(50) {
            self.hang_up(id);
        }
        let Some(process) = &mut self.machines[node].process else { return };
        process.connecting = process.connecting.filter(|connecting| *connecting != id);
        if let Some((_, epoch)) = process.current.filter(|(current, _)| *current == id) {
            process.current = None;
            self.feed(node, vec![Input::SessionClosed { epoch }]);
        }
    }

    fn tidy(&mut self, id: u32) {
        if self.sessions.get(&id).is_some_and(|it| !it.is_open_at_gateway && !it.is_open_at_node) {
            self.sessions.remove(&id);
        }
    }

    /// A node's process is gone. What the kernel took from it may still arrive, a hello too.
    pub(crate) fn process_gone(&mut self, node: usize) {
        let ids: Vec<u32> = self.sessions.iter().filter(|(_, it)| it.node == node).map(|(id, _)| *id).collect();
        for id in ids {
            let keeps = self.rng.usize(..4);
            let session = self.sessions.get_mut(&id).expect("it was listed");
            session.is_open_at_node = false;
            session.down.clear();
            session.up.truncate(keeps);
            if session.epoch.is_none() && session.up.is_empty() {
                session.is_open_at_gateway = false;
            }
            self.tidy(id);
        }
    }

    /// A replica is killed with all that it remembers. Its nodes notice when they have read what it had sent.
    pub(crate) fn crash_replica(&mut self) {
        let replica = self.rng.u32(..2);
        self.say(|_| format!("replica {replica} is killed"));
        let ids: Vec<u32> = self.sessions.iter().filter(|(_, it)| it.replica == replica).map(|(id, _)| *id).collect();
        for id in ids {
            let keeps = self.rng.usize(..4);
            let session = self.sessions.get_mut(&id).expect("it was listed");
            session.is_open_at_gateway = false;
            session.up.clear();
            session.down.truncate(keeps);
            self.tidy(id);
        }
    }
}
