//! What the daemon says, on its way to the session that is open.
//!
//! **Invariant:** saying something never waits. Where there is no session it is dropped, and the core says it again on the
//! next one; a session that does not keep up is broken off, with the same effect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bc_proto::id::CommandId;
use bc_proto::rules::attest;
use bc_proto::rules::daemon::Frame;
use bc_proto::wire::{Stream, Update, v1};
use bc_runtime::capability::process::OutputStream;
use bc_runtime::v1::wit::log::Level;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::live::{GATHER, Live};
use crate::credentials::Credentials;
use crate::shell::FrameSink;

/// Frames that wait for one session. Twice of what one batch of the loop can say.
pub(super) const FRAMES: usize = 256;
/// A run's progress is passed on so often at most.
const PROGRESS: Duration = Duration::from_millis(500);
/// The longest message that progress carries, bytes.
const PROGRESS_MESSAGE_BYTES: usize = 1024;

/// Where the daemon's frames go; clones are handles to one.
#[derive(Clone, Default)]
pub struct Outbox(Arc<Inner>);

#[derive(Default)]
struct Inner {
    session: ArcSwapOption<Line>,
    /// Signs how commands end.
    credentials: Option<Credentials>,
    /// When a run's progress was last passed on.
    progress: Mutex<HashMap<CommandId, Instant>>,
    /// What programs of runs write.
    live: Live,
    /// Hears that a run is over.
    finished: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// One session's way out.
pub(super) struct Line {
    pub(super) epoch: u64,
    pub(super) frames: mpsc::Sender<v1::FromNode>,
    /// Cancelled when it does not keep up.
    pub(super) broken: CancellationToken,
}

impl Line {
    /// Says something that must not be lost as long as the session lasts.
    pub(super) fn say(&self, frame: v1::from_node::Frame) {
        let message = v1::FromNode { epoch: self.epoch, frame: Some(frame) };
        // When it is closed, the session is ending anyway.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.frames.try_send(message) {
            self.broken.cancel();
        }
    }

    /// Says all of it, however much it is, at the pace in which it is taken.
    pub(super) async fn say_all(&self, frames: impl IntoIterator<Item = v1::from_node::Frame>) {
        for frame in frames {
            // When it is closed, the session is ending anyway.
            let _ = self.frames.send(v1::FromNode { epoch: self.epoch, frame: Some(frame) }).await;
        }
    }

    /// Says something, if there is ample room.
    pub(super) fn mention(&self, frame: v1::from_node::Frame) {
        if self.frames.capacity() > self.frames.max_capacity() / 2 {
            self.say(frame);
        }
    }
}

impl Outbox {
    /// One that signs how commands end.
    pub fn signing(credentials: Credentials) -> Self {
        Self(Arc::new(Inner { credentials: Some(credentials), ..Inner::default() }))
    }

    /// Signed where it leaves, so that all reports of an end are alike as long as the key is.
    fn signed(&self, mut update: Update) -> Update {
        let key = self.0.credentials.as_ref().map(Credentials::now);
        if let Some(signature) = key.and_then(|pair| attest::sign(&pair.key, &update)) {
            update.node_sig = signature.as_bytes().to_vec();
        }
        update
    }

    /// Tells somebody whenever the end of a run is said. Only the first one who asks for it hears it.
    pub fn on_finished(&self, hears: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.finished.set(Box::new(hears));
    }

    /// Says something of the node itself. Dropped where there is no session.
    pub(crate) fn say(&self, frame: v1::from_node::Frame) {
        if let Some(line) = &*self.0.session.load() {
            line.say(frame);
        }
    }

    /// From now on this session's.
    pub(super) fn attach(&self, line: Arc<Line>) {
        self.0.session.store(Some(line));
        self.0.live.again();
    }

    /// This session's no more, if it still is.
    pub(super) fn detach(&self, epoch: u64) {
        let current = self.0.session.load();
        if current.as_ref().is_some_and(|line| line.epoch == epoch) {
            // Nothing changes when a newer one was attached meanwhile.
            self.0.session.compare_and_swap(&*current, None);
        }
    }

    /// Sends on what programs write, for as long as the daemon runs.
    pub async fn send_output(self) {
        loop {
            self.0.live.grown().await;
            tokio::time::sleep(GATHER).await;
            let session = self.0.session.load_full();
            // Without a session it waits: attaching one has it looked at again.
            let Some(line) = session else { continue };
            let room = line.frames.capacity().saturating_sub(line.frames.max_capacity() / 2);
            let (pieces, was_all) = self.0.live.take(None, room);
            for piece in pieces {
                line.say(v1::from_node::Frame::Output(piece.into()));
            }
            if !was_all {
                self.0.live.again();
            }
        }
    }

    /// The last words of a run go before its end; where there is no room for all of them, its result has them.
    fn last_words(&self, line: Option<&Line>, command: CommandId) {
        if let Some(line) = line {
            let room = line.frames.capacity().saturating_sub(line.frames.max_capacity() / 2);
            let (pieces, _) = self.0.live.take(Some(command), room);
            for piece in pieces {
                line.say(v1::from_node::Frame::Output(piece.into()));
            }
        }
        self.0.live.forget(command);
    }

    /// Whether progress may be passed on again.
    fn is_due(&self, command: CommandId, now: Instant) -> bool {
        let mut last = self.0.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.get(&command).is_none_or(|last| now.saturating_duration_since(*last) >= PROGRESS);
        if due {
            last.insert(command, now);
        }
        due
    }
}

