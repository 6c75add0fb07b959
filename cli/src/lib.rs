//! The command line `better-compute`, as a library so that tests and benchmarks can pack kinds the way authors do.

pub mod kind;
pub mod output;
