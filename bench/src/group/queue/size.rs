//! A6: the same work in a database that holds a lot, against one that holds little.
//!
//! **Invariant:** both hold commands of the same fleet and differ in nothing but how many there are; what is measured goes the
//! ordinary way, only the load was written by SQL.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bc_host::store::commands;
use sqlx::AssertSqlSafe;

use super::Setting;
use super::plane::{Plane, Spread, payload};
use super::work::Work;
use crate::bench::Bench;
use crate::figure::{Figure, spread};
use crate::measure::{Samples, compare};

const ROUNDS: usize = 3;

/// Nodes of each fleet. Enough commands a node, even in the small one, that a page is full.
const NODES: usize = 128;

/// Commands of a page.
const PAGE: u32 = 100;

/// How many commands are there.
#[derive(Clone, Copy)]
struct Load {
    settled: usize,
    pending: usize,
}

const SMALL: Load = Load { settled: 0, pending: 20_000 };
const LARGE: Load = Load { settled: 1_000_000, pending: 100_000 };
const FULL: Load = Load { settled: 10_000_000, pending: 1_000_000 };

/// What is measured in a round, of one side.
#[derive(Default)]
struct Rounds {
    enqueue: Vec<Vec<Duration>>,
    settle: Vec<Vec<Duration>>,
    page: Vec<Vec<Duration>>,
}

pub(in super::super) fn sizes(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let (small, large, words) = match (bench.is_quick(), bench.is_full()) {
        (true, _) => (Load { settled: 0, pending: 256 }, Load { settled: 1280, pending: 512 }, "a quick run's load"),
        (false, false) => (SMALL, LARGE, "1 M settled + 0.1 M pending (a tenth; --full for all)"),
        (false, true) => (SMALL, FULL, "10 M settled + 1 M pending"),
    };
    let commands = if bench.is_quick() { 64 } else { 10_000 };
    let nodes = if bench.is_quick() { 8 } else { NODES };
    let [small, large] = bench.runtime.block_on(async {
        anyhow::Ok([loaded(setting, "small", nodes, small).await?, loaded(setting, "large", nodes, large).await?])
    })?;
    let mut sides = [(&small, Rounds::default()), (&large, Rounds::default())];
    for round in 0..bench.rounds(ROUNDS) {
        for turn in 0..2 {
            let (plane, rounds) = &mut sides[(round + turn) % 2];
            bench.runtime.block_on(measure(plane, setting.size.clients, commands, rounds))?;
        }
    }
    let [(_, small), (_, large)] = sides;
    let [small, large] = [small, large].map(|it| [it.enqueue, it.settle, it.page].map(Samples::new));
    let names = [("enqueue", 0.9), ("settle", 0.75)];
    let mut figures = Vec::new();
    for (at, (what, goal)) in names.into_iter().enumerate() {
        let ratio = compare(&large[at], &small[at], |large, small| small / large);
        let [ours, floor] = [&large, &small].map(|side| super::contest::rate(&side[at]));
        let name = format!("A6 {what}, {words}, against 20,000 pending");
        let met = ratio.median >= goal;
        figures.push(Figure::of(name, ours, Some(floor), None, spread(ratio), format!("≥ {goal}"), Some(met)));
    }
    let ratio = compare(&large[2], &small[2], |large, small| large / small);
    let [ours, floor] = [&large, &small].map(|side| format!("{:.2} ms", side[2].p50().as_secs_f64() * 1e3));
    let name = format!("A6 list a page of 100, {words}, against 20,000 pending");
    figures.push(Figure::of(
        name,
        ours,
        Some(floor),
        None,
        spread(ratio),
        "≤ 1.5".to_owned(),
        Some(ratio.median <= 1.5),
    ));
    Ok(figures)
}

/// A fleet with commands, as if they had come one after the other.
async fn loaded(setting: &Setting, name: &str, nodes: usize, load: Load) -> anyhow::Result<Plane> {
    let plane = Plane::new(&setting.site, name, nodes).await?;
    let (settled, pending) = (load.settled / nodes, load.pending / nodes);
    let all = settled + pending;
    let mut db = plane.connect().await?;
    // Ids in the order of time, as version 7 has them. The nodes' turns come one after the other.
    let sql = format!(
        "insert into commands (node_id, seq, id, tenant_id, idempotency_key, kind, kind_digest, lane, payload,
                               payload_hash, incarnation, not_after, created_at)
         select n.id, seq,
                (lpad(to_hex(1800000000000 + seq * {nodes} + n.at), 12, '0') || '7' || substr(md5(random()::text), 1, 3)
                 || '8' || substr(md5(random()::text), 1, 15))::uuid,
                n.tenant_id, 'load:' || seq || ':' || n.id, k.name, k.digest, k.lane, '{payload}', sha256('{payload}'),
                1, now() + interval '1 day', now()
         from generate_series(1, {all}) seq
         cross join (select id, tenant_id, row_number() over (order by id) as at from nodes) n cross join kinds k;
         insert into settled (node_id, seq, state, reason, result, settled_at, reported_at, dispatched_at)
         select node_id, seq, 'succeeded', '', '{{\"ok\":true}}', now(), now(), now() from commands where seq <= {settled};
         insert into ready (node_id, lane, seq, not_before, not_after)
         select node_id, lane, seq, '-infinity', not_after from commands where seq > {settled};
         update node_sequences set next_cmd_seq = {all} + 1",
        payload = payload(),
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await?;
    for statement in ["vacuum analyze", "checkpoint"] {
        sqlx::raw_sql(statement).execute(&mut db).await?;
    }
    Ok(plane)
}

/// As many commands are settled as are enqueued before, so that each round finds what the one before found.
async fn measure(plane: &Plane, clients: usize, commands: usize, rounds: &mut Rounds) -> anyhow::Result<()> {
    let each = commands / clients;
    let (queued, took) = plane.enqueue_until(clients, Spread::All, |done, _| done >= each, |_| ()).await?;
    rounds.enqueue.push(vec![took.div_f64(queued as f64)]);

    let started = Instant::now();
    let mut work = Work::start(plane, None).await?;
    work.settled(queued).await?;
    let (settled, took) = (work.count(), started.elapsed());
    rounds.settle.push(vec![took.div_f64(settled as f64)]);
    work.stop().await?;

    let mut db = plane.connect().await?;
    let mut pages = Vec::with_capacity(plane.nodes.len());
    for node in &plane.nodes {
        let started = Instant::now();
        let page = commands::list(&mut db, plane.tenant, *node, None, None, PAGE).await?;
        pages.push(started.elapsed());
        ensure!(!page.is_empty(), "the page is empty");
    }
    rounds.page.push(pages);
    Ok(())
}
