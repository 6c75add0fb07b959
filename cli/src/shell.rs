//! The clock and the random numbers of this program: the one place that reads them.
//!
//! **Invariant:** whatever decides takes them as arguments; only what runs a command line calls this.

use time::OffsetDateTime;

/// The wall clock, UTC.
pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// The same, milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(now().unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    bytes
}

/// A random number, uniform over 0..1, for the jitter of waits.
pub(crate) fn jitter() -> f64 {
    f64::from(u32::from_le_bytes(random())) / f64::from(u32::MAX)
}
