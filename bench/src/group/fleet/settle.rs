//! B1: one idle daemon, from `commands.run` until a watcher hears that the command is over.
//!
//! The floor is what the queue takes to hand a command over (A5's own side), and two fsyncs of a file beside the daemon's
//! journal: it has to write down that it accepted the command, and its result.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bc_host::api::types::{Event, WatchEvents};
use better_compute::client::events::{Events, Said};

use super::super::queue::{folder, hand_overs, rest};
use super::KIND;
use super::control::Control;
use super::daemon::{Daemon, Kit};
use crate::bench::Bench;
use crate::figure::{Figure, both, spread};
use crate::measure::{Samples, compare};

/// Of the floor, at p50 and at p99.
const GOAL: f64 = 2.0;

const ROUNDS: usize = 3;

/// A page of the journal.
const PAGE: [u8; 4096] = [7; 4096];

pub(in super::super) fn figures(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let turns = setting.size.turns;
    let own = folder(bench.is_quick(), "bench-settle-")?;
    let kind = bench.kind(KIND)?;
    let plugins = own.path().join("plugins");
    std::fs::create_dir(&plugins)?;
    std::fs::copy(&kind, plugins.join("noop.wasm"))?;
    let (control, daemon) = bench.runtime.block_on(async {
        let control = Control::start(&setting.site, own.path(), "settle", 1, &kind).await?;
        let kit = Kit { folder: own.path(), plugins: &plugins, grants: "" };
        let daemon = Daemon::start(&control, kit, 0).await?;
        anyhow::Ok((control, daemon))
    })?;
    let mut hand_over = hand_overs(bench, setting, turns);
    let mut watcher = Watcher::new(bench, &control, &daemon)?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds(ROUNDS) {
        let (mut whole, mut handed, mut synced) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => whole = bench.runtime.block_on(watcher.settle(&control, &daemon, turns))?,
                1 => handed = hand_over()?,
                _ => synced = bench.runtime.block_on(fsyncs(&daemon.folder, turns))?,
            }
        }
        ours.push(whole);
        floor.push(handed.into_iter().zip(synced).map(|(handed, synced)| handed + synced).collect());
    }
    drop((watcher, daemon));
    bench.runtime.block_on(control.stop())?;
    let (ours, floor) = (Samples::new(ours), Samples::new(floor));
    let ratio = compare(&ours, &floor, |ours, floor| ours / floor);
    let late = ours.p99().as_secs_f64() / floor.p99().as_secs_f64();
    Ok(vec![Figure::of(
        "B1 idle, commands.run until settled, p50 / p99",
        both(&ours),
        Some(both(&floor)),
        None,
        format!("{}, p99 {late:.2} ×", spread(ratio)),
        format!("≤ {GOAL} ×"),
        Some(ratio.median <= GOAL && late <= GOAL),
    )])
}

/// Two fsyncs, each after a page was written, in the folder of the journal.
async fn fsyncs(folder: &Path, turns: usize) -> anyhow::Result<Vec<Duration>> {
    let mut file = File::create(folder.join("fsyncs"))?;
    let mut took = Vec::with_capacity(turns);
    for turn in 0..turns {
        rest(turn).await;
        let started = Instant::now();
        for _ in 0..2 {
            file.write_all(&PAGE)?;
            file.sync_data()?;
        }
        took.push(started.elapsed());
    }
    Ok(took)
}

/// A stream of the node's events, as a caller would follow it.
struct Watcher {
    events: Events,
}

impl Watcher {
    fn new(bench: &Bench, control: &Control, daemon: &Daemon) -> anyhow::Result<Self> {
        let query = WatchEvents {
            tenant_id: control.tenant.clone(),
            node_id: Some(daemon.node.id.clone()),
            // From the beginning, so that none is missed while the stream opens.
            after: Some("0".into()),
            ..WatchEvents::default()
        };
        bench.runtime.block_on(async {
            let mut watcher = Self { events: Events::watch(Arc::clone(control.client(0)), query) };
            watcher.settle(control, daemon, 3).await?;
            Ok(watcher)
        })
    }

    async fn settle(&mut self, control: &Control, daemon: &Daemon, turns: usize) -> anyhow::Result<Vec<Duration>> {
        let mut took = Vec::with_capacity(turns);
        for turn in 0..turns {
            rest(turn).await;
            let started = Instant::now();
            let command = control.run(0, &daemon.node.id).await?;
            let settled = self.settled(&command.id).await?;
            took.push(started.elapsed());
            ensure!(settled.body["state"] == "succeeded", "it ended as {}", settled.body);
        }
        Ok(took)
    }

    async fn settled(&mut self, command: &str) -> anyhow::Result<Event> {
        loop {
            match self.events.next().await.context("the events ended")?? {
                Said::Happened(event) if event.topic == "command.settled" && event.body["commandId"] == command => {
                    return Ok(event);
                }
                Said::Happened(_) | Said::Progress(_) => {}
                Said::Interrupted(error) => return Err(error.into()),
            }
        }
    }
}
