//! From the sessions to the database: whatever all nodes reported while the last batch was written is the next.
//!
//! **Invariant:** an update is acknowledged after it is durable and never before. One that cannot be written is not acknowledged,
//! and the node tells it again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bc_proto::id::{CommandId, NodeId};
use bc_proto::rules::state::Event;
use bc_proto::wire::v1;
use sqlx::types::Uuid;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tonic::Status;

use super::Inner;
use super::sessions::Session;
use crate::bus::Signal;
use crate::faults::crash_at;
use crate::metrics;
use crate::queue;
use crate::queue::attest::{self, Judged, Refused};
use crate::queue::hello::settled_below;
use crate::queue::mark::{Busy, Mark, Requeued};
use crate::queue::settle::{Report, Settled};
use crate::store::Error;
use crate::store::kinds::Digest;
use crate::store::output::{self, Told};

/// The most updates of one batch, and how many may wait for the next before sessions are not read any more.
pub(super) const BATCH: usize = 1_024;

/// How many KiB of results may wait in all.
pub(super) const ROOM_KIB: usize = 64 * 1_024;

/// The waits before a batch is tried again. After the last one its sessions are ended.
const RETRIES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(3)];

/// What a node said of a command.
pub(super) struct Item {
    pub(super) session: Arc<Session>,
    pub(super) command: CommandId,
    pub(super) what: What,
    /// Its share of [`ROOM_KIB`].
    pub(super) room: Option<OwnedSemaphorePermit>,
}

pub(super) enum What {
    /// [`Event::Acked`] or [`Event::Started`].
    Mark(Event),
    Busy,
    Report(Report),
    Output(Told),
}

/// Writes what comes.
pub(super) async fn run(gateway: Arc<Inner>, mut items: mpsc::Receiver<Item>) {
    let mut batch = Vec::new();
    while items.recv_many(&mut batch, BATCH).await > 0 {
        collect(&gateway, std::mem::take(&mut batch)).await;
    }
}

async fn collect(gateway: &Inner, batch: Vec<Item>) {
    let mut batch = Batch::of(batch);
    let mut retries = RETRIES.iter();
    loop {
        let error = match write(gateway, &batch).await {
            Ok(written) => return tell(gateway, &batch, written),
            Err(error) => error,
        };
        tracing::error!(error = &error as &dyn std::error::Error, updates = batch.len(), "updates cannot be written");
        // Something about one of them: the rest must not suffer for it.
        if matches!(error, Error::Database(sqlx::Error::Database(_)) | Error::Corrupt { .. })
            && batch.sessions.len() > 1
        {
            for alone in batch.split() {
                match write(gateway, &alone).await {
                    Ok(written) => tell(gateway, &alone, written),
                    Err(error) => {
                        let nodes: Vec<String> = alone.sessions.keys().map(ToString::to_string).collect();
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            ?nodes,
                            "its updates cannot be written"
                        );
                        alone.close();
                    }
                }
            }
            return;
        }
        let Some(wait) = retries.next() else { return batch.close() };
        tokio::time::sleep(*wait).await;
        batch.forget_closed();
    }
}

/// A batch, by what it takes to write it.
#[derive(Default)]
struct Batch {
    sessions: HashMap<NodeId, Arc<Session>>,
    marks: Vec<Mark>,
    busy: Vec<Busy>,
    reports: Vec<Report>,
    output: Vec<Told>,
    room: Vec<OwnedSemaphorePermit>,
}

impl Batch {
    fn of(items: Vec<Item>) -> Self {
        let mut batch = Self::default();
        let ended: HashSet<Uuid> =
            items.iter().filter(|it| matches!(it.what, What::Report(_))).map(|it| it.command.uuid()).collect();
        for item in items {
            let (node, epoch, command) = (item.session.node, item.session.epoch, item.command);
            // Of two sessions of a node the older one's updates have no effect.
            match batch.sessions.get(&node) {
                Some(present) if present.epoch > epoch => continue,
                _ => batch.sessions.insert(node, item.session),
            };
            match item.what {
                What::Mark(_) if ended.contains(&command.uuid()) => {}
                What::Mark(event) => batch.marks.push(Mark { node, epoch, command, event }),
                What::Busy => batch.busy.push(Busy { node, epoch, command }),
                What::Report(report) => batch.reports.push(report),
                What::Output(told) => batch.output.push(told),
            }
            batch.room.extend(item.room);
        }
        batch
    }

    fn len(&self) -> usize {
        self.marks.len() + self.busy.len() + self.reports.len() + self.output.len()
    }

    /// One batch a session.
    fn split(&self) -> Vec<Self> {
        let of = |session: &Arc<Session>| Self {
            sessions: [(session.node, session.clone())].into(),
            marks: self.marks.iter().filter(|it| it.node == session.node).copied().collect(),
            busy: self.busy.iter().filter(|it| it.node == session.node).copied().collect(),
            reports: self.reports.iter().filter(|it| it.node == session.node).cloned().collect(),
            output: self.output.iter().filter(|it| it.node == session.node).cloned().collect(),
            room: Vec::new(),
        };
        self.sessions.values().map(of).collect()
    }

    /// Drops what came on sessions that ended meanwhile: their nodes tell it again.
    fn forget_closed(&mut self) {
        self.sessions.retain(|_, session| !session.is_closed());
        let sessions = &self.sessions;
        self.marks.retain(|it| sessions.contains_key(&it.node));
        self.busy.retain(|it| sessions.contains_key(&it.node));
        self.reports.retain(|it| sessions.contains_key(&it.node));
        self.output.retain(|it| sessions.contains_key(&it.node));
    }

