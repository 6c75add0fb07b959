//! The sessions that this replica holds.
//!
//! **Invariant:** what is kept here of a session can be lost at any time: credits are limits minus what is outstanding, which
//! the next hello counts anew from the database.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bc_proto::id::{CommandId, NodeId};
use bc_proto::manifest::Lane;
use bc_proto::rules::lane::{LIMITS, PerLane};
use bc_proto::wire::v1;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::queue::claim::{Delivery, Room};
use crate::queue::look::Cancelled;
use crate::store::kinds::Digest;

/// How many frames may wait for a node that does not read. More than a full set of lanes, with cancels and acknowledgements; a
/// session with more than that waiting is closed.
pub(super) const BACKLOG: usize = 128;

/// What goes to the node: a frame, or the end of the session. Boxed, since a channel allocates room for 32 of them at once.
pub(super) type Outbound = Result<Box<v1::ToNode>, Box<Status>>;

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) node: NodeId,
    pub(super) epoch: u64,
    /// The only kinds that its certificate allows.
    allowed_kinds: Option<Box<[String]>>,
    out: mpsc::Sender<Outbound>,
    over: CancellationToken,
    /// When it was last heard, in milliseconds of the gateway's own time.
    heard_ms: AtomicU64,
    /// The version of the trust bundle that it was told of last.
    pub(super) trust_version: AtomicU64,
    /// The generation of the spec that the node has, or that is on its way to it.
    spec: AtomicU64,
    books: Mutex<Books>,
}

/// A command that the node has.
#[derive(Debug)]
struct Outstanding {
    command: CommandId,
    lane: Lane,
    /// SHA-256 of its component.
    digest: Option<Digest>,
    /// When it was sent on this session.
    sent: Instant,
    /// When the node said that it has it.
    acked: Option<Instant>,
}

impl From<&Delivery> for Outstanding {
    fn from(delivery: &Delivery) -> Self {
        let mut digest = Digest::default();
        let is_read = hex::decode_to_slice(&delivery.deliver.kind_digest, &mut digest).is_ok();
        let (command, lane, digest) = (delivery.deliver.command, delivery.lane, is_read.then_some(digest));
        Self { command, lane, digest, sent: Instant::now(), acked: None }
    }
}

#[derive(Debug, Default)]
struct Books {
    outstanding: Vec<Outstanding>,
    /// The highest seq claimed of each lane, in the order of [`Lane::ALL`].
    above: [u64; 3],
    /// Called off before they were sent: the claim and the wish crossed.
    cancelled: Vec<Cancelled>,
}

