//! The read-only kinds, end to end: the built `bcd` runs the built components on a simulated node in every state that a real
//! one is known to get into.

mod admission;
mod dcgm;
mod diagnosis;
mod examples;
mod faults;
mod gpu_reset;
mod inventory;
mod kernel_log;
mod this_machine;
