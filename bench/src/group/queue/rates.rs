//! A1 to A5: how fast commands get in, through and over.

use std::time::{Duration, Instant};

use anyhow::Context;
use bc_host::bus::Signal;
use tokio::sync::mpsc;

use super::contest::{Contest, Goal, Measure};
use super::plane::Spread;
use super::work::Work;
use super::{Setting, Size};
use crate::bench::Bench;
use crate::figure::Figure;

pub(super) const ROUNDS: usize = 3;

/// Clients of A1b.
const CROWD: usize = 32;

/// So many in so long, as the time of one.
fn each((done, took): (usize, Duration)) -> Vec<Duration> {
    vec![took.div_f64(done as f64)]
}

/// A rate, as the time of one.
fn one_of(rate: f64) -> Vec<Duration> {
    vec![Duration::from_secs_f64(1.0 / rate)]
}

fn singles<'a>(bench: &'a Bench, setting: &'a Setting, clients: usize, spread: Spread) -> Measure<'a> {
    let Size { time, .. } = setting.size;
    Box::new(move || {
        bench.runtime.block_on(async {
            setting.plane.empty().await?;
            let is_enough = |done, elapsed| done > 0 && elapsed >= time;
            Ok(each(setting.plane.enqueue_until(clients, spread, is_enough, |_| ()).await?))
        })
    })
}

fn inserts<'a>(bench: &'a Bench, setting: &'a Setting, clients: usize) -> Measure<'a> {
    Box::new(move || Ok(one_of(bench.runtime.block_on(setting.raw.inserts(clients, setting.size.time))?)))
}

pub(in super::super) fn enqueue(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let size = setting.size;
    let ours = singles(bench, setting, size.clients, Spread::All);
    let floor = inserts(bench, setting, size.clients);
    let contest = Contest::hold(setting, bench.rounds(ROUNDS), Some("enqueue"), size, ours, Some(floor))?;
    let name = "A1 enqueue one by one, 8 clients";
    Ok(vec![contest.rates(setting, "A1", name, &[Goal::Floor(0.55), Goal::Best(1.7)])])
}

pub(in super::super) fn one_node(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let clients = if bench.is_quick() { setting.size.clients } else { CROWD };
    let ours = singles(bench, setting, clients, Spread::One);
    let floor = inserts(bench, setting, clients);
    let contest = Contest::hold(setting, bench.rounds(ROUNDS), None, setting.size, ours, Some(floor))?;
    Ok(vec![contest.rates(setting, "A1b", "A1b the same, 32 clients, all to one node", &[Goal::Floor(0.1)])])
}

pub(in super::super) fn bulk(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let Size { clients, bulk, time, .. } = setting.size;
    let ours: Measure<'_> = Box::new(|| {
        bench.runtime.block_on(async {
            setting.plane.empty().await?;
            let is_enough = |done, elapsed| done > 0 && elapsed >= time;
            Ok(each(setting.plane.bulk_until(clients, bulk, is_enough).await?))
        })
    });
    let floor: Measure<'_> = Box::new(|| Ok(one_of(bench.runtime.block_on(setting.raw.unnest(clients, bulk, time))?)));
    let contest = Contest::hold(setting, bench.rounds(ROUNDS), Some("bulk"), setting.size, ours, Some(floor))?;
    Ok(vec![contest.rates(setting, "A2", "A2 enqueue, 1,000 a statement", &[Goal::Floor(0.5)])])
}

