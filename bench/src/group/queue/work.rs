//! Null nodes, and the loops that a gateway runs over the queue for them.
//!
//! The batches are those of the gateway: one claim for all nodes with something to get, and one collector that writes what was
//! reported while its last batch was written. A node answers at once: that it started, and that it succeeded.
//!
//! **Invariant:** what is counted as settled was durable before it was counted. Each command is claimed, marked as started and
//! settled with its result and its event; nothing is skipped that a fast node would let a gateway skip.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use bc_host::bus::{Bus, Signal};
use bc_host::queue;
use bc_host::queue::claim::Delivery;
use bc_host::queue::mark::Mark;
use bc_host::queue::settle::Report;
use bc_proto::id::NodeId;
use bc_proto::rules::state::Event;
use sqlx::PgConnection;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;

use super::plane::{CREDITS, EPOCH, Plane, now, room};

/// The most nodes of one claim, and the most reports of one batch, as in the gateway.
const BATCH: usize = 1000;

/// The result of every run.
const RESULT: &[u8] = br#"{"ok":true}"#;

/// Gateway and nodes at work.
pub(super) struct Work {
    pub(super) bus: Bus,
    settled: watch::Receiver<usize>,
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<anyhow::Result<()>>; 2],
}

impl Work {
    /// Starts; every node may have something to get. `handed_over` hears when a command reaches its node.
    pub(super) async fn start(
        plane: &Plane,
        handed_over: Option<mpsc::UnboundedSender<Instant>>,
    ) -> anyhow::Result<Self> {
        let bus = Bus::local();
        let (reports, to_collect) = mpsc::channel(8 * BATCH);
        let (free, freed) = mpsc::unbounded_channel();
        let (count, settled) = watch::channel(0);
        let (stop, stopped) = watch::channel(false);
        let dispatcher = Dispatcher {
            db: plane.connect().await?,
            nodes: plane.nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect(),
            sessions: vec![Session::default(); plane.nodes.len()],
            dirty: (0..plane.nodes.len()).collect(),
            signals: bus.subscribe(),
            freed,
            reports,
            handed_over,
            stopped,
        };
        let fleet = Arc::new(plane.nodes.clone());
        let collector = Collector { db: plane.connect().await?, to_collect, free, count };
        Ok(Self { bus, settled, stop, tasks: [tokio::spawn(dispatcher.run(fleet)), tokio::spawn(collector.run())] })
    }

    /// Waits until so many are settled. Fails when the work ended before.
    pub(super) async fn settled(&mut self, commands: usize) -> anyhow::Result<()> {
        self.settled.wait_for(|settled| *settled >= commands).await.context("the work ended too early")?;
        Ok(())
    }

    /// How many are settled by now.
    pub(super) fn count(&self) -> usize {
        *self.settled.borrow()
    }

    /// Claims nothing more, and settles what is in flight; returns how many were settled in all.
    pub(super) async fn stop(self) -> anyhow::Result<usize> {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await??;
        }
        Ok(*self.settled.borrow())
    }
}

#[derive(Clone, Default)]
struct Session {
    outstanding: u32,
    above_seq: u64,
    is_dirty: bool,
}

struct Dispatcher {
    db: PgConnection,
    nodes: HashMap<NodeId, usize>,
    sessions: Vec<Session>,
    dirty: Vec<usize>,
    signals: broadcast::Receiver<Signal>,
    freed: mpsc::UnboundedReceiver<Vec<NodeId>>,
    reports: mpsc::Sender<Delivery>,
    handed_over: Option<mpsc::UnboundedSender<Instant>>,
    stopped: watch::Receiver<bool>,
}

impl Dispatcher {
    async fn run(mut self, fleet: Arc<Vec<NodeId>>) -> anyhow::Result<()> {
        self.sessions.iter_mut().for_each(|session| session.is_dirty = true);
        loop {
            self.take_what_is_known();
            let batch = self.next_batch();
            if !batch.is_empty() {
                self.claim(&fleet, &batch).await?;
            }
            if *self.stopped.borrow() {
                // The collector goes on until it has all: dropping the sender ends it.
                return Ok(());
            }
            if !self.dirty.is_empty() || !batch.is_empty() {
                continue;
            }
            tokio::select! {
                changed = self.stopped.changed() => changed?,
                signal = self.signals.recv() => self.hear(&signal),
                Some(nodes) = self.freed.recv() => self.free(&nodes),
            }
        }
    }

