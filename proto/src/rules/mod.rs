//! Decisions, as pure functions over values. Control plane, daemon, simulator and tests use the same ones.
//!
//! **Invariant:** nothing here is async, reads a clock or a file, or knows a database or a WebAssembly engine.

pub mod accept;
pub mod action;
pub mod admission;
pub mod approval;
pub mod ask;
pub mod attest;
pub mod backoff;
pub mod cpus;
pub mod daemon;
pub mod diff;
pub mod doctor;
pub mod holds;
pub mod lane;
pub mod lease;
pub mod permission;
pub mod plugins;
pub mod publishing;
pub mod receipt;
pub mod releases;
pub mod remediation;
pub mod renewal;
pub mod reset;
pub mod resume;
pub mod rollout;
pub mod slots;
pub mod state;
pub mod sweep;
pub mod trust;
pub mod upload;
pub mod webhook;
pub mod workflow;
