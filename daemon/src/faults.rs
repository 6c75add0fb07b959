//! Named points at which the process kills itself, for tests of what survives: `BCD_CRASH_AT=NAME`, or `NAME:N` for the N-th
//! time that it is reached.
//!
//! It is compiled into every bcd, so that the program under test is the one that is shipped; without the variable a point
//! costs one load.
//!
//! **Invariant:** without `BCD_CRASH_AT` in the environment nothing here does anything.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// The environment variable.
pub const VARIABLE: &str = "BCD_CRASH_AT";

/// Every point.
pub const POINTS: [&str; 10] = [
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
];

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

struct Plan {
    point: &'static str,
    /// How often it is passed before it is the time.
    left: AtomicU64,
}

/// A value of the variable that names no point.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}={value} names no point: give NAME or NAME:N, with N from 1 on; the points are {}", POINTS.join(", "))]
pub struct Unknown {
    value: String,
}

/// Reads the variable, and says loudly that it is set. To be called once, before the first point.
pub fn arm() -> Result<(), Unknown> {
    let plan = match std::env::var(VARIABLE) {
        Err(std::env::VarError::NotPresent) => None,
        Ok(value) => Some(Plan::parse(&value)?),
        Err(std::env::VarError::NotUnicode(value)) => {
            return Err(Unknown { value: value.to_string_lossy().into_owned() });
        }
    };
    if let Some(Plan { point, left }) = &plan {
        let times = left.load(Ordering::Relaxed);
        tracing::error!(point, times, "{VARIABLE} is set: this process will KILL ITSELF there; it is for tests alone");
    }
    PLAN.get_or_init(|| plan);
    Ok(())
}

impl Plan {
    fn parse(value: &str) -> Result<Self, Unknown> {
        let (name, times) = value.split_once(':').unwrap_or((value, "1"));
        let point = POINTS.into_iter().find(|point| *point == name);
        let times = times.parse().ok().filter(|times| *times > 0);
        match (point, times) {
            (Some(point), Some(times)) => Ok(Self { point, left: AtomicU64::new(times) }),
            _ => Err(Unknown { value: value.to_owned() }),
        }
    }

    /// Whether this passing of the point is the one.
    fn is_due(&self, point: &str) -> bool {
        self.point == point && self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// A point. Does nothing unless the environment asked for a crash here.
pub(crate) fn crash_at(point: &'static str) {
    debug_assert!(POINTS.contains(&point), "{point} is not listed");
    if let Some(Some(plan)) = PLAN.get()
        && plan.is_due(point)
    {
        // As the kernel or a person would: nothing is flushed, nothing is dropped.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_n_th_passing_of_the_named_point_is_due_and_no_other() {
        let plan = Plan::parse("journal.after-save:3").expect("it is listed");
        let due: Vec<_> = (0..5).map(|_| plan.is_due("journal.after-save")).collect();
        assert_eq!(due, [false, false, true, false, false]);
        assert!(!plan.is_due("journal.before-save"));
        assert!(Plan::parse("run.before-start").expect("it is listed").is_due("run.before-start"));
    }

    #[test]
    fn a_value_that_names_no_point_is_refused_with_the_list() {
        for wrong in ["", "journal", "journal.after-save:0", "journal.after-save:x", "run.before-start:-1"] {
            let refused = Plan::parse(wrong).map(drop).expect_err(wrong).to_string();
            assert!(refused.contains("effect.after-outcome"), "{refused}");
        }
    }
}
