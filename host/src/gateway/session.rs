//! One session: greeting, replay, then frames until its end.
//!
//! **Invariant:** a frame of another epoch has no effect, and one that says nothing sensible ends nothing but itself.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bc_proto::id::CommandId;
use bc_proto::rules::state::Event;
use bc_proto::wire::{Hello, Output, Report, Update, v1};
use futures_util::{Stream, StreamExt};
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use super::collector::{Item, What};
use super::greeter::{Entered, Knock};
use super::sessions::{self, BACKLOG, Outbound, Session};
use super::{Caller, Inner, away, desired, dispatcher};
use crate::bus::{Progress, Signal};
use crate::faults::crash_at;
use crate::metrics;
use crate::queue;
use crate::store::output::Told;
use crate::store::specs::Spec;
use crate::store::unix_ms;

/// How long a stream may be open without a Hello, and how long a node may take to read its replay.
const GREETING: Duration = Duration::from_secs(30);

/// The least time between two progress signals of a command.
const PROGRESS: Duration = Duration::from_millis(500);

/// The longest text of a progress, bytes: it has to fit a NOTIFY with others. What is longer is cut, since it is for people to
/// glance at and never kept.
const MAX_PROGRESS_TEXT: usize = 256;

/// What a session says to its node: ends with the session, and ends it when the node goes away.
pub struct Outbox {
    frames: mpsc::Receiver<Outbound>,
    over: CancellationToken,
    is_over: Pin<Box<WaitForCancellationFutureOwned>>,
    is_done: bool,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl Stream for Outbox {
    type Item = Result<v1::ToNode, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        match self.frames.poll_recv(context) {
            Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(*frame))),
            Poll::Ready(Some(Err(status))) => {
                self.is_done = true;
                return Poll::Ready(Some(Err(*status)));
            }
            Poll::Ready(None) => {}
            Poll::Pending if self.is_over.as_mut().poll(context).is_ready() => {}
            Poll::Pending => return Poll::Pending,
        }
        self.is_done = true;
        Poll::Ready(Some(Err(Status::unavailable("the session was closed"))))
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// Begins a session; the stream is what it says.
pub(super) fn begin<S>(gateway: &Arc<Inner>, caller: Caller, frames: S) -> Outbox
where
    S: Stream<Item = Result<v1::FromNode, Status>> + Send + Unpin + 'static,
{
    let (out, outbox) = mpsc::channel(BACKLOG);
    let over = CancellationToken::new();
    let task = run(gateway.clone(), caller, frames, out, over.clone());
    tokio::spawn(gateway.stop.clone().run_until_cancelled_owned(task));
    let is_over = Box::pin(over.clone().cancelled_owned());
    Outbox { frames: outbox, over, is_over, is_done: false }
}

async fn run<S>(
    gateway: Arc<Inner>,
    caller: Caller,
    mut frames: S,
    out: mpsc::Sender<Outbound>,
    over: CancellationToken,
) where
    S: Stream<Item = Result<v1::FromNode, Status>> + Send + Unpin + 'static,
{
    let _guard = over.clone().drop_guard();
    // Boxed, since a session waits in the loop below for most of its life.
    let entering = Box::pin(enter(&gateway, caller, &mut frames, out.clone(), over));
    let session = match entering.await {
        Ok(session) => session,
        Err(status) => {
            tracing::info!(node = %caller.peer.node, %status, "a node was not let in");
            metrics::not_let_in(status.code());
            let _ = out.send(Err(Box::new(status))).await;
            return;
        }
    };
    drop(out);
    let left = Left { gateway: &gateway, session: &session };
    let mut told = Vec::new();
    loop {
        let frame = tokio::select! {
            biased;
            () = session.is_over() => break,
            frame = frames.next() => frame,
        };
        match frame {
            Some(Ok(frame)) => {
                session.hear(gateway.now_ms());
                if frame.epoch == session.epoch {
                    take(&gateway, &session, frame.frame, &mut told).await;
                }
            }
            Some(Err(_)) | None => break,
        }
    }
    drop(left);
}

/// Notes the end of a session, however its task ends.
struct Left<'a> {
    gateway: &'a Inner,
    session: &'a Session,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.session.close(Status::unavailable("the session was closed"));
        self.gateway.sessions.leave(self.session);
        self.gateway.ended(self.session);
    }
}

