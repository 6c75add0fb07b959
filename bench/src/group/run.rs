//! C1 and C2: one whole run of a kind, against raw wasmtime and against starting a program.

use std::process::Command;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::figure::Figure;
use crate::floor::Raw;
use crate::measure::{Side, interleave};
use crate::node::Loaded;

const ROUNDS: usize = 40;

/// Readings that are sent to `bench.json`.
const READINGS: usize = 100;

pub(super) fn against_raw_wasmtime(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let readings: Vec<_> = (0..READINGS).map(reading).collect();
    Ok(vec![
        figure(bench, "C1 no-op kind, whole run", "bench.noop", &json!({}))?,
        figure(bench, "C1 JSON kind (100 objects), whole run", "bench.json", &json!({ "samples": readings }))?,
    ])
}

fn reading(index: usize) -> Value {
    let gpu = format!("GPU-{}", index % 8);
    json!({ "gpu": gpu, "watts": 300.5, "celsius": 60 + index % 20, "throttled": index.is_multiple_of(7) })
}

fn figure(bench: &Bench, name: &'static str, kind: &str, payload: &Value) -> anyhow::Result<Figure> {
    let file = bench.kind(kind)?;
    let ours = Loaded::new(&file)?;
    let floor = Raw::new(&std::fs::read(&file)?)?;
    let text = payload.to_string();
    let ops = bench.ops(500);
    let [ours, floor] = interleave(
        bench.rounds(ROUNDS),
        [
            Side::new(ops, |ops| bench.runtime.block_on(ours.run(bench, payload, ops))),
            Side::new(ops, |ops| bench.runtime.block_on(floor.run(&text, ops))),
        ],
    )?;
    Ok(Figure::against_floor(name, &ours, &floor, 2.0))
}

pub(super) fn against_fork_and_exec(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let ours = Loaded::new(&bench.kind("bench.noop")?)?;
    let payload = json!({});
    let [ours, peer] = interleave(
        bench.rounds(ROUNDS),
        [
            Side::new(bench.ops(500), |ops| bench.runtime.block_on(ours.run(bench, &payload, ops))),
            Side::blocking(bench.ops(25), fork_and_exec),
        ],
    )?;
    Ok(vec![Figure::against_peer("C2 no-op kind against fork + exec", &ours, &peer, 20.0)])
}

#[expect(clippy::disallowed_methods, reason = "starting a program is what a kind is compared with")]
fn fork_and_exec() -> anyhow::Result<()> {
    ensure!(Command::new("/bin/true").status()?.success(), "/bin/true failed");
    Ok(())
}
