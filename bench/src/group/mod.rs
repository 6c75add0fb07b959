//! The groups of figures, one module each.

mod call;
mod load;
mod run;

use crate::bench::Bench;
use crate::figure::Figure;

/// Measures the figures of one group.
type Group = fn(&Bench) -> anyhow::Result<Vec<Figure>>;

/// All groups, in the order of the table.
pub(crate) const ALL: [(&str, Group); 4] = [
    ("C1", run::against_raw_wasmtime),
    ("C2", run::against_fork_and_exec),
    ("C3", call::figures),
    ("C4", load::figures),
];
