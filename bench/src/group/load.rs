//! C4: from a file to a kind that can be run, with its compiled code cached and without.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bc_runtime::{Config, Engine, Inspected};

use crate::bench::Bench;
use crate::figure::Figure;
use crate::measure::{Samples, Side, interleave};
use crate::{floor, fresh};

/// A kind that ships, with schemas, capabilities and examples of its own.
const KIND: &str = "diag.nvml";

pub(super) fn figures(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let file = bench.kind(KIND)?;
    let mut figures = vec![warm(bench, &file)?];
    figures.extend(in_fresh_processes(bench, &file)?);
    figures.push(cold(bench, &file)?);
    Ok(figures)
}

fn load(engine: &Engine, file: &Path) -> anyhow::Result<bc_runtime::Kind> {
    Ok(engine.load(&Inspected::read(file)?)?)
}

fn warm(bench: &Bench, file: &Path) -> anyhow::Result<Figure> {
    let dir = tempfile::tempdir()?;
    let ours = Engine::new(&Config { cache_dir: Some(dir.path().to_owned()), ..Config::default() })?;
    load(&ours, file)?;
    let raw = floor::engine()?;
    let artifact = floor::artifact(&raw, &fs::read(file)?)?;
    let ops = bench.ops(50);
    let [ours, floor] = interleave(
        bench.rounds(40),
        [Side::blocking(ops, || load(&ours, file)), Side::blocking(ops, || floor::deserialize(&raw, &artifact))],
    )?;
    Ok(Figure::against_floor("C4 load, cache warm", &ours, &floor, 2.0))
}

fn in_fresh_processes(bench: &Bench, file: &Path) -> anyhow::Result<[Figure; 2]> {
    let dir = tempfile::tempdir()?;
    let cache = dir.path().join("cache");
    load(&Engine::new(&Config { cache_dir: Some(cache.clone()), ..Config::default() })?, file)?;
    let artifact = dir.path().join("artifact");
    fs::write(&artifact, floor::artifact(&floor::engine()?, &fs::read(file)?)?)?;
    // One process measures both figures: the side answers one, and the other is put beside.
    let [ours_whole, floor_whole] = [RefCell::new(Vec::new()), RefCell::new(Vec::new())];
    let side = |file, cache, whole: &RefCell<Vec<Vec<Duration>>>, ops: usize| {
        let measured: Vec<_> = (0..ops).map(|_| fresh::measure(file, cache)).collect::<anyhow::Result<_>>()?;
        whole.borrow_mut().push(measured.iter().map(|measured| measured.set_up_and_load).collect());
        Ok(measured.iter().map(|measured| measured.load).collect())
    };
    // Fewer than ten: no warm-up, which a fresh process would not notice and the lists beside would.
    let ops = bench.ops(5);
    let [ours, floor] = interleave(
        bench.rounds(20),
        [
            Side::new(ops, |ops| side(file, Some(&cache), &ours_whole, ops)),
            Side::new(ops, |ops| side(&artifact, None, &floor_whole, ops)),
        ],
    )?;
    let [ours_whole, floor_whole] = [ours_whole, floor_whole].map(|whole| Samples::new(whole.into_inner()));
    Ok([
        Figure::within("C4 load in a fresh process, cache warm", &ours, &floor, Some(Duration::from_millis(2))),
        Figure::within("C4 engine and load in a fresh process", &ours_whole, &floor_whole, None),
    ])
}

fn cold(bench: &Bench, file: &Path) -> anyhow::Result<Figure> {
    let dir = tempfile::tempdir()?;
    let raw = floor::engine()?;
    let bytes = fs::read(file)?;
    let ours = |ops: usize| {
        let once = |index: usize| {
            let cache = dir.path().join(index.to_string());
            let engine = Engine::new(&Config { cache_dir: Some(cache.clone()), ..Config::default() })?;
            let started = Instant::now();
            let kind = load(&engine, file)?;
            let took = started.elapsed();
            drop(kind);
            ensure!(engine.cache_counts().is_some_and(|counts| counts.absent == 1), "the cache was not cold");
            fs::remove_dir_all(cache)?;
            Ok(took)
        };
        (0..ops).map(once).collect()
    };
    let ops = bench.ops(2);
    let [ours, floor] =
        interleave(bench.rounds(10), [Side::new(ops, ours), Side::blocking(ops, || floor::compile(&raw, &bytes))])?;
    Ok(Figure::against_floor("C4 load, cache cold", &ours, &floor, 2.0))
}
