//! The WebAssembly embedding that control plane and node share: inspect, load, validate and run command kinds.
//!
//! [`Inspected`] reads a component without running or compiling it, [`Engine::load`] makes a [`Kind`] of it, and
//! [`Kind::run`] runs that with exactly the [`capability::Capabilities`] that manifest and grants both allow.
//!
//! **Invariant:** a guest reaches the node through [`gate::Gate`] alone.

mod cache;
pub mod capability;
pub mod effect;
mod engine;
pub mod gate;
mod inspect;
mod kind;
mod outcome;
mod redact;
mod run;
mod store;
pub mod transcript;
pub mod v1;

pub use cache::CacheCounts;
pub use engine::{Config, Engine, SetUpError};
pub use inspect::{Inspected, LoadError, MAX_COMPONENT_BYTES, Rejected};
pub use kind::Kind;
pub use outcome::{Failure, Frame, Outcome, Report};
pub use run::{Mode, Run, Slot, Watcher};
