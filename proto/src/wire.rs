//! The session protocol: generated messages, and the checked types that the rest of the code works with.
//!
//! **Invariant:** this is the only parser. A message becomes a checked type here or an error that names the field; nothing
//! else reads generated messages' strings and numbers.

mod checked;
mod desired;
mod output;
mod upload;

/// Generated from `node.proto`.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::large_enum_variant,
    reason = "generated; node.proto holds the documentation"
)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/better_compute.node.v1.rs"));
}

/// The metadata of a refused Hello that holds the epoch of the node's newest session, as a decimal number.
pub const SESSION_EPOCH: &str = "session-epoch";

pub use checked::{Deliver, Hello, Invalid, LoadedKind, Report, Update};
pub use desired::{Bound, Condition, MAX_CONDITIONS};
pub use output::{MAX_OUTPUT_BYTES, MAX_PIECE_BYTES, Output, Stream};
pub use upload::{PresignedUrl, Upload};

/// The name in every gateway's certificate. A node verifies it whatever the address is that it connects to.
pub const GATEWAY_NAME: &str = "gateway.better-compute.internal";
