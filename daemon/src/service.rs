//! What the service manager is told: systemd's notification protocol. Without a service manager nothing is told.
//!
//! **Invariant:** the watchdog is fed from the event loop alone, so that a loop that hangs is noticed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Tells it.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// The daemon has its journal and its kinds, and goes on from where it was.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// How things stand, for people.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// The daemon stops, and may take so long.
pub(crate) fn stopping(grace: Duration) {
    let usec = u32::try_from((grace + Duration::from_secs(10)).as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(usec)]);
}

/// Feeds the watchdog, where there is one.
pub(crate) struct Watchdog {
    /// Twice as often as it asks for.
    every: Option<Duration>,
    fed: Mutex<Option<Instant>>,
}

impl Watchdog {
    /// As `WATCHDOG_USEC` says.
    pub(crate) fn from_environment() -> Self {
        let number = |name| std::env::var(name).ok().map(|value| value.parse().unwrap_or(0));
        let usec = asked_usec(number("WATCHDOG_USEC"), number("WATCHDOG_PID"), std::process::id().into());
        Self { every: usec.map(|usec| Duration::from_micros(usec) / 2), fed: Mutex::default() }
    }

    /// The loop lives.
    pub(crate) fn feed(&self) {
        if self.is_due(Instant::now()) {
            tell(&[NotifyState::Watchdog]);
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let Some(every) = self.every else { return false };
        let mut fed = self.fed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The loop calls once a second: a moment too early is better than a second too late.
        let early = Duration::from_millis(500);
        let due = fed.is_none_or(|fed| now.saturating_duration_since(fed) + early >= every);
        if due {
            *fed = Some(now);
        }
        due
    }
}

/// As sd_watchdog_enabled(3) has it: without a process id it is meant for whoever reads it.
fn asked_usec(usec: Option<u64>, pid: Option<u64>, own: u64) -> Option<u64> {
    usec.filter(|usec| *usec > 0 && pid.is_none_or(|pid| pid == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_twice_as_often_as_it_asks_and_not_at_all_without_one() {
        let start = Instant::now();
        let fed = |every| {
            let watchdog = Watchdog { every, fed: Mutex::default() };
            (0..20).filter(|second| watchdog.is_due(start + Duration::from_secs(*second))).collect::<Vec<_>>()
        };
        assert_eq!(fed(Some(Duration::from_secs(5))), [0, 5, 10, 15]);
        assert_eq!(
            fed(Some(Duration::from_millis(1500))),
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
        );
        assert_eq!(fed(None), [] as [u64; 0]);
        let asked = [(None, None), (Some(0), None), (Some(5), None), (Some(5), Some(1)), (Some(5), Some(2))];
        assert_eq!(asked.map(|(usec, pid)| asked_usec(usec, pid, 1)), [None, None, Some(5), Some(5), None]);
    }
}