    fn close(&self) {
        for session in self.sessions.values() {
            session.close(Status::unavailable("your updates cannot be stored for now; tell them again"));
        }
    }
}

#[derive(Default)]
struct Written {
    requeued: Vec<Requeued>,
    settled: Settled,
    /// Reports that are not believed: they changed nothing, and are not acknowledged.
    refused: Vec<Refused>,
    /// How many of these were told as events.
    told: u64,
    below: HashMap<Uuid, u64>,
}

/// One statement for each sort of update; each commits by itself, and all of them may be written again.
async fn write(gateway: &Inner, batch: &Batch) -> Result<Written, Error> {
    let mut db = gateway.pool.acquire().await?;
    let now = gateway.world.now();
    if !batch.marks.is_empty() {
        crash_at("mark.before-write");
        queue::mark(&mut db, &batch.marks).await?;
        crash_at("mark.after-write");
    }
    let mut requeued = Vec::new();
    if !batch.busy.is_empty() {
        // Its two statements decide together.
        let mut tx = sqlx::Connection::begin(&mut *db).await?;
        requeued = queue::requeue(&mut tx, &batch.busy, now, || gateway.world.fraction()).await?;
        crash_at("requeue.before-write");
        tx.commit().await?;
        crash_at("requeue.after-write");
    }
    if !batch.output.is_empty() {
        // Before the reports: a command that has ended takes no more.
        output::keep(&mut db, &batch.output).await?;
    }
    let mut written = Written { requeued, ..Written::default() };
    if !batch.reports.is_empty() {
        let known = gateway.attested(batch);
        let Judged { kept, refused, learned } = attest::judge(&mut db, &batch.reports, &known, now).await?;
        gateway.learn(learned);
        written.told = attest::note(&mut db, &batch.reports, &refused, now).await?;
        written.refused = refused;
        crash_at("settle.before-write");
        written.settled = queue::settle(&mut db, &kept, now).await?;
        crash_at("settle.after-write");
        let nodes: HashSet<Uuid> = batch.reports.iter().map(|report| report.node.uuid()).collect();
        written.below = settled_below(&mut db, &nodes.into_iter().collect::<Vec<_>>()).await?;
    }
    Ok(written)
}

impl Inner {
    /// What is known of each report's kind: whether it is attested.
    fn attested(&self, batch: &Batch) -> Vec<Option<bool>> {
        let attested = self.attested.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |report: &Report| {
            let digest = batch.sessions.get(&report.node)?.digest_of(report.command)?;
            attested.get(&digest).copied()
        };
        batch.reports.iter().map(known).collect()
    }

    fn learn(&self, learned: Vec<(Digest, bool)>) {
        self.attested.lock().unwrap_or_else(PoisonError::into_inner).extend(learned);
    }
}

/// Acknowledges what was written, and gives the credits back.
fn tell(gateway: &Inner, batch: &Batch, written: Written) {
    let Written { requeued, settled, refused, told, below } = written;
    let now = gateway.world.now();
    for it in &requeued {
        if let Some(session) = batch.sessions.get(&it.node) {
            session.rewind();
        }
        let wait = Duration::try_from(it.not_before - now).unwrap_or(Duration::ZERO);
        // Postgres counts microseconds and a timer milliseconds: a little later is not too early.
        gateway.timers.add(Instant::now() + wait + Duration::from_millis(2), it.node);
    }
    for it in &batch.busy {
        if let Some(session) = batch.sessions.get(&it.node) {
            session.release(&[it.command], Instant::now());
        }
    }
    let spoke: HashSet<CommandId> = batch.output.iter().map(|it| it.command).collect();
    for command in spoke {
        gateway.bus.tell(Signal::Output { command });
    }
    if !settled.now.is_empty() || told > 0 {
        gateway.bus.tell(Signal::Events);
    }
    metrics::absorbed(settled.before.len());
    for it in &refused {
        metrics::refused(it.reason);
        let Report { node, command, .. } = &batch.reports[it.index];
        tracing::warn!(%node, %command, reason = %it.reason, "a result is not believed");
    }
    let refused: HashSet<usize> = refused.iter().map(|it| it.index).collect();
    let dropped: HashSet<Uuid> = settled.dropped.iter().map(CommandId::uuid).collect();
    let mut acknowledged: HashMap<NodeId, Vec<CommandId>> = HashMap::new();
    for (index, report) in batch.reports.iter().enumerate() {
        if refused.contains(&index) {
            continue;
        }
        if dropped.contains(&report.command.uuid()) {
            // Most likely the session is over.
            gateway.looks.add([report.node]);
        } else {
            acknowledged.entry(report.node).or_default().push(report.command);
        }
    }
    for (node, commands) in acknowledged {
        let Some(session) = batch.sessions.get(&node) else { continue };
        for (lane, took) in session.release(&commands, Instant::now()) {
            metrics::finished(lane, took);
        }
        crash_at("update-ack.before-send");
        session.send(v1::to_node::Frame::UpdateAck(v1::UpdateAck {
            command_ids: commands.iter().map(ToString::to_string).collect(),
            settled_below_seq: below.get(&node.uuid()).copied().unwrap_or(0),
        }));
        crash_at("update-ack.after-send");
        gateway.work.add([node]);
    }
}
