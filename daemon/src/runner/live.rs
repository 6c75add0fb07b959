//! What a command's program says: what is kept of it for the end, and what is told while it runs.
//!
//! **Invariant:** memory is bounded, whatever is said; what is told and what is kept are the same bytes in the same order.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bc_proto::rules::lease::OUTPUT_KEPT;
use bc_proto::wire::MAX_OUTPUT_BYTES;
use bc_runtime::capability::process::{Output, OutputStream};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::capability::process::capture::Capture;

/// How long output is gathered before it is told: a program that prints line by line does not make a statement of each.
const GATHER: Duration = Duration::from_millis(200);

/// How much is told at once, bytes: a row of the database.
const PIECE_BYTES: usize = 64 * 1024;

/// Both streams.
pub(super) struct Live {
    streams: Mutex<[Stream; 2]>,
    grew: Notify,
    hurry: Notify,
}

struct Stream {
    capture: Capture,
    /// How many bytes the database has.
    told: u64,
    /// How many bytes were offered and perhaps taken: offered again they have to be the same, since a row is kept as it came first.
    offered: usize,
    waiting: Vec<u8>,
}

/// A piece that the database does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) stream: usize,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// The streams' names in the database.
pub(super) const STREAMS: [&str; 2] = ["stdout", "stderr"];

fn index(stream: OutputStream) -> usize {
    match stream {
        OutputStream::Stdout => 0,
        OutputStream::Stderr => 1,
    }
}

impl Live {
    /// Nothing was said yet.
    pub(super) fn new() -> Self {
        let stream = || Stream { capture: Capture::new(OUTPUT_KEPT), told: 0, offered: 0, waiting: Vec::new() };
        Self { streams: Mutex::new([stream(), stream()]), grew: Notify::new(), hurry: Notify::new() }
    }

    fn streams(&self) -> MutexGuard<'_, [Stream; 2]> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was said. Beyond what the database keeps for those who follow it only counts.
    pub(super) fn add(&self, stream: OutputStream, bytes: &[u8]) {
        let mut streams = self.streams();
        let stream = &mut streams[index(stream)];
        stream.capture.add(bytes);
        let left = MAX_OUTPUT_BYTES.saturating_sub(stream.told + stream.waiting.len() as u64);
        let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.waiting.extend_from_slice(&bytes[..taken]);
        drop(streams);
        if taken > 0 {
            self.grew.notify_one();
        }
    }

    /// The same for what a person must see now.
    pub(super) fn add_now(&self, bytes: &[u8]) {
        self.add(OutputStream::Stdout, bytes);
        self.hurry.notify_one();
    }

    /// Returns when there is something to tell and it was gathered for a moment.
    pub(super) async fn gathered(&self) {
        self.grew.notified().await;
        tokio::select! {
            () = tokio::time::sleep(GATHER) => {}
            () = self.hurry.notified() => {}
        }
    }

    /// The next piece to tell. The same again until it [was told](Self::told).
    pub(super) fn piece(&self) -> Option<Piece> {
        let mut streams = self.streams();
        let (at, stream) = streams.iter_mut().enumerate().find(|(_, stream)| !stream.waiting.is_empty())?;
        if stream.offered == 0 {
            stream.offered = stream.waiting.len().min(PIECE_BYTES);
        }
        let bytes = stream.waiting[..stream.offered].to_vec();
        Some(Piece { stream: at, offset: stream.told, bytes })
    }

    /// The database has it.
    pub(super) fn told(&self, piece: &Piece) {
        let mut streams = self.streams();
        let stream = &mut streams[piece.stream];
        stream.waiting.drain(..piece.bytes.len());
        stream.told += piece.bytes.len() as u64;
        stream.offered = 0;
    }

    /// What is kept of a stream, for the kind.
    pub(super) fn output(&self, stream: OutputStream) -> Output {
        self.streams()[index(stream)].capture.output()
    }

    /// What is kept of both, for the database.
    pub(super) fn kept(&self) -> [Value; 2] {
        let streams = self.streams();
        [kept(&streams[0].capture), kept(&streams[1].capture)]
    }
}

/// In the form that `complete_command_cut` takes. Postgres has no zero character in text.
fn kept(capture: &Capture) -> Value {
    let Output { total_bytes, sha256, truncated, head, tail } = capture.output();
    let has_zero = head.contains('\0') || tail.contains('\0');
    let text = |text: String| if has_zero { text.replace('\0', "\u{fffd}") } else { text };
    json!({
        "totalBytes": total_bytes, "sha256": sha256, "truncated": truncated,
        "lossy": has_zero || capture.is_lossy(), "head": text(head), "tail": text(tail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_goes_on_where_it_was_and_ends_at_the_most_that_can_be_followed() {
        let live = Live::new();
        live.add(OutputStream::Stderr, b"oh");
        live.add(OutputStream::Stdout, b"one ");
        live.add_now(b"two");
        let first = live.piece().expect("a piece");
        assert_eq!(first, Piece { stream: 0, offset: 0, bytes: b"one two".to_vec() });
        live.add(OutputStream::Stdout, b" three");
        assert_eq!(live.piece().as_ref(), Some(&first), "nobody said that it was told");
        live.told(&first);
        let rest = live.piece().expect("a piece");
        assert_eq!(rest, Piece { stream: 0, offset: 7, bytes: b" three".to_vec() });
        live.told(&rest);
        assert_eq!(live.piece().map(|it| (it.stream, it.offset, it.bytes)), Some((1, 0, b"oh".to_vec())));

        live.add(OutputStream::Stdout, &vec![b'x'; 3 * 1024 * 1024]);
        let (mut end, mut pieces) = (0, 0);
        while let Some(piece) = live.piece() {
            live.told(&piece);
            pieces += 1;
            end = end.max(piece.offset + piece.bytes.len() as u64);
        }
        assert_eq!((end, pieces), (MAX_OUTPUT_BYTES, 17));
        let [stdout, _] = live.kept();
        assert_eq!((&stdout["totalBytes"], &stdout["truncated"]), (&json!(3 * 1024 * 1024 + 13), &json!(true)));
    }

    #[test]
    fn promise_05_what_is_no_text_is_kept_as_text_and_says_so() {
        for (bytes, head, lossy) in [
            (b"a\0b".as_slice(), "a\u{fffd}b", true),
            (b"\xff", "\u{fffd}", true),
            ("\u{fffd}é".as_bytes(), "\u{fffd}é", false),
        ] {
            let live = Live::new();
            live.add(OutputStream::Stdout, bytes);
            let [stdout, _] = live.kept();
            assert_eq!((&stdout["head"], &stdout["lossy"]), (&json!(head), &json!(lossy)));
            assert_eq!(stdout["totalBytes"], bytes.len());
        }
    }
}
