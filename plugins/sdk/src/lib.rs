//! Write a better-compute command kind in Rust: implement [`Kind`] for a type, name it in one [`export!`] line, describe
//! it in a `kind.toml`, and build for `wasm32-unknown-unknown`.
//!
//! ```
//! use sdk::{Context, Failure, Kind};
//! # use better_compute_sdk as sdk;
//!
//! struct Greet;
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Payload {
//!     name: String,
//! }
//!
//! impl Kind for Greet {
//!     type Payload = Payload;
//!     type Output = String;
//!
//!     fn run(ctx: &Context, payload: Payload) -> Result<String, Failure> {
//!         sdk::tracing::info!(attempt = ctx.attempt, "greeting");
//!         Ok(format!("Hello, {}, from {}", payload.name, ctx.node_id))
//!     }
//! }
//!
//! sdk::export!(Greet);
//! ```
//!
//! Every capability of the node is a module here ([`nvml`], [`gpus`], [`process`], …); calling into one is asking for it, so
//! the manifest must list it. Log with [`tracing`]; a panic's message and place reach the host by themselves.
//!
//! Everything compiles natively too, so that the pure part of a kind is tested with plain `cargo test`. Outside a
//! component nothing is behind the capabilities: calling one panics.
//!
//! **Invariant:** nothing here calls a capability of its own accord but `log`, so that a kind imports what its author uses.

pub mod bindings;
mod failure;
#[cfg(feature = "http")]
pub mod http;
mod kind;
mod lines;
pub mod payload;

pub use bindings::better_compute::host1_0_0::types::Error;
pub use bindings::better_compute::host1_0_0::{
    block_devices, clock, gpus, inventory, nvml, process, progress, secrets, system, upgrade, upload,
};
pub use bindings::better_compute::host1_1_0::files;
/// The export as WIT has it, JSON text in and out. [`Kind`] is the comfortable way to implement it; implement this one
/// to read or write the text yourself.
pub use bindings::exports::better_compute::kind::command::Guest as Command;
/// What a run knows about itself.
pub use bindings::exports::better_compute::kind::command::RunContext as Context;
pub use bindings::exports::better_compute::kind::command::{Failure, Problem};
pub use failure::{Described, describe};
pub use kind::Kind;
pub use tracing;

/// Makes a type that implements [`Kind`] (or [`Command`]) the component's export. Once per component, with the name of a
/// type in scope.
#[macro_export]
macro_rules! export {
    ($kind:ident) => {
        $crate::bindings::export_command!($kind with_types_in $crate::bindings);
    };
}

/// Sends log lines and panics to the host from now on. [`Kind`]s need not call it; a [`Command`] does, first thing.
pub fn install_log() {
    lines::install();
}
