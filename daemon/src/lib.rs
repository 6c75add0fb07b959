//! bcd, the node daemon: the machine's capabilities, and the way a kind runs on it.
//!
//! **Invariant:** nothing here knows the control plane's database; what the node is told arrives as values. But for `runner`, which
//! is a client of functions that the database offers to everybody who runs commands of gateways.

pub mod about;
mod authorities;
pub mod capability;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod doctor;
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
pub mod runner;
pub mod server_time;
pub mod service;
pub mod session;
pub mod shell;
pub mod slots;
pub mod spec;
pub mod supervise;
pub mod terminal;
pub mod trust;
