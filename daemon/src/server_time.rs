//! Server time on the node: what the last Welcome said, advanced by the monotonic clock.
//!
//! **Invariant:** no decision reads the wall clock: it may be a day off or be stepped mid-run, and nothing changes.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

/// A point where server time is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    server_ms: u64,
    at: Instant,
}

/// Server time; clones are handles to one.
#[derive(Debug, Clone)]
pub struct ServerTime(Arc<ArcSwap<Reading>>);

impl Reading {
    /// Server time at an instant, milliseconds since the Unix epoch.
    pub fn at(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.at).as_millis();
        self.server_ms.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

impl ServerTime {
    /// Not known yet: it counts from 0 until the first Welcome. Only what was accepted before is run until then.
    pub fn unknown(now: Instant) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Reading { server_ms: 0, at: now })))
    }

    /// A Welcome said so at this instant.
    pub fn set(&self, server_ms: u64, now: Instant) {
        self.0.store(Arc::new(Reading { server_ms, at: now }));
    }

    /// It is at least so late. What goes ahead of that already goes on.
    pub fn advance(&self, server_ms: u64, now: Instant) {
        self.0.rcu(|reading| if reading.at(now) >= server_ms { **reading } else { Reading { server_ms, at: now } });
    }

    /// The reading that holds now. A run keeps the one it began with, so that its clock never jumps.
    pub fn reading(&self) -> Reading {
        **self.0.load()
    }

    /// Server time at an instant, milliseconds since the Unix epoch.
    pub fn at(&self, now: Instant) -> u64 {
        self.reading().at(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn promise_19_server_time_follows_the_monotonic_clock_alone() {
        let start = Instant::now();
        let time = ServerTime::unknown(start);
        let second = Duration::from_secs(1);
        assert_eq!(time.at(start + second), 1_000);
        time.set(1_700_000_000_000, start + second);
        let run = time.reading();
        assert_eq!(time.at(start + 3 * second), 1_700_000_002_000);
        assert_eq!(time.at(start), 1_700_000_000_000, "an instant of before does not go back");
        // The server's own clock was stepped by a day; a run that goes on does not see it.
        time.set(1_700_086_400_000, start + 3 * second);
        assert_eq!(run.at(start + 4 * second), 1_700_000_003_000);
        assert_eq!(time.at(start + 4 * second), 1_700_086_401_000);
        // Where commands are signed it is never turned back.
        time.advance(1_700_000_000_000, start + 4 * second);
        assert_eq!(time.at(start + 4 * second), 1_700_086_401_000);
        time.advance(1_700_090_000_000, start + 4 * second);
        assert_eq!(time.at(start + 5 * second), 1_700_090_001_000);
    }
}