    fn take_what_is_known(&mut self) {
        while let Ok(nodes) = self.freed.try_recv() {
            self.free(&nodes);
        }
        loop {
            match self.signals.try_recv() {
                Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => return,
                Err(broadcast::error::TryRecvError::Lagged(missed)) => {
                    self.hear(&Err(broadcast::error::RecvError::Lagged(missed)));
                }
                Ok(signal) => self.hear(&Ok(signal)),
            }
        }
    }

    fn hear(&mut self, signal: &Result<Signal, broadcast::error::RecvError>) {
        match signal {
            Ok(Signal::Work { node }) => self.soil(self.nodes[node]),
            Ok(_) => {}
            // Some were missed: every node may have something to get.
            Err(_) => (0..self.sessions.len()).for_each(|node| self.soil(node)),
        }
    }

    fn soil(&mut self, node: usize) {
        let session = &mut self.sessions[node];
        if !session.is_dirty {
            session.is_dirty = true;
            // A node without room comes back when it has some.
            if session.outstanding < CREDITS {
                self.dirty.push(node);
            }
        }
    }

    fn free(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            let node = self.nodes[node];
            let session = &mut self.sessions[node];
            let was_full = session.outstanding == CREDITS;
            session.outstanding -= 1;
            if was_full && session.is_dirty {
                self.dirty.push(node);
            }
        }
    }

    fn next_batch(&mut self) -> Vec<usize> {
        let rest = self.dirty.split_off(self.dirty.len().min(BATCH));
        std::mem::replace(&mut self.dirty, rest)
    }

    async fn claim(&mut self, fleet: &[NodeId], batch: &[usize]) -> anyhow::Result<()> {
        let rooms: Vec<_> = batch
            .iter()
            .map(|&node| {
                let session = &mut self.sessions[node];
                session.is_dirty = false;
                room(fleet[node], CREDITS - session.outstanding, session.above_seq)
            })
            .collect();
        for delivery in queue::claim(&mut self.db, &rooms, now()).await? {
            let node = self.nodes[&delivery.deliver.node];
            let session = &mut self.sessions[node];
            session.outstanding += 1;
            session.above_seq = session.above_seq.max(delivery.deliver.seq);
            if let Some(handed_over) = &self.handed_over {
                handed_over.send(Instant::now())?;
            }
            self.reports.send(delivery).await?;
        }
        for (room, &node) in rooms.iter().zip(batch) {
            let session = &mut self.sessions[node];
            let before = CREDITS - room.credits;
            // It got all that it had room for, so there may be more.
            if session.outstanding - before == room.credits {
                session.is_dirty = true;
            }
        }
        Ok(())
    }
}

struct Collector {
    db: PgConnection,
    to_collect: mpsc::Receiver<Delivery>,
    free: mpsc::UnboundedSender<Vec<NodeId>>,
    count: watch::Sender<usize>,
}

impl Collector {
    async fn run(mut self) -> anyhow::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        while self.to_collect.recv_many(&mut batch, BATCH).await > 0 {
            let now = now();
            let mark = |it: &Delivery| Mark {
                node: it.deliver.node,
                epoch: EPOCH,
                command: it.deliver.command,
                event: Event::Started,
            };
            let marks: Vec<Mark> = batch.iter().map(mark).collect();
            queue::mark(&mut self.db, &marks).await?;
            let report = |it: &Delivery| Report {
                node: it.deliver.node,
                epoch: EPOCH,
                command: it.deliver.command,
                event: Event::ReportedSucceeded,
                reason: String::new(),
                result: RESULT.to_vec(),
                at: Some(now),
                node_sig: Vec::new(),
                attested_by: None,
            };
            let reports: Vec<Report> = batch.iter().map(report).collect();
            let settled = queue::settle(&mut self.db, &reports, now).await?;
            ensure!(settled.now.len() == batch.len(), "{} of {} were settled", settled.now.len(), batch.len());
            self.count.send_modify(|count| *count += batch.len());
            // Nobody claims any more after a stop.
            let _ = self.free.send(batch.iter().map(|it| it.deliver.node).collect());
            batch.clear();
        }
        Ok(())
    }
}
