//! What control plane and daemon say of themselves: their logs, and the page that Prometheus reads.
//!
//! **Invariant:** what is off costs nothing and opens no port; nothing here can keep a program from doing its work.

pub mod log;
pub mod page;
