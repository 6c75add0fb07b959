//! The groups of figures, one module each.

mod call;
pub(crate) mod fleet;
mod load;
pub(crate) mod queue;
mod run;

use crate::bench::Bench;
use crate::figure::Figure;

/// Measures the figures of one group.
type Group = fn(&Bench) -> anyhow::Result<Vec<Figure>>;

/// All groups, in the order of the table.
pub(crate) const ALL: [(&str, Group); 18] = [
    ("A1", queue::enqueue),
    ("A1b", queue::one_node),
    ("A2", queue::bulk),
    ("A3", queue::drain),
    ("A4", queue::cycle),
    ("A5", queue::handed_over),
    ("A6", queue::sizes),
    ("A7", queue::claims),
    ("A8", queue::per_command),
    ("A9", queue::leased),
    ("B1", fleet::settle),
    ("B2, B6", fleet::throughput),
    ("B3, B4", fleet::sessions),
    ("B5", fleet::idle),
    ("C1", run::against_raw_wasmtime),
    ("C2", run::against_fork_and_exec),
    ("C3", call::figures),
    ("C4", load::figures),
];
