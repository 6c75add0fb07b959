//! The daemon's points of `bc_faults`: `BCD_CRASH_AT=NAME:N` kills it there.
//!
//! **Invariant:** without `BCD_CRASH_AT` in the environment nothing here does anything.

use bc_faults::{Faults, Unknown};

/// The variable that names a point.
pub const VARIABLE: &str = "BCD_CRASH_AT";

/// Every point.
pub const POINTS: [&str; 20] = [
    // The loop's records: acceptances, starts, results, acknowledgements.
    "journal.before-save",
    "journal.after-save",
    // What is said to the gateway. After: it is queued, and may or may not have left.
    "frame.before-send",
    "frame.after-send",
    // A run that is journaled as started. After: it is under way.
    "run.before-start",
    "run.after-start",
    // The two records around an effect. Between after-intent and before-outcome lies the effect itself.
    "effect.before-intent",
    "effect.after-intent",
    "effect.before-outcome",
    "effect.after-outcome",
    // What ends the daemon. After: it is under way, and its record is durable. Done: it will come whatever becomes of the daemon.
    "intent.before-carry-out",
    "intent.after-carry-out",
    "intent.carried-out",
    // The file of a release gets its name.
    "release.before-keep",
    "release.after-keep",
    // What is remembered of the binaries changes: staged, on trial, started, confirmed, rolled back.
    "slots.before-write",
    "slots.after-write",
    // The start of a binary is counted, and it is not executed yet.
    "slots.before-exec",
    // The daemon has stopped, to begin anew as the installed binary.
    "restart.before-exec",
    // A release has shown that it works.
    "confirm.before",
];

static FAULTS: Faults = Faults::new(VARIABLE, &POINTS);

/// Reads the variable. To be called once, before the first point. Errors when it names no point.
pub fn arm() -> Result<(), Unknown> {
    FAULTS.arm()
}

/// A point.
pub(crate) fn crash_at(point: &'static str) {
    FAULTS.reach(point);
}
