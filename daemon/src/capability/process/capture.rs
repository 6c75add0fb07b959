//! What is kept of a stream: its beginning, its end, its length and its hash.
//!
//! **Invariant:** memory is bounded by what was asked for, whatever a program says; length and hash are those of all of it.

use std::collections::VecDeque;

use bc_runtime::capability::process::Output;
use sha2::{Digest, Sha256};

/// One stream.
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// How many bytes of the beginning are kept.
    head_bytes: usize,
    /// How many bytes of the end are kept.
    tail_bytes: usize,
    total: u64,
    hash: Sha256,
}

impl Capture {
    /// Keeps so many bytes, half from either end.
    pub(crate) fn new(bytes: usize) -> Self {
        let head_bytes = bytes.div_ceil(2);
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_bytes,
            tail_bytes: bytes - head_bytes,
            total: 0,
            hash: Sha256::new(),
        }
    }

    /// More of it.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.hash.update(bytes);
        let to_head = bytes.len().min(self.head_bytes - self.head.len());
        self.head.extend_from_slice(&bytes[..to_head]);
        let rest = &bytes[to_head..];
        let rest = &rest[rest.len().saturating_sub(self.tail_bytes)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.tail_bytes);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Whether bytes that are kept are no text, so that U+FFFD stands for them.
    pub(crate) fn is_lossy(&self) -> bool {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        if self.total > (self.head.len() + tail.len()) as u64 {
            !is_text(&self.head[..whole_end(&self.head)]) || !is_text(&tail[whole_start(&tail)..])
        } else {
            !is_text(&[&self.head[..], &tail].concat())
        }
    }

    /// All that is known of it now.
    pub(crate) fn output(&self) -> Output {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let truncated = self.total > (self.head.len() + tail.len()) as u64;
        let (head, tail) = if truncated {
            (text(&self.head[..whole_end(&self.head)]), text(&tail[whole_start(&tail)..]))
        } else {
            (text(&[&self.head[..], &tail].concat()), String::new())
        };
        Output { total_bytes: self.total, sha256: hex::encode(self.hash.clone().finalize()), truncated, head, tail }
    }
}

/// Bytes that are no UTF-8 are shown as U+FFFD.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where the last whole character ends: a sequence that goes on beyond the cut is left out.
fn whole_end(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(4);
    let start = bytes[last..].iter().rposition(|byte| byte & 0xc0 != 0x80).map(|at| last + at);
    let Some(start) = start else { return bytes.len() };
    let wanted = match bytes[start] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if bytes.len() - start < wanted { start } else { bytes.len() }
}

/// Where the first whole character begins: at most three bytes belong to one that began before the cut.
fn whole_start(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| *byte & 0xc0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(bytes: usize, text: &[u8], step: usize) -> Output {
        let mut capture = Capture::new(bytes);
        for piece in text.chunks(step.max(1)) {
            capture.add(piece);
        }
        capture.output()
    }

    #[test]
    fn what_is_cut_says_so() {
        let all = of(8, b"12345678", 3);
        assert_eq!((all.truncated, all.head.as_str(), all.tail.as_str()), (false, "12345678", ""));
        let cut = of(8, b"123456789", 3);
        assert_eq!((cut.truncated, cut.head.as_str(), cut.tail.as_str(), cut.total_bytes), (true, "1234", "6789", 9));
        let none = of(0, b"abc", 3);
        assert_eq!((none.truncated, none.head.as_str(), none.tail.as_str(), none.total_bytes), (true, "", "", 3));
    }

    proptest! {
        /// However text is cut, no character is broken, and the hash is that of all of it.
        #[test]
        fn promise_05_output_is_cut_between_characters(text in ".{0,80}", bytes in 0_usize..60, step in 1_usize..9) {
            let output = of(bytes, text.as_bytes(), step);
            prop_assert!(text.starts_with(&output.head), "{output:?}");
            prop_assert!(text.ends_with(&output.tail), "{output:?}");
            prop_assert_eq!(output.total_bytes, text.len() as u64);
            prop_assert_eq!(&output.sha256, &hex::encode(Sha256::digest(text.as_bytes())));
            prop_assert_eq!(output.truncated, text.len() > bytes);
            if output.truncated {
                let kept = output.head.len() + output.tail.len();
                prop_assert!(kept <= bytes && kept + 6 >= bytes, "at most three bytes are lost at either cut");
            } else {
                prop_assert_eq!(&output.head, &text);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), keep in 0_usize..40) {
            let output = of(keep, &bytes, 7);
            prop_assert_eq!(output.total_bytes, bytes.len() as u64);
            let mut capture = Capture::new(keep);
            capture.add(&bytes);
            if !output.truncated {
                prop_assert_eq!(capture.is_lossy(), String::from_utf8(bytes).is_err());
            }
        }
    }
}
