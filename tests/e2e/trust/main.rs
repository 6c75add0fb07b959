//! Trust end to end: control plane, nodes and the command line as real processes.
//!
//! **Invariant:** what is asserted is what a node did, and what it said of what it did not do.

mod gateway;
mod receipts;
mod signing;
mod wipe;
