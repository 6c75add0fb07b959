//! The control plane's points of `bc_faults`: `BETTER_COMPUTE_CRASH_AT=NAME:N` kills a replica there, and `NAME:N:stop` stops it,
//! so that Postgres can be killed at that very moment.
//!
//! Each write to the queue has two: `before-write` is the last moment at which nothing of it is durable, `after-write` the first
//! at which all is, and nobody was told.
//!
//! **Invariant:** without `BETTER_COMPUTE_CRASH_AT` in the environment nothing here does anything.

use bc_faults::{Faults, Unknown};

/// Every point.
const POINTS: [&str; 34] = [
    "enqueue.before-write",
    "enqueue.after-write",
    "claim.before-write",
    "claim.after-write",
    // A command that is claimed. After: it is queued for its session, and may or may not have left.
    "deliver.before-send",
    "deliver.after-send",
    "mark.before-write",
    "mark.after-write",
    "requeue.before-write",
    "requeue.after-write",
    "settle.before-write",
    "settle.after-write",
    "update-ack.before-send",
    "update-ack.after-send",
    "hello.before-write",
    "hello.after-write",
    // After: so is what the node may have.
    "welcome.before-send",
    "welcome.after-send",
    "cancel.before-write",
    "cancel.after-write",
    // A sweep that found something.
    "sweep.before-write",
    "sweep.after-write",
    // An attempt to mend a node: its row, its batch and its command.
    "remediation.before-write",
    "remediation.after-write",
    // A pass over a rollout that changes something: ends of steps, and commands of new ones.
    "rollout.before-write",
    "rollout.after-write",
    // A move of a workflow: a step's end, or its row, its batch and its command.
    "workflow.before-write",
    "workflow.after-write",
    // A workflow that somebody begins.
    "workflow-create.before-write",
    "workflow-create.after-write",
    // A step of the transparency log that found something.
    "log.before-write",
    "log.after-write",
    "join.before-write",
    "join.after-write",
];

static FAULTS: Faults = Faults::new("BETTER_COMPUTE_CRASH_AT", &POINTS);

/// Reads the variable. To be called once, before the first point. Errors when it names no point.
pub fn arm() -> Result<(), Unknown> {
    FAULTS.arm()
}

/// A point.
pub(crate) fn crash_at(point: &'static str) {
    FAULTS.reach(point);
}
