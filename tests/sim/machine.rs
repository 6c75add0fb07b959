//! A node: the daemon's own core, a journal that keeps what was saved, and workers. A crash may come between any two fields
//! of a step, and in the middle of each.
//!
//! **Invariant:** a process knows nothing but its journal and what its core was told since it began.

use std::collections::{BTreeMap, BTreeSet};

use bc_proto::id::NodeId;
use bc_proto::manifest::{Lane, Role};
use bc_proto::rules::daemon::{Book, Core, Identity, Record};
use bc_proto::rules::lane::{LIMITS, PerLane};
use uuid::Uuid;

use crate::database::Greeting;

/// A machine with its disk.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The life that its certificate was issued for.
    pub(crate) incarnation: u64,
    pub(crate) role: Role,
    pub(crate) boot: u32,
    pub(crate) journal: u32,
    pub(crate) disk: Vec<Record>,
    pub(crate) generation: u64,
    /// How far its wall clock is off.
    pub(crate) wall_offset_ms: i64,
    /// Commands whose reboot is under way, whatever becomes of the daemon.
    pub(crate) scheduled: BTreeSet<u64>,
    pub(crate) process: Option<Process>,
}

/// A daemon that runs.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) core: Core,
    pub(crate) running: BTreeMap<u64, Run>,
    /// What a Welcome said, and when it came; 0 before the first.
    pub(crate) server_ms: u64,
    pub(crate) welcomed_at: u64,
    /// The session that it speaks on, and its epoch.
    pub(crate) current: Option<(u32, u64)>,
    /// The highest epoch that it was welcomed with.
    pub(crate) newest: u64,
    /// The session that it waits to be welcomed on.
    pub(crate) connecting: Option<u32>,
}

/// A run on its worker.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) lane: Lane,
    pub(crate) ends_at: u64,
    pub(crate) is_hung: bool,
    pub(crate) is_cancelled: bool,
    pub(crate) attempt: u32,
}

pub(crate) fn node_id(node: usize) -> NodeId {
    NodeId::from_uuid(Uuid::from_u128(node as u128 + 1))
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self {
            incarnation: 1,
            role: Role::Host,
            boot: 1,
            journal: 1,
            disk: Vec::new(),
            generation: 1,
            wall_offset_ms: 0,
            scheduled: BTreeSet::new(),
            process: None,
        }
    }

    pub(crate) fn identity(&self, node: usize) -> Identity {
        let boot = format!("boot-{}", self.boot);
        Identity { node: node_id(node), incarnation: self.incarnation, role: self.role, boot, version: "1.0.0".into() }
    }

    pub(crate) fn greeting(&self) -> Greeting {
        Greeting {
            incarnation: self.incarnation,
            journal: format!("journal-{}", self.journal),
            boot: format!("boot-{}", self.boot),
            role: self.role,
        }
    }

    pub(crate) fn book(&self) -> Book {
        Book::read(self.disk.iter().cloned()).expect("the journal is in order")
    }

    pub(crate) fn save(&mut self, records: &[Record]) {
        for record in records {
            if matches!(record, Record::Forgotten { .. } | Record::ReplayFloor { .. }) {
                self.disk.retain(|kept| kept.command() != record.command());
            }
            if !matches!(record, Record::Forgotten { .. }) {
                self.disk.push(record.clone());
            }
        }
    }

    /// The file is damaged, or was on a disk that is no more.
    pub(crate) fn lose_journal(&mut self) {
        self.journal += 1;
        self.disk.clear();
    }

    /// Whether the node was told that a command is called off.
    pub(crate) fn knows_of_cancel(&self, number: u64) -> bool {
        self.disk.iter().any(|it| *it == Record::CancelRequested { command: crate::daemon::id(number) })
    }

    /// Runs that can end now.
    pub(crate) fn over(&self, now: u64) -> Vec<u64> {
        let running = self.process.iter().flat_map(|process| &process.running);
        running.filter(|(_, run)| !run.is_hung || run.ends_at <= now).map(|(number, _)| *number).collect()
    }

    /// How many workers of a lane hang.
    pub(crate) fn hung(&self, lane: Lane) -> usize {
        let running = self.process.iter().flat_map(|process| process.running.values());
        running.filter(|run| run.is_hung && run.lane == lane).count()
    }

    /// Ends that its journal has.
    pub(crate) fn kept_ends(&self) -> Vec<u64> {
        let ends = self.disk.iter().filter(|it| matches!(it, Record::Finished { .. } | Record::Refused { .. }));
        ends.map(|record| number(record.command())).collect()
    }
}

impl Process {
    pub(crate) fn busy(&self) -> PerLane {
        PerLane::count(self.running.values().map(|run| run.lane))
    }

    pub(crate) fn free(&self, lanes_apart: bool) -> PerLane {
        let mut busy = self.busy();
        if !lanes_apart {
            let all = busy.control + busy.provision + busy.bulk;
            busy = PerLane { control: all, provision: all, bulk: all };
        }
        LIMITS.free(busy)
    }

    pub(crate) fn server_now(&self, now: u64) -> u64 {
        self.server_ms + (now - self.welcomed_at)
    }
}

pub(crate) fn number(command: bc_proto::id::CommandId) -> u64 {
    u64::try_from(command.uuid().as_u128()).expect("commands are numbered")
}
