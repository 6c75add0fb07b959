//! Real processes, killed at any moment, over a kind that is counted on disk.
//!
//! **Invariant:** a test says what is killed and when, and awaits what must follow; nothing is guessed by time.

mod crash_points;
mod disk;
mod harness;
mod lanes;
mod real_boot;
mod reboot;
mod replica_points;
mod twice;
mod workflow_points;