pub(in super::super) fn drain(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let commands = setting.size.drain;
    let ours: Measure<'_> = Box::new(|| {
        bench.runtime.block_on(async {
            setting.plane.empty().await?;
            setting.plane.fill(commands).await?;
            // The commands are there before the work begins.
            let started = Instant::now();
            let mut work = Work::start(&setting.plane, None).await?;
            work.settled(commands).await?;
            let took = started.elapsed();
            work.stop().await?;
            setting.plane.expect_settled(commands).await?;
            Ok(each((commands, took)))
        })
    });
    let contest = Contest::hold(setting, bench.rounds(ROUNDS), Some("drain"), setting.size, ours, None)?;
    let goals = [Goal::Peer("pgmq", 1.0), Goal::BestBut("pgmq", 1.5)];
    Ok(vec![contest.rates(setting, "A3", "A3 drain of 20,000", &goals)])
}

/// A4's own side: it is the floor of the whole way, too.
pub(in super::super) fn cycles<'a>(bench: &'a Bench, setting: &'a Setting) -> Measure<'a> {
    let Size { clients, time, .. } = setting.size;
    Box::new(move || {
        bench.runtime.block_on(async {
            setting.plane.empty().await?;
            let mut work = Work::start(&setting.plane, None).await?;
            let bus = work.bus.clone();
            let started = Instant::now();
            let is_enough = |done, elapsed| done > 0 && elapsed >= time;
            let told = |node| bus.tell(Signal::Work { node });
            let (queued, _) = setting.plane.enqueue_until(clients, Spread::All, is_enough, told).await?;
            work.settled(queued).await?;
            let took = started.elapsed();
            work.stop().await?;
            setting.plane.expect_settled(queued).await?;
            Ok(each((queued, took)))
        })
    })
}

pub(in super::super) fn cycle(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let Size { clients, time, .. } = setting.size;
    let ours = cycles(bench, setting);
    let floor: Measure<'_> =
        Box::new(|| Ok(one_of(bench.runtime.block_on(setting.raw.inserts_and_updates(clients, time))?)));
    let contest = Contest::hold(setting, bench.rounds(ROUNDS), Some("cycle"), setting.size, ours, Some(floor))?;
    let name = "A4 enqueue, run and settle, 8 clients";
    Ok(vec![contest.rates(setting, "A4", name, &[Goal::Floor(0.7), Goal::Best(1.6)])])
}

/// Between two turns, a time that fits no interval of polling.
pub(in super::super) async fn rest(turn: usize) {
    let micros = 5000 + (turn as u64 * 7919) % 10_000;
    tokio::time::sleep(Duration::from_micros(micros)).await;
}

/// A5's own side: it is a part of the floor of the whole way, too.
pub(in super::super) fn hand_overs<'a>(bench: &'a Bench, setting: &'a Setting, turns: usize) -> Measure<'a> {
    Box::new(move || {
        bench.runtime.block_on(async {
            setting.plane.empty().await?;
            let (tell, mut told) = mpsc::unbounded_channel();
            let mut work = Work::start(&setting.plane, Some(tell)).await?;
            let mut db = setting.plane.connect().await?;
            let mut took = Vec::with_capacity(turns);
            for turn in 0..turns {
                rest(turn).await;
                let command = setting.plane.command(turn * 7919);
                let node = command.node;
                let started = Instant::now();
                bc_host::queue::enqueue(&mut db, &bc_host::trust::Signer::none(), command, super::plane::now()).await?;
                work.bus.tell(Signal::Work { node });
                let handed_over = told.recv().await.context("the work ended")?;
                took.push(handed_over - started);
            }
            work.settled(turns).await?;
            work.stop().await?;
            setting.plane.expect_settled(turns).await?;
            Ok(took)
        })
    })
}

pub(in super::super) fn handed_over(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let turns = setting.size.turns;
    let ours = hand_overs(bench, setting, turns);
    let floor: Measure<'_> = Box::new(|| bench.runtime.block_on(setting.raw.notify(turns, rest)));
    let contest = Contest::hold(setting, bench.rounds(ROUNDS), Some("idle"), setting.size, ours, Some(floor))?;
    let name = "A5 idle, enqueue until handed over, p50 / p99";
    Ok(vec![contest.latencies(setting, "A5", name, (2.2, 0.85))])
}
