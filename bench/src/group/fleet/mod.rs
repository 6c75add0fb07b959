//! B: the whole way, with a real API and gateway and real daemons: processes of their own, over mutual TLS, with their journals.
//!
//! The control plane's replicas run in this process, on the server of group A. A daemon is this program again, running
//! `bc_daemon::run` as bcd does. The ten thousand sessions of B3 and B4 are held by a process of their own, speak the protocol
//! without a network, and that is said in their rows. Floors come from group A's [`super::queue`], in the same turns.
//!
//! **Invariant:** what cannot be had on one machine is simulated at the protocol and said to be.

mod control;
mod crowd;
mod daemon;
mod idle;
mod rates;
mod sessions;
mod settle;

pub(crate) use self::crowd::Crowd;
pub(super) use self::crowd::sessions;
pub(crate) use self::daemon::Bcd;
pub(super) use self::idle::figures as idle;
pub(super) use self::rates::throughput;
pub(super) use self::settle::figures as settle;

/// The kind of all commands.
const KIND: &str = "bench.noop";

/// Bytes in a MiB.
const MIB: f64 = 1024.0 * 1024.0;
