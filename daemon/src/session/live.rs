//! What programs of runs write, on its way to the session: gathered for a moment, so that a program that writes a line at a time does
//! not make a frame of each.
//!
//! **Invariant:** memory is bounded by what of a stream can be followed at all; nothing is asked of who writes, and no session is
//! broken off for it.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bc_proto::id::CommandId;
use bc_proto::wire::{MAX_OUTPUT_BYTES, MAX_PIECE_BYTES, Output, Stream};
use tokio::sync::Notify;

/// For how long output is gathered: a person does not see the difference.
pub(super) const GATHER: Duration = Duration::from_millis(100);

/// Output that has not left.
#[derive(Debug, Default)]
pub(super) struct Live {
    runs: Mutex<HashMap<CommandId, Run>>,
    grew: Notify,
}

#[derive(Debug)]
struct Run {
    attempt: u32,
    streams: [Tail; 2],
}

/// The end of one stream.
#[derive(Debug, Default)]
struct Tail {
    /// How many bytes have left.
    sent: u64,
    waiting: Vec<u8>,
}

impl Live {
    fn runs(&self) -> MutexGuard<'_, HashMap<CommandId, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was written; what goes beyond the most that can be followed is dropped.
    pub(super) fn add(&self, command: CommandId, attempt: u32, stream: Stream, bytes: &[u8]) {
        let mut runs = self.runs();
        let fresh = || Run { attempt, streams: Default::default() };
        let run = runs.entry(command).or_insert_with(fresh);
        if run.attempt != attempt {
            *run = fresh();
        }
        let tail = &mut run.streams[stream as usize];
        let left = MAX_OUTPUT_BYTES.saturating_sub(tail.sent + tail.waiting.len() as u64);
        let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        tail.waiting.extend_from_slice(&bytes[..taken]);
        if taken > 0 {
            self.grew.notify_one();
        }
    }

    /// Returns when there may be something to send.
    pub(super) async fn grown(&self) {
        self.grew.notified().await;
    }

    /// Has it looked at again.
    pub(super) fn again(&self) {
        self.grew.notify_one();
    }

    /// At most so many pieces, of one command or of all; whether that was all of it.
    pub(super) fn take(&self, of: Option<CommandId>, most: usize) -> (Vec<Output>, bool) {
        let mut pieces = Vec::new();
        let mut runs = self.runs();
        for (&command, run) in runs.iter_mut().filter(|(command, _)| of.is_none_or(|of| of == **command)) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let tail = &mut run.streams[stream as usize];
                while !tail.waiting.is_empty() {
                    if pieces.len() == most {
                        return (pieces, false);
                    }
                    let rest = tail.waiting.split_off(tail.waiting.len().min(MAX_PIECE_BYTES));
                    let bytes = mem::replace(&mut tail.waiting, rest);
                    let offset = tail.sent;
                    tail.sent += bytes.len() as u64;
                    pieces.push(Output { command, attempt: run.attempt, stream, offset, bytes });
                }
            }
        }
        (pieces, true)
    }

    /// Forgets a run that is over.
    pub(super) fn forget(&self, command: CommandId) {
        self.runs().remove(&command);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> CommandId {
        CommandId::from_uuid(Uuid::from_u128(n))
    }

    #[test]
    fn pieces_follow_each_other_and_end_at_the_most_that_can_be_followed() {
        let live = Live::default();
        live.add(id(1), 1, Stream::Stdout, b"one ");
        live.add(id(1), 1, Stream::Stdout, b"two");
        live.add(id(1), 1, Stream::Stderr, b"oh");
        let (pieces, all) = live.take(None, 10);
        let told: Vec<_> = pieces.iter().map(|it| (it.stream, it.offset, it.bytes.as_slice())).collect();
        assert_eq!(told, [(Stream::Stdout, 0, b"one two".as_slice()), (Stream::Stderr, 0, b"oh")]);
        assert!(all && live.take(None, 10).0.is_empty());

        live.add(id(1), 1, Stream::Stdout, &vec![b'x'; 3 * 1024 * 1024]);
        let (first, all) = live.take(Some(id(1)), 2);
        assert!(!all && first[0].offset == 7 && first[1].offset == 7 + MAX_PIECE_BYTES as u64);
        let (rest, all) = live.take(Some(id(1)), 100);
        let end = rest.last().map(|it| it.offset + it.bytes.len() as u64);
        assert_eq!((all, end), (true, Some(MAX_OUTPUT_BYTES)));
        live.add(id(1), 1, Stream::Stdout, b"more");
        assert!(live.take(None, 10).0.is_empty(), "nobody can follow that");
    }

    #[test]
    fn another_run_of_a_command_begins_anew() {
        let live = Live::default();
        live.add(id(1), 1, Stream::Stdout, b"first");
        live.add(id(1), 2, Stream::Stdout, b"second");
        let (pieces, _) = live.take(None, 10);
        assert_eq!(pieces.len(), 1);
        assert_eq!((pieces[0].attempt, pieces[0].offset, pieces[0].bytes.as_slice()), (2, 0, b"second".as_slice()));
        live.forget(id(1));
        assert!(live.runs().is_empty());
    }
}
