//! The read-only kinds, end to end: the built `bcd` runs the built components on a simulated node in every state that a real
//! one is known to get into.

mod admission;
mod bmc;
mod dcgm;
mod diagnosis;
mod examples;
mod faults;
mod gpu_reset;
mod http_proxy;
mod inventory;
mod kernel_log;
mod logs;
mod remote;
mod sushy;
mod this_machine;
