//! Patterns in grants: plain text in which `*` stands for any run of characters, the empty one included.
//!
//! **Invariant:** a pattern that [covers](Pattern::covers) another matches everything the other matches. There is no
//! escape and no other wildcard: a `*` inside the covered pattern can only be taken in by a `*` of the covering one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Text with `*` wildcards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(pub String);

impl Pattern {
    /// Whether the whole of `text` fits.
    pub fn matches(&self, text: &str) -> bool {
        // The classic greedy walk: on a mismatch, go back to the last star and let it take one byte more. Bytes suffice,
        // since UTF-8 sequences are equal exactly when their bytes are.
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut p, mut t) = (0, 0);
        let mut last_star = None;
        while t < text.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    last_star = Some((p, t));
                    p += 1;
                }
                Some(byte) if *byte == text[t] => {
                    p += 1;
                    t += 1;
                }
                _ => match last_star {
                    Some((star, from)) => {
                        last_star = Some((star, from + 1));
                        p = star + 1;
                        t = from + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }

    /// Whether everything that `narrower` matches fits here as well.
    pub fn covers(&self, narrower: &Pattern) -> bool {
        self.matches(&narrower.0)
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_takes_any_run() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("/dev/nvme*", "/dev/nvme0n1", true),
            ("/dev/nvme*", "/dev/sda", false),
            ("*n1", "/dev/nvme0n1n1", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("-*", "--é", true),
        ] {
            assert_eq!(Pattern::from(pattern).matches(text), fits, "{pattern} against {text}");
        }
    }

    proptest! {
        #[test]
        fn covering_is_sound(wide in "[ab*]{0,6}", narrow in "[ab*]{0,6}", text in "[ab*]{0,8}") {
            let (wide, narrow) = (Pattern(wide), Pattern(narrow));
            if wide.covers(&narrow) && narrow.matches(&text) {
                prop_assert!(wide.matches(&text));
            }
        }
    }
}