async fn enter<S>(
    gateway: &Arc<Inner>,
    caller: Caller,
    frames: &mut S,
    out: mpsc::Sender<Outbound>,
    over: CancellationToken,
) -> Result<Arc<Session>, Status>
where
    S: Stream<Item = Result<v1::FromNode, Status>> + Send + Unpin,
{
    let late = |_| Status::deadline_exceeded("the greeting took too long");
    let first = tokio::time::timeout(GREETING, frames.next()).await.map_err(late)?;
    let Some(v1::from_node::Frame::Hello(hello)) = first.transpose()?.and_then(|first| first.frame) else {
        return Err(Status::invalid_argument("the first frame of a session is Hello"));
    };
    let hello = Hello::try_from(hello).map_err(|invalid| Status::invalid_argument(invalid.to_string()))?;
    if gateway.sessions.is_draining() {
        return Err(Status::unavailable("this gateway goes away"));
    }
    let generation = hello.generation;
    let (reply, answer) = oneshot::channel();
    let gone = || Status::unavailable("this gateway goes away");
    let trust_version = hello.trust_version;
    gateway.knocks.send(Knock { caller, hello, reply }).await.map_err(|_| gone())?;
    let Entered { session: opened, allowed_kinds, spec } = answer.await.map_err(|_| gone())??;
    let session = Arc::new(Session::new(caller.peer.node, opened.epoch, allowed_kinds, out.clone(), over));
    session.trust_version.store(trust_version, Ordering::Relaxed);
    session.has_spec(generation);
    tokio::time::timeout(GREETING, welcome(gateway, &session, &out, opened, spec)).await.map_err(late)??;
    session.hear(gateway.now_ms());
    gateway.sessions.enter(&session);
    metrics::session_opened();
    gateway.bundles.tell(&session);
    if gateway.sessions.is_draining() {
        session.send(drain(gateway.settings.heartbeat));
    }
    // Whatever was told since the hello was read: work and cancels alike.
    gateway.looks.add([session.node]);
    Ok(session)
}

/// Welcome, then what the node may have in the order of its seqs, then what of it is called off.
async fn welcome(
    gateway: &Inner,
    session: &Session,
    out: &mpsc::Sender<Outbound>,
    opened: queue::hello::Session,
    spec: Option<Spec>,
) -> Result<(), Status> {
    use v1::to_node::Frame;
    let send =
        async |frame| out.send(Ok(session.frame(frame))).await.map_err(|_| Status::cancelled("the node went away"));
    let heartbeat_ms = u32::try_from(gateway.settings.heartbeat.as_millis()).unwrap_or(u32::MAX);
    let server_time_ms = unix_ms(gateway.world.now());
    let settled_below_seq = opened.settled_below_seq;
    crash_at("welcome.before-send");
    let mut bundles = gateway.bundles.news(session).into_iter();
    let trust_bundle = bundles.next().unwrap_or_default();
    let epoch = session.epoch;
    let welcome = v1::Welcome { epoch, server_time_ms, settled_below_seq, heartbeat_ms, trust_bundle };
    send(Frame::Welcome(welcome)).await?;
    for trust_bundle in bundles {
        send(Frame::TrustChanged(v1::TrustChanged { trust_bundle })).await?;
    }
    // Before any command that presupposes it.
    if let Some(spec) = spec.filter(|spec| session.has_spec(spec.generation)) {
        send(desired::frame(spec)).await?;
    }
    let mut cancelled = Vec::new();
    let mut refused = Vec::new();
    for mut delivery in opened.replay {
        if !session.allows(&delivery.deliver.kind) {
            refused.push(dispatcher::refusal(&delivery, session.epoch));
            continue;
        }
        session.count(&delivery);
        gateway.allow_upload(&mut delivery);
        cancelled.extend(delivery.cancelled());
        send(Frame::Deliver(delivery.deliver.into())).await?;
    }
    for cancelled in cancelled {
        send(sessions::cancel(cancelled)).await?;
    }
    crash_at("welcome.after-send");
    dispatcher::refuse(gateway, &refused).await.map_err(|error| away(&error))
}

pub(super) fn drain(grace: Duration) -> v1::to_node::Frame {
    v1::to_node::Frame::Drain(v1::Drain { grace_ms: u32::try_from(grace.as_millis()).unwrap_or(u32::MAX) })
}

