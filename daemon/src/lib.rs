//! bcd, the node daemon: the machine's capabilities, and the way a kind runs on it.
//!
//! **Invariant:** nothing here knows the control plane's database; what the node is told arrives as values.

pub mod about;
mod authorities;
pub mod capability;
pub mod config;
pub mod credentials;
pub mod faults;
pub mod gateway;
pub mod identity;
pub mod join;
pub mod journal;
pub mod kind_plugins;
pub mod kind_run;
pub mod kinds;
pub mod lanes;
mod metrics;
pub mod node;
pub mod plugins;
pub mod renewal;
pub mod run;
pub mod server_time;
pub mod service;
pub mod session;
pub mod shell;
pub mod slots;
pub mod spec;
pub mod supervise;
pub mod terminal;
pub mod trust;
