//! When a node asks for its next certificate.
//!
//! **Invariant:** it asks while a third of the validity is left, in server time: a control plane that is away for a while, or a
//! wall clock that is off, costs no identity.

use std::time::Duration;

use super::backoff::Backoff;

/// Between two tries of one renewal.
pub const RETRY: Backoff = Backoff { min: Duration::from_secs(5), max: Duration::from_mins(30) };

/// Where a certificate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It counts, and is due for renewal in so many milliseconds.
    Good {
        /// From now.
        due_in_ms: u64,
    },
    /// A third of its validity is left, or less.
    Due,
    /// It is over: nothing but joining again helps.
    Over,
}

/// Where a certificate stands at a server time, milliseconds since the Unix epoch.
pub fn standing(not_before_ms: u64, not_after_ms: u64, now_ms: u64) -> Standing {
    if now_ms >= not_after_ms {
        return Standing::Over;
    }
    let third = not_after_ms.saturating_sub(not_before_ms) / 3;
    match not_after_ms.saturating_sub(third).saturating_sub(now_ms) {
        0 => Standing::Due,
        due_in_ms => Standing::Good { due_in_ms },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_when_a_third_is_left_and_over_at_its_end() {
        let at = |now_ms| standing(1_000, 4_000, now_ms);
        assert_eq!(at(0), Standing::Good { due_in_ms: 3_000 });
        assert_eq!(at(2_999), Standing::Good { due_in_ms: 1 });
        assert_eq!((at(3_000), at(3_999)), (Standing::Due, Standing::Due));
        assert_eq!((at(4_000), at(u64::MAX)), (Standing::Over, Standing::Over));
        assert_eq!(standing(5, 4, 3), Standing::Good { due_in_ms: 1 }, "a damaged one is merely short");
    }
}