/// Takes a frame. Waits while the collector is full, which keeps the node from sending more.
async fn take(
    gateway: &Inner,
    session: &Arc<Session>,
    frame: Option<v1::from_node::Frame>,
    told: &mut Vec<(CommandId, Instant)>,
) {
    use v1::from_node::Frame;
    let (command, what, kib) = match frame {
        Some(Frame::Ack(ack)) => match ack.command_id.parse() {
            Ok(command) => {
                if let Some((lane, took)) = session.acked(command, Instant::now()) {
                    metrics::acked(lane, took);
                }
                (command, What::Mark(Event::Acked), 0)
            }
            Err(_) => return nonsense(session, "Ack.command_id: must be cmd_…"),
        },
        Some(Frame::Update(update)) => match Update::try_from(update) {
            Ok(update) => {
                let kib = update.result.len() / 1_024 + 1;
                (update.command, what(session, update), u32::try_from(kib).unwrap_or(u32::MAX))
            }
            Err(invalid) => return nonsense(session, &invalid.to_string()),
        },
        Some(Frame::Output(output)) => match Output::try_from(output) {
            Ok(Output { command, attempt, stream, offset, bytes }) => {
                let kib = u32::try_from(bytes.len() / 1_024 + 1).unwrap_or(u32::MAX);
                let (node, epoch, at_byte) = (session.node, session.epoch, offset);
                (command, What::Output(Told { node, epoch, command, attempt, stream, at_byte, bytes }), kib)
            }
            Err(invalid) => return nonsense(session, &invalid.to_string()),
        },
        Some(Frame::Progress(progress)) => return tell(gateway, session, progress, told),
        Some(Frame::Heartbeat(_)) => return,
        Some(Frame::SpecWanted(wanted)) => {
            session.wants_spec(wanted.min_generation);
            return gateway.looks.add([session.node]);
        }
        Some(Frame::SpecApplied(applied)) => {
            let what = desired::What::Applied(applied.generation);
            return desired::take(gateway, session, what).await;
        }
        Some(Frame::AllocationBound(bound)) => {
            return desired::take(gateway, session, desired::What::Bound(bound)).await;
        }
        Some(Frame::Conditions(conditions)) => match conditions.checked() {
            Ok(conditions) => return desired::take(gateway, session, desired::What::Conditions(conditions)).await,
            Err(invalid) => return nonsense(session, &invalid.to_string()),
        },
        Some(Frame::Hello(_)) => return nonsense(session, "a session has one Hello"),
        None => return nonsense(session, "a frame that this gateway does not know"),
    };
    let room = match kib {
        0 => None,
        kib => gateway.room.clone().acquire_many_owned(kib).await.ok(),
    };
    // Without a collector the gateway ends, and the node tells it to another one.
    let _ = gateway.items.send(Item { session: session.clone(), command, what, room }).await;
}

fn what(session: &Session, update: Update) -> What {
    match update.report {
        Report::Running => What::Mark(Event::Started),
        Report::Busy => What::Busy,
        report => What::Report(queue::settle::Report {
            node: session.node,
            epoch: session.epoch,
            command: update.command,
            event: report.event(),
            // The one character that Postgres does not take.
            reason: update.reason.replace('\0', "\u{fffd}"),
            result: update.result,
            at: Some(
                i64::try_from(update.at_ms / 1_000)
                    .ok()
                    .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
                    .map_or(OffsetDateTime::UNIX_EPOCH, |at| at + Duration::from_millis(update.at_ms % 1_000)),
            ),
            // One byte more than a signature has says as much as any number of them.
            node_sig: update.node_sig.into_iter().take(65).collect(),
            attested_by: None,
        }),
    }
}

/// A frame that cannot be used. Ending the session would keep the node's other commands waiting, and it would say it again.
fn nonsense(session: &Session, what: &str) {
    tracing::warn!(node = %session.node, epoch = session.epoch, what, "the node said something that is no use");
}

/// Passes progress on, at most every [`PROGRESS`] for each command.
fn tell(gateway: &Inner, session: &Session, progress: v1::Progress, told: &mut Vec<(CommandId, Instant)>) {
    let Ok(command_id) = progress.command_id.parse::<CommandId>() else { return };
    if !session.has(command_id) {
        return;
    }
    let now = Instant::now();
    told.retain(|(_, at)| now - *at < PROGRESS);
    if told.iter().any(|(it, _)| *it == command_id) {
        return;
    }
    told.push((command_id, now));
    gateway.bus.tell(Signal::Progress(Progress {
        command_id,
        node_id: session.node,
        done: progress.done,
        total: progress.total,
        unit: cut(progress.unit),
        message: cut(progress.message),
    }));
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_PROGRESS_TEXT));
    text
}
