//! A7: what a claim costs while a snapshot that stays open keeps every dead row.

use std::time::{Duration, Instant};

use bc_host::queue;
use bc_host::queue::settle::Report;
use bc_proto::rules::state::Event;
use sqlx::Connection;

use super::plane::{BULK, CREDITS, EPOCH, Plane, now, room};
use crate::bench::Bench;
use crate::figure::{Figure, spread};
use crate::measure::{Samples, Spread, compare};

const ROUNDS: usize = 3;

/// Nodes of the fleet: few, so that many dead rows lie in front of each one's next command.
const NODES: usize = 32;

/// Commands in all.
const CHURN: usize = 100_000;

/// The last tenth against the first.
const GOAL: f64 = 1.3;

pub(in super::super) fn claims(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let nodes = if bench.is_quick() { 2 } else { NODES };
    let commands = if bench.is_quick() { 10 * nodes * CREDITS as usize } else { CHURN };
    let plane = bench.runtime.block_on(Plane::new(&setting.site, "churn", nodes))?;
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        let took = bench.runtime.block_on(churn(&plane, commands))?;
        let tenth = took.len() / 10;
        first.push(took[..tenth].to_vec());
        last.push(took[took.len() - tenth..].to_vec());
    }
    let [first, last] = [first, last].map(Samples::new);
    let ratio: Spread = compare(&last, &first, |last, first| last / first);
    let ms = |samples: &Samples| format!("{:.2} ms", samples.p50().as_secs_f64() * 1e3);
    let name = "A7 a claim under an open snapshot, last tenth of 100,000 commands against the first";
    let goal = format!("≤ {GOAL}");
    let (met, ratio) = (ratio.median <= GOAL, spread(ratio));
    Ok(vec![Figure::of(name, ms(&last), Some(ms(&first)), None, ratio, goal, Some(met))])
}

/// Enqueues, claims and settles, again and again; answers how long each claim took.
async fn churn(plane: &Plane, commands: usize) -> anyhow::Result<Vec<Duration>> {
    plane.empty().await?;
    let mut holder = plane.connect().await?;
    let mut snapshot = holder.begin().await?;
    sqlx::raw_sql("set transaction isolation level repeatable read; select count(*) from ready")
        .execute(&mut *snapshot)
        .await?;
    let mut db = plane.connect().await?;
    let mut above = vec![0; plane.nodes.len()];
    let batch = (plane.nodes.len() * CREDITS as usize).min(BULK);
    let mut took = Vec::new();
    for _ in 0..commands / batch {
        let new: Vec<_> = (0..batch).map(|at| plane.command(at)).collect();
        queue::enqueue_many(&mut db, &new, now()).await?;
        let rooms: Vec<_> = plane.nodes.iter().zip(&above).map(|(node, above)| room(*node, CREDITS, *above)).collect();
        let started = Instant::now();
        let claimed = queue::claim(&mut db, &rooms, now()).await?;
        took.push(started.elapsed());
        anyhow::ensure!(claimed.len() == batch, "{} claimed of {batch}", claimed.len());
        let mut reports = Vec::with_capacity(batch);
        for it in claimed {
            let at = plane.nodes.iter().position(|node| *node == it.deliver.node).unwrap_or(0);
            above[at] = above[at].max(it.deliver.seq);
            reports.push(Report {
                node: it.deliver.node,
                epoch: EPOCH,
                command: it.deliver.command,
                event: Event::ReportedSucceeded,
                reason: String::new(),
                result: b"{}".to_vec(),
                at: Some(now()),
                node_sig: Vec::new(),
                attested_by: None,
            });
        }
        queue::settle(&mut db, &reports, now()).await?;
    }
    snapshot.rollback().await?;
    plane.expect_settled(took.len() * batch).await?;
    Ok(took)
}
