//! What control plane and node must agree on: typed ids, a kind's manifest, capability grants and the rules that both
//! sides apply.
//!
//! **Invariant:** nothing here does I/O. There is no runtime, no database, no file and no clock in this crate; what it
//! needs of the world is an argument.

pub mod abi;
pub mod audit;
pub mod batch;
pub mod canonical;
pub mod certificate;
pub mod grants;
pub mod id;
pub mod manifest;
pub mod merkle;
pub mod pattern;
pub mod quantity;
pub mod receipt;
pub mod rules;
pub mod schema;
pub mod secret;
pub mod sign;
pub mod spec;
pub mod wire;
pub mod xid;
