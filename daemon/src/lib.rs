//! bcd, the node daemon.

pub mod capability;
