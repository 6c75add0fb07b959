//! B2 and B6: how many commands a second go the whole way, by one replica and by four.
//!
//! Both fleets run all the time, each with a control plane of its own on the same server; the one that is not measured is
//! idle. Clients, replicas, daemons and Postgres share the machine's cores.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join_all;

use super::super::queue::{Setting, cycles, folder, rate};
use super::KIND;
use super::control::Control;
use super::daemon::{Daemon, Kit};
use crate::bench::Bench;
use crate::figure::{Figure, spread};
use crate::measure::{Samples, compare};

const ROUNDS: usize = 3;

/// The replicas of B6.
const REPLICAS: usize = 4;

/// The daemons of each fleet.
const DAEMONS: usize = 32;

/// B2's, of A4.
const OF_CYCLES: f64 = 0.5;

/// A control plane and its daemons.
struct Fleet {
    control: Control,
    daemons: Vec<Daemon>,
}

pub(in super::super) fn throughput(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let own = folder(bench.is_quick(), "bench-fleet-")?;
    let kind = bench.kind(KIND)?;
    let plugins = own.path().join("plugins");
    std::fs::create_dir(&plugins)?;
    std::fs::copy(&kind, plugins.join("noop.wasm"))?;
    let daemons = if bench.is_quick() { 2 } else { DAEMONS };
    let start = |replicas: usize| {
        let own = own.path().join(format!("of-{replicas}"));
        bench.runtime.block_on(Fleet::start(setting, &own, &plugins, &kind, replicas, daemons))
    };
    let fleets = [start(1)?, start(REPLICAS)?];
    let mut cycle = cycles(bench, setting);
    let (mut floor, mut one, mut four) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds(ROUNDS) {
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => floor.push(cycle()?),
                1 => one.push(bench.runtime.block_on(fleets[0].cycle(setting))?),
                _ => four.push(bench.runtime.block_on(fleets[1].cycle(setting))?),
            }
        }
    }
    for Fleet { control, daemons } in fleets {
        drop(daemons);
        bench.runtime.block_on(control.stop())?;
    }
    let [floor, one, four] = [floor, one, four].map(Samples::new);
    let of_cycles = compare(&one, &floor, |ours, other| other / ours);
    let of_one = compare(&four, &one, |ours, other| other / ours);
    Ok(vec![
        Figure::of(
            format!("B2 commands settled, {daemons} daemons, 1 replica"),
            rate(&one),
            Some(rate(&floor)),
            None,
            spread(of_cycles),
            format!("≥ {OF_CYCLES} A4"),
            Some(of_cycles.median >= OF_CYCLES),
        ),
        Figure::of(
            format!("B6 the same, {REPLICAS} replicas against 1"),
            rate(&four),
            Some(rate(&one)),
            None,
            spread(of_one),
            "≥ 1 within the spread".into(),
            Some(of_one.most >= 1.0),
        ),
    ])
}

impl Fleet {
    async fn start(
        setting: &Setting,
        folder: &Path,
        plugins: &Path,
        kind: &Path,
        replicas: usize,
        daemons: usize,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir(folder)?;
        let control = Control::start(&setting.site, folder, &format!("fleet_of_{replicas}"), replicas, kind).await?;
        let daemons = Daemon::start_many(&control, Kit { folder, plugins, grants: "" }, daemons).await?;
        Ok(Self { control, daemons })
    }

    /// Clients ask for runs as fast as they are answered; then the rest is waited for.
    async fn cycle(&self, setting: &Setting) -> anyhow::Result<Vec<Duration>> {
        let before = self.control.ended().await?;
        let (time, next) = (setting.size.time, AtomicUsize::new(0));
        let started = Instant::now();
        let client = async |client: usize| {
            let mut done: i64 = 0;
            while done == 0 || started.elapsed() < time {
                let daemon = &self.daemons[next.fetch_add(1, Ordering::Relaxed) % self.daemons.len()];
                self.control.run(client, &daemon.node.id).await?;
                done += 1;
            }
            anyhow::Ok(done)
        };
        let done: i64 = try_join_all((0..setting.size.clients).map(client)).await?.into_iter().sum();
        self.control.all_settled().await?;
        let took = started.elapsed();
        let after = self.control.ended().await?;
        ensure!(after == (before.0 + done, 0), "{done} more were to succeed: {before:?} became {after:?}");
        Ok(vec![took.div_f64(done as f64)])
    }
}
