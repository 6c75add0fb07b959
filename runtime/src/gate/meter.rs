//! How long a guest has spent in its own code.
//!
//! The guest runs on one thread between two awaits, so elapsed time there is its CPU time, up to what the operating system
//! takes away. The meter stands still while a host call waits and while the run yields to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Later than any resumption, so that no time has passed since.
const PAUSED: u64 = u64::MAX;

pub(crate) struct Meter {
    origin: Instant,
    budget: Duration,
    spent: Duration,
    /// Nanoseconds from `origin` to the last resumption, or [`PAUSED`]. Shared with the future that a yielding guest waits
    /// for, which has no access to the store.
    resumed_at: Arc<AtomicU64>,
}

/// Restarts a paused meter from outside the store.
pub(crate) struct Resume {
    origin: Instant,
    resumed_at: Arc<AtomicU64>,
}

impl Meter {
    pub(crate) fn start(budget: Duration) -> Self {
        Self { origin: Instant::now(), budget, spent: Duration::ZERO, resumed_at: Arc::new(AtomicU64::new(0)) }
    }

    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    pub(crate) fn budget(&self) -> Duration {
        self.budget
    }

    pub(crate) fn spent(&self) -> Duration {
        let resumed_at = Duration::from_nanos(self.resumed_at.load(Ordering::Relaxed));
        self.spent + self.origin.elapsed().saturating_sub(resumed_at)
    }

    pub(crate) fn used_up(&self) -> bool {
        self.spent() >= self.budget
    }

    /// Stands still until the resumption; a run that ends meanwhile leaves it so.
    pub(crate) fn pause(&mut self) {
        self.spent = self.spent();
        self.resumed_at.store(PAUSED, Ordering::Relaxed);
    }

    pub(crate) fn resume(&self) {
        self.resumer().now();
    }

    pub(crate) fn resumer(&self) -> Resume {
        Resume { origin: self.origin, resumed_at: Arc::clone(&self.resumed_at) }
    }
}

impl Resume {
    pub(crate) fn now(&self) {
        let since_origin = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.resumed_at.store(since_origin, Ordering::Relaxed);
    }
}
