//! C3: one host call, as the difference between a run with many of them and a run with none.

use std::time::Duration;

use serde_json::json;

use crate::bench::Bench;
use crate::figure::Figure;
use crate::floor::Raw;
use crate::measure::{Side, interleave};
use crate::node::Loaded;

/// So many that a run is theirs: 10,000 take milliseconds, all else some ten microseconds.
const CALLS: u32 = 10_000;

pub(super) fn figures(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let file = bench.kind("bench.calls")?;
    let ours = Loaded::new(&file)?;
    let floor = Raw::new(&std::fs::read(&file)?)?;
    let (none, many) = (json!({ "calls": 0 }), json!({ "calls": CALLS }));
    let (none_text, many_text) = (none.to_string(), many.to_string());
    let ops = bench.ops(10);
    let [ours_none, ours_many, floor_none, floor_many] = interleave(
        bench.rounds(40),
        [
            Side::new(ops, |ops| bench.runtime.block_on(ours.run(bench, &none, ops))),
            Side::new(ops, |ops| bench.runtime.block_on(ours.run(bench, &many, ops))),
            Side::new(ops, |ops| bench.runtime.block_on(floor.run(&none_text, ops))),
            Side::new(ops, |ops| bench.runtime.block_on(floor.run(&many_text, ops))),
        ],
    )?;
    let ours = ours_many.per_step(&ours_none, CALLS);
    let floor = floor_many.per_step(&floor_none, CALLS);
    Ok(vec![Figure::above_floor("C3 one host call (read)", &ours, &floor, Duration::from_micros(2))])
}
