//! Named points at which a program kills or stops itself, for tests of what survives: `VARIABLE=NAME`, or `NAME:N` for the N-th
//! time that it is reached; `NAME:N:stop` stops the program there, so that something else can be killed meanwhile, until it gets
//! `SIGCONT`.
//!
//! It is compiled into the programs that are shipped, so that these are what is tested; without the variable a point costs one
//! load. It is a crate of its own because `bcd` and the control plane share nothing else that may touch the system.
//!
//! **Invariant:** without the variable in the environment nothing here does anything.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// The points of one program.
#[derive(Debug)]
pub struct Faults {
    variable: &'static str,
    points: &'static [&'static str],
    plan: OnceLock<Option<Plan>>,
}

#[derive(Debug)]
struct Plan {
    point: &'static str,
    action: Action,
    /// How often it is passed before it is the time.
    left: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
}

/// A value of the variable that names no point.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable}={value} names no point: give NAME, NAME:N or NAME:N:stop, with N from 1 on; the points are {points}"
)]
pub struct Unknown {
    variable: &'static str,
    value: String,
    points: String,
}

impl Faults {
    /// The points of a program, and the environment variable that names one of them.
    pub const fn new(variable: &'static str, points: &'static [&'static str]) -> Self {
        Self { variable, points, plan: OnceLock::new() }
    }

    /// Reads the variable, and says loudly that it is set. To be called once, before the first point. Errors when the variable
    /// names no point.
    pub fn arm(&self) -> Result<(), Unknown> {
        let plan = match std::env::var(self.variable) {
            Err(std::env::VarError::NotPresent) => None,
            Ok(value) => Some(self.parse(&value)?),
            Err(std::env::VarError::NotUnicode(value)) => return Err(self.unknown(&value.to_string_lossy())),
        };
        if let Some(Plan { point, action, left }) = &plan {
            let (times, variable) = (left.load(Ordering::Relaxed), self.variable);
            tracing::error!(
                point,
                times,
                ?action,
                "{variable} is set: this process will KILL OR STOP ITSELF there; it is for tests alone"
            );
        }
        self.plan.get_or_init(|| plan);
        Ok(())
    }

    fn unknown(&self, value: &str) -> Unknown {
        Unknown { variable: self.variable, value: value.to_owned(), points: self.points.join(", ") }
    }

    fn parse(&self, value: &str) -> Result<Plan, Unknown> {
        let mut parts = value.split(':');
        let name = parts.next().unwrap_or_default();
        let point = self.points.iter().copied().find(|point| *point == name);
        let times = parts.next().map_or(Some(1), |times| times.parse().ok()).filter(|times| *times > 0);
        let action = match parts.next() {
            None => Some(Action::Kill),
            Some("stop") => Some(Action::Stop),
            Some(_) => None,
        };
        match (point, times, action, parts.next()) {
            (Some(point), Some(times), Some(action), None) => Ok(Plan { point, action, left: AtomicU64::new(times) }),
            _ => Err(self.unknown(value)),
        }
    }

    /// A point. Does nothing unless the environment asked for it.
    pub fn reach(&self, point: &'static str) {
        debug_assert!(self.points.contains(&point), "{point} is not listed");
        let Some(Some(plan)) = self.plan.get() else { return };
        if !plan.is_due(point) {
            return;
        }
        match plan.action {
            // As the kernel or a person would: nothing is flushed, nothing is dropped.
            Action::Kill => {
                let _ = kill_process(getpid(), Signal::KILL);
            }
            Action::Stop => {
                let _ = kill_process(getpid(), Signal::STOP);
                // Another thread may be the one that takes the signal and stops the rest; this one must not go on meanwhile.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

impl Plan {
    /// Whether this passing of the point is the one.
    fn is_due(&self, point: &str) -> bool {
        self.point == point && self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FAULTS: Faults = Faults::new("CRASH_AT", &["write.before", "write.after"]);

    #[test]
    fn the_n_th_passing_of_the_named_point_is_due_and_no_other() {
        let plan = FAULTS.parse("write.after:3").expect("it is listed");
        let due: Vec<_> = (0..5).map(|_| plan.is_due("write.after")).collect();
        assert_eq!(due, [false, false, true, false, false]);
        assert!(!plan.is_due("write.before"));
        let plan = FAULTS.parse("write.before").expect("it is listed");
        assert!(plan.action == Action::Kill && plan.is_due("write.before"));
        assert_eq!(FAULTS.parse("write.before:1:stop").expect("it is listed").action, Action::Stop);
    }

    #[test]
    fn a_value_that_names_no_point_is_refused_with_the_list() {
        for wrong in [
            "",
            "write",
            "write.after:0",
            "write.after:x",
            "write.before:-1",
            "write.after:1:go",
            "write.after:1:stop:",
        ] {
            let refused = FAULTS.parse(wrong).map(drop).expect_err(wrong).to_string();
            assert!(refused.contains("write.before, write.after"), "{refused}");
        }
    }

    #[test]
    fn a_point_that_nobody_asked_for_does_nothing() {
        FAULTS.reach("write.before");
    }
}
