//! What comes after one attempt to store an upload.
//!
//! **Invariant:** attempts are bounded. What the store forbids is tried again with a fresh URL once, and never with the same one.

use std::time::Duration;

use super::backoff::Backoff;

/// Between attempts: 0.5 to 20 s.
pub const BETWEEN: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(20) };

/// How often an attempt may fail before the store counts as unreachable: with [`BETWEEN`] that is about a minute.
const FAILURES: u32 = 7;

/// A URL that has less than this left is renewed first: it has to be good when the store reads the request's head, on the store's own
/// clock. A larger difference between the clocks shows as a URL that is forbidden.
const MARGIN_MS: u64 = 30_000;

/// How one attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The store has it all.
    Stored,
    /// The URL is not good (any more).
    Forbidden,
    /// The store will not take it, however often it is asked.
    Refused,
    /// The network, or the store's own trouble.
    Failed,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// It is over: stored.
    Done,
    /// Ask for a fresh URL, then try again.
    Refresh,
    /// Wait, then try again.
    Again(Duration),
    /// It is over: the store refuses it.
    Refused,
    /// It is over: the store could not be reached, or could not do it.
    Unreachable,
}

/// The attempts of one upload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attempts {
    failures: u32,
    was_forbidden: bool,
}

impl Attempts {
    /// After an attempt. `random` is uniform over 0..1.
    pub fn after(&mut self, attempt: Attempt, random: f64) -> Next {
        match attempt {
            Attempt::Stored => Next::Done,
            Attempt::Refused => Next::Refused,
            Attempt::Forbidden if self.was_forbidden => Next::Refused,
            Attempt::Forbidden => {
                self.was_forbidden = true;
                Next::Refresh
            }
            Attempt::Failed if self.failures >= FAILURES => Next::Unreachable,
            Attempt::Failed => {
                let wait = BETWEEN.wait(self.failures, random);
                self.failures += 1;
                Next::Again(wait)
            }
        }
    }
}

/// Whether a URL is to be renewed before it is used. Both times are server time.
pub fn is_over(url_expires_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_add(MARGIN_MS) >= url_expires_ms
}

/// What an HTTP status (and the code in the store's answer) means for the attempt.
pub fn judge(status: u16, code: Option<&str>) -> Attempt {
    match status {
        200..=299 => Attempt::Stored,
        // Some stores say that a URL is over with 400 or 401.
        401 | 403 => Attempt::Forbidden,
        400 if matches!(code, Some("ExpiredToken" | "RequestExpired")) => Attempt::Forbidden,
        // The store waited for the body in vain.
        400 if code == Some("RequestTimeout") => Attempt::Failed,
        408 | 429 | 500 | 502..=599 => Attempt::Failed,
        // 501 among them: it does not do this at all, and will not do it later either.
        _ => Attempt::Refused,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Attempt; 4] = [Attempt::Stored, Attempt::Forbidden, Attempt::Refused, Attempt::Failed];

    #[test]
    fn what_is_forbidden_gets_one_fresh_url() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.after(Attempt::Forbidden, 0.0), Next::Refresh);
        assert_eq!(attempts.after(Attempt::Failed, 0.0), Next::Again(BETWEEN.min));
        assert_eq!(attempts.after(Attempt::Forbidden, 0.0), Next::Refused);
    }

    #[test]
    fn a_url_is_renewed_before_it_ends_and_no_clock_overflows() {
        assert!(!is_over(1_000_000, 969_999));
        assert!(is_over(1_000_000, 970_000));
        assert!(is_over(0, u64::MAX));
    }

    #[test]
    fn statuses_mean_what_stores_mean_by_them() {
        assert_eq!(judge(200, None), Attempt::Stored);
        for (status, code) in [(403, Some("AccessDenied")), (401, None), (400, Some("ExpiredToken"))] {
            assert_eq!(judge(status, code), Attempt::Forbidden, "{status}");
        }
        for (status, code) in [(500, None), (503, Some("SlowDown")), (429, None), (400, Some("RequestTimeout"))] {
            assert_eq!(judge(status, code), Attempt::Failed, "{status}");
        }
        for (status, code) in [(301, Some("PermanentRedirect")), (307, None), (404, Some("NoSuchBucket")), (501, None)]
        {
            assert_eq!(judge(status, code), Attempt::Refused, "{status}");
        }
    }

    proptest! {
        #[test]
        fn attempts_come_to_an_end(seen in prop::collection::vec(0..ALL.len(), 10..20), random in 0.0..1.0_f64) {
            let mut attempts = Attempts::default();
            let ends = seen.into_iter().position(|at| {
                matches!(attempts.after(ALL[at], random), Next::Done | Next::Refused | Next::Unreachable)
            });
            prop_assert!(ends.is_some());
        }
    }
}