#[async_trait]
impl FrameSink for Outbox {
    async fn flushed(&self) {
        let line = self.0.session.load_full();
        if let Some(line) = line {
            // All of its places are free when the transport has taken every frame; when it is closed, nothing leaves any more.
            let _ = line.frames.reserve_many(line.frames.max_capacity()).await;
        }
    }

    fn frame(&self, frame: Frame) {
        if let Frame::Update(update) = &frame
            && update.report.is_terminal()
        {
            self.0.progress.lock().unwrap_or_else(PoisonError::into_inner).remove(&update.command);
            self.last_words(self.0.session.load().as_deref(), update.command);
            if let Some(hears) = self.0.finished.get() {
                hears();
            }
        }
        if let Some(line) = &*self.0.session.load() {
            line.say(match frame {
                Frame::Ack(command) => v1::from_node::Frame::Ack(v1::Ack { command_id: command.to_string() }),
                Frame::Update(update) => v1::from_node::Frame::Update(self.signed(update).into()),
                // Unsigned: it is no word on what became of the command.
                Frame::Denied(update) => v1::from_node::Frame::Update(update.into()),
                Frame::SpecWanted(min_generation) => {
                    v1::from_node::Frame::SpecWanted(v1::SpecWanted { min_generation })
                }
            });
        }
    }

    fn progress(&self, command: CommandId, done: u64, total: Option<u64>, unit: &str, message: &str) {
        let session = self.0.session.load();
        let Some(line) = &*session else { return };
        if self.is_due(command, Instant::now()) {
            let end = message.floor_char_boundary(PROGRESS_MESSAGE_BYTES);
            let unit_end = unit.floor_char_boundary(PROGRESS_MESSAGE_BYTES);
            line.mention(v1::from_node::Frame::Progress(v1::Progress {
                command_id: command.to_string(),
                done,
                total,
                unit: unit[..unit_end].to_owned(),
                message: message[..end].to_owned(),
            }));
        }
    }

    fn output(&self, command: CommandId, attempt: u32, stream: OutputStream, bytes: &[u8]) {
        let stream = match stream {
            OutputStream::Stdout => Stream::Stdout,
            OutputStream::Stderr => Stream::Stderr,
        };
        self.0.live.add(command, attempt, stream, bytes);
    }

    fn log(&self, command: CommandId, level: Level, target: &str, message: &str, fields: &str) {
        match level {
            Level::Trace => tracing::trace!(%command, guest = target, fields, "{message}"),
            Level::Debug => tracing::debug!(%command, guest = target, fields, "{message}"),
            Level::Info => tracing::info!(%command, guest = target, fields, "{message}"),
            Level::Warn => tracing::warn!(%command, guest = target, fields, "{message}"),
            Level::Error => tracing::error!(%command, guest = target, fields, "{message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bc_proto::wire::Report;
    use uuid::Uuid;

    use super::*;

    fn attached(frames: usize) -> (Outbox, mpsc::Receiver<v1::FromNode>, CancellationToken) {
        let (outbox, broken) = (Outbox::default(), CancellationToken::new());
        let (sender, receiver) = mpsc::channel(frames);
        outbox.attach(Arc::new(Line { epoch: 3, frames: sender, broken: broken.clone() }));
        (outbox, receiver, broken)
    }

    fn id() -> CommandId {
        CommandId::from_uuid(Uuid::from_u128(1))
    }

    #[test]
    fn a_session_that_does_not_keep_up_is_broken_off() {
        let (outbox, _receiver, broken) = attached(2);
        outbox.frame(Frame::Ack(id()));
        outbox.frame(Frame::Ack(id()));
        assert!(!broken.is_cancelled());
        outbox.frame(Frame::Ack(id()));
        assert!(broken.is_cancelled());
    }

    #[test]
    fn progress_is_throttled_and_never_breaks_a_session() {
        let (outbox, mut receiver, broken) = attached(2);
        outbox.progress(id(), 1, None, "", &"é".repeat(1024));
        outbox.progress(id(), 2, None, "", "too soon");
        let Some(v1::from_node::Frame::Progress(said)) = receiver.try_recv().expect("the first").frame else {
            panic!("progress")
        };
        assert_eq!((said.done, said.message.len()), (1, 1024));
        receiver.try_recv().expect_err("the second was dropped");
        let now = Instant::now();
        assert!(!outbox.is_due(id(), now) && outbox.is_due(id(), now + PROGRESS));
        // Half full is full, for progress; and a run that is over leaves nothing behind.
        outbox.frame(Frame::Ack(id()));
        let over = Update {
            command: id(),
            report: Report::Failed,
            reason: String::new(),
            result: vec![],
            at_ms: 0,
            node_sig: vec![],
        };
        outbox.frame(Frame::Update(over));
        assert!(outbox.0.progress.lock().expect("no panic holds it").is_empty());
        outbox.progress(id(), 3, None, "", "");
        assert!(!broken.is_cancelled());
    }

    #[test]
    fn an_older_session_cannot_detach_a_newer_one() {
        let (outbox, mut receiver, _) = attached(2);
        outbox.detach(2);
        outbox.frame(Frame::Ack(id()));
        assert_eq!(receiver.try_recv().expect("it is said").epoch, 3);
        outbox.detach(3);
        outbox.frame(Frame::Ack(id()));
        receiver.try_recv().expect_err("there is no session");
    }
}