impl Session {
    pub(super) fn new(
        node: NodeId,
        epoch: u64,
        allowed_kinds: Option<Vec<String>>,
        out: mpsc::Sender<Outbound>,
        over: CancellationToken,
    ) -> Self {
        let allowed_kinds = allowed_kinds.map(Vec::into_boxed_slice);
        Self {
            node,
            epoch,
            allowed_kinds,
            out,
            over,
            heard_ms: AtomicU64::new(0),
            trust_version: AtomicU64::new(0),
            spec: AtomicU64::new(0),
            books: Mutex::default(),
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its certificate allows a kind.
    pub(super) fn allows(&self, kind: &str) -> bool {
        self.allowed_kinds.as_ref().is_none_or(|allowed| allowed.iter().any(|it| it == kind))
    }

    pub(super) fn frame(&self, frame: v1::to_node::Frame) -> Box<v1::ToNode> {
        Box::new(v1::ToNode { epoch: self.epoch, frame: Some(frame) })
    }

    /// Sends a frame. A node that does not read is closed.
    pub(super) fn send(&self, frame: v1::to_node::Frame) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.out.try_send(Ok(self.frame(frame))) {
            tracing::warn!(node = %self.node, epoch = self.epoch, "the node does not read what it is sent");
            self.over.cancel();
        }
    }

    /// Sends a command, and its cancel if that came first.
    pub(super) fn deliver(&self, delivery: Delivery) {
        let (command, lane) = (delivery.deliver.command, delivery.lane);
        let mut books = self.books();
        if !books.outstanding.iter().any(|it| it.command == command) {
            books.outstanding.push((&delivery).into());
        }
        let above = &mut books.above[index(lane)];
        *above = delivery.deliver.seq.max(*above);
        let early = books.cancelled.iter().position(|it| it.command == command);
        let cancelled = early.map(|at| books.cancelled.swap_remove(at)).or(delivery.cancelled());
        self.send(v1::to_node::Frame::Deliver(delivery.deliver.into()));
        if let Some(cancelled) = cancelled {
            self.send(cancel(cancelled));
        }
    }

    /// Counts a command that was replayed.
    pub(super) fn count(&self, delivery: &Delivery) {
        self.books().outstanding.push(delivery.into());
    }

    /// The component of a command that the node has.
    pub(super) fn digest_of(&self, command: CommandId) -> Option<Digest> {
        self.books().outstanding.iter().find(|it| it.command == command)?.digest
    }

    /// Asks the node to stop a command, at once or as soon as it is sent.
    pub(super) fn cancel(&self, cancelled: Cancelled) {
        let mut books = self.books();
        if books.outstanding.iter().any(|it| it.command == cancelled.command) {
            self.send(cancel(cancelled));
        } else if !books.cancelled.contains(&cancelled) && books.cancelled.len() < BACKLOG {
            books.cancelled.push(cancelled);
        }
    }

    pub(super) fn has(&self, command: CommandId) -> bool {
        self.books().outstanding.iter().any(|it| it.command == command)
    }

    /// What it can take, lane by lane.
    pub(super) fn rooms(&self) -> Vec<Room> {
        let books = self.books();
        let free = LIMITS.free(PerLane::count(books.outstanding.iter().map(|it| it.lane)));
        let room = |lane: Lane| {
            let above_seq = books.above[index(lane)];
            Room { node: self.node, epoch: self.epoch, lane, credits: free.get(lane), above_seq }
        };
        Lane::ALL.into_iter().map(room).filter(|room| room.credits > 0).collect()
    }

    /// What it has outstanding, lane by lane.
    pub(super) fn outstanding(&self) -> PerLane {
        PerLane::count(self.books().outstanding.iter().map(|it| it.lane))
    }

    /// The node has said that it has a command, at `now`: how long that took, when it is the first time that it says so.
    pub(super) fn acked(&self, command: CommandId, now: Instant) -> Option<(Lane, Duration)> {
        let mut books = self.books();
        let it = books.outstanding.iter_mut().find(|it| it.command == command && it.acked.is_none())?;
        it.acked = Some(now);
        Some((it.lane, now.saturating_duration_since(it.sent)))
    }

    /// Gives credits back; says of those that the node had acknowledged how long they took from then until `now`.
    pub(super) fn release(&self, commands: &[CommandId], now: Instant) -> Vec<(Lane, Duration)> {
        let mut took = Vec::new();
        self.books().outstanding.retain(|it| {
            let stays = !commands.contains(&it.command);
            if let (false, Some(acked)) = (stays, it.acked) {
                took.push((it.lane, now.saturating_duration_since(acked)));
            }
            stays
        });
        took
    }

    /// Claims from the beginning next time.
    pub(super) fn rewind(&self) {
        self.books().above = [0; 3];
    }

    pub(super) fn hear(&self, now_ms: u64) {
        self.heard_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn heard_ms(&self) -> u64 {
        self.heard_ms.load(Ordering::Relaxed)
    }

    /// The generation of the spec that needs not be sent any more.
    pub(super) fn spec(&self) -> u64 {
        self.spec.load(Ordering::Relaxed)
    }

    /// The node has this generation, or gets it now; false where it had it before.
    pub(super) fn has_spec(&self, generation: u64) -> bool {
        self.spec.fetch_max(generation, Ordering::Relaxed) < generation
    }

    /// The node asks for this generation or a newer one, whatever it was sent.
    pub(super) fn wants_spec(&self, generation: u64) {
        self.spec.store(generation.saturating_sub(1), Ordering::Relaxed);
    }

    /// Ends it, with a reason for the node.
    pub(super) fn close(&self, status: Status) {
        // Without room for the reason it ends without one.
        let _ = self.out.try_send(Err(Box::new(status)));
        self.over.cancel();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Ends when the session does.
    pub(super) async fn is_over(&self) {
        self.over.cancelled().await;
    }
}

/// The frame that calls a command off, with the signature that was stored with it.
pub(super) fn cancel(cancelled: Cancelled) -> v1::to_node::Frame {
    let Cancelled { command, signature } = cancelled;
    v1::to_node::Frame::Cancel(v1::Cancel { command_id: command.to_string(), signature: signature.map(Into::into) })
}

const fn index(lane: Lane) -> usize {
    match lane {
        Lane::Control => 0,
        Lane::Provision => 1,
        Lane::Bulk => 2,
    }
}

/// All of this replica's.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_node: Mutex<HashMap<NodeId, Arc<Session>>>,
    is_draining: AtomicBool,
    left: Notify,
}

impl Sessions {
    fn by_node(&self) -> MutexGuard<'_, HashMap<NodeId, Arc<Session>>> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a session up. Of two of one node the higher epoch wins, and the other is closed.
    pub(super) fn enter(&self, session: &Arc<Session>) {
        let superseded = || Status::aborted("a newer session of this node was opened");
        let older = match self.by_node().entry(session.node) {
            Entry::Occupied(present) if present.get().epoch > session.epoch => session.clone(),
            Entry::Occupied(mut present) => present.insert(session.clone()),
            Entry::Vacant(place) => {
                place.insert(session.clone());
                return;
            }
        };
        older.close(superseded());
    }

    /// Lets a session go, if it is still the one.
    pub(super) fn leave(&self, session: &Session) {
        let mut by_node = self.by_node();
        if by_node.get(&session.node).is_some_and(|present| present.epoch == session.epoch) {
            by_node.remove(&session.node);
        }
        let is_empty = by_node.is_empty();
        drop(by_node);
        if is_empty {
            self.left.notify_waiters();
        }
    }

    pub(super) fn find(&self, node: NodeId) -> Option<Arc<Session>> {
        self.by_node().get(&node).cloned()
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.by_node().contains_key(&node)
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.by_node().keys().copied().collect()
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.by_node().values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_node().len()
    }

    /// No more sessions from now on.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Waits until the last one has left.
    pub(super) async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.len() == 0 {
                return;
            }
            left.await;
        }
    }
}
