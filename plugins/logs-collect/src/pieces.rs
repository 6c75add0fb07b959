//! What is kept of one file: zstd frames of up to a mebibyte each, the oldest of which go when there is no room.
//!
//! Frames after one another are a zstd stream, so that they go into the bundle as they are.
//!
//! **Invariant:** the kept frames have at most as many bytes as were allowed, and they hold the newest of what came.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Read as _;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use sha2::{Digest as _, Sha256};

/// What one frame holds, before it is compressed. The encoder looks back 128 KiB, so larger ones would be no smaller.
pub(crate) const PIECE: usize = 1024 * 1024;

struct Frame {
    compressed: Vec<u8>,
    raw: usize,
}

pub(crate) struct Pieces {
    frames: VecDeque<Frame>,
    /// What came and fills no frame yet.
    pending: Vec<u8>,
    allowed: usize,
    compressed: usize,
    raw: u64,
    truncated: bool,
}

/// A kept file, ready to be written.
pub(crate) struct Kept {
    pub(crate) frames: VecDeque<Vec<u8>>,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// Its beginning is missing.
    pub(crate) truncated: bool,
}

/// Two digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// One frame.
pub(crate) fn compressed(raw: &[u8]) -> Vec<u8> {
    let mut frame = compress_to_vec(raw, CompressionLevel::Fastest);
    frame.shrink_to_fit();
    frame
}

impl Pieces {
    /// Keeps up to so many bytes, compressed.
    pub(crate) fn new(allowed: usize) -> Self {
        Self { frames: VecDeque::new(), pending: Vec::new(), allowed, compressed: 0, raw: 0, truncated: false }
    }

    /// More of it, in the order of time. The oldest goes where there is no room.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            if self.pending.len() == PIECE {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let frame = Frame { compressed: compressed(&self.pending), raw: self.pending.len() };
        self.pending.clear();
        self.compressed += frame.compressed.len();
        self.raw += frame.raw as u64;
        self.frames.push_back(frame);
        while self.compressed > self.allowed
            && let Some(oldest) = self.frames.pop_front()
        {
            self.compressed -= oldest.compressed.len();
            self.raw -= oldest.raw as u64;
            self.truncated = true;
        }
    }

    /// A piece that comes before all that is kept. False, and nothing is kept of it, where there is no room.
    pub(crate) fn prepend(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let frame = Frame { compressed: compressed(bytes), raw: bytes.len() };
        if self.compressed + frame.compressed.len() > self.allowed {
            self.truncated = true;
            return false;
        }
        self.compressed += frame.compressed.len();
        self.raw += frame.raw as u64;
        self.frames.push_front(frame);
        true
    }

    /// Its beginning is left out for another reason.
    pub(crate) fn cut(&mut self) {
        self.truncated = true;
    }

    /// How many bytes it takes, compressed.
    pub(crate) fn finish(mut self) -> (Kept, usize) {
        self.flush();
        let mut hash = Sha256::new();
        let mut piece = vec![0; 64 * 1024];
        // What will be read from the bundle, and not what may lie on the disk by now.
        for frame in &self.frames {
            let mut decoder = StreamingDecoder::new(&frame.compressed[..]).expect("it was just compressed");
            loop {
                match decoder.read(&mut piece).expect("it was just compressed") {
                    0 => break,
                    count => hash.update(&piece[..count]),
                }
            }
        }
        let sha256 = hex(&hash.finalize());
        let Self { frames, raw, compressed, truncated, .. } = self;
        let frames = frames.into_iter().map(|frame| frame.compressed).collect();
        (Kept { frames, bytes: raw, sha256, truncated }, compressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(bytes: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let step = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        };
        std::iter::repeat_with(step).take(bytes).collect()
    }

    fn content(kept: &Kept) -> Vec<u8> {
        let frames: Vec<u8> = kept.frames.iter().flatten().copied().collect();
        if frames.is_empty() {
            return frames;
        }
        zstd::decode_all(&frames[..]).expect("zstd itself reads it")
    }

    fn sha256(bytes: &[u8]) -> String {
        hex(&Sha256::digest(bytes))
    }

    #[test]
    fn zstd_reads_what_is_kept_and_its_length_and_hash_are_told() {
        let text = "Dec  1 09:00:00 node kernel: NVRM: Xid (PCI:0000:1b:00): 79\n".repeat(50_000).into_bytes();
        for raw in [vec![], vec![0; 3 * PIECE], text, noise(2 * PIECE + 5, 9), b"x".to_vec()] {
            let mut pieces = Pieces::new(usize::MAX);
            for part in raw.chunks(70_001) {
                pieces.append(part);
            }
            let (kept, _) = pieces.finish();
            assert!(content(&kept) == raw && !kept.truncated);
            assert_eq!((kept.bytes, &kept.sha256), (raw.len() as u64, &sha256(&raw)));
        }
    }

    #[test]
    fn what_has_no_room_is_the_oldest() {
        let raw = noise(5 * PIECE, 7);
        let allowed = 2 * PIECE + PIECE / 2;
        let mut pieces = Pieces::new(allowed);
        pieces.append(&raw);
        let (forward, used) = pieces.finish();
        assert!(used <= allowed && forward.truncated);
        assert!(content(&forward) == raw[3 * PIECE..]);

        let mut pieces = Pieces::new(allowed);
        let taken = raw.chunks(PIECE).rev().take_while(|piece| pieces.prepend(piece)).count();
        let (backward, _) = pieces.finish();
        assert!(taken == 2 && backward.truncated);
        assert_eq!((content(&backward), &backward.sha256), (raw[3 * PIECE..].to_vec(), &forward.sha256));
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_allowed() {
        let mut pieces = Pieces::new(0);
        pieces.append(b"some");
        let (kept, used) = pieces.finish();
        assert_eq!((kept.bytes, kept.truncated, used), (0, true, 0));
    }
}
