//! bcd, the node daemon: the machine's capabilities, and the way a kind runs on it.
//!
//! **Invariant:** nothing here knows the control plane's database; what the node is told arrives as values.

pub mod capability;
pub mod config;
pub mod kind_plugins;
pub mod kind_run;
pub mod node;
pub mod plugins;
pub mod terminal;
