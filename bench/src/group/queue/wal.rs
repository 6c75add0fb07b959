//! A8: how much WAL a command writes from enqueue to settlement, all tables, indexes and vacuuming included.

use bc_host::bus::Signal;

use super::Setting;
use super::plane::Spread;
use super::work::Work;
use crate::bench::Bench;
use crate::figure::Figure;

const ROUNDS: usize = 3;

/// kB a command.
const GOAL: f64 = 2.0;

pub(in super::super) fn per_command(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let mut rounds = Vec::new();
    for _ in 0..bench.rounds(ROUNDS) {
        rounds.push(bench.runtime.block_on(kilobytes(setting))?);
    }
    rounds.sort_by(f64::total_cmp);
    let (least, median, most) = (rounds[0], rounds[rounds.len() / 2], rounds[rounds.len() - 1]);
    let (ours, ratio) = (format!("{median:.2} kB"), format!("{least:.2} – {most:.2} kB"));
    let goal = format!("≤ {GOAL:.1} kB");
    Ok(vec![Figure::of("A8 WAL a settled command", ours, None, None, ratio, goal, Some(median <= GOAL))])
}

async fn kilobytes(setting: &Setting) -> anyhow::Result<f64> {
    let (plane, commands) = (&setting.plane, setting.size.drain);
    plane.empty().await?;
    let mut work = Work::start(plane, None).await?;
    let mut db = setting.site.connect("postgres").await?;
    let clients = setting.size.clients;
    let mut before = 0;
    // The first half fills the pages, whose first change after a checkpoint is written whole, and is not counted.
    for half in 1..=2 {
        before = bytes(&mut db).await?;
        let bus = work.bus.clone();
        let told = |node| bus.tell(Signal::Work { node });
        plane.enqueue_until(clients, Spread::All, |done, _| done >= commands / clients, told).await?;
        work.settled(half * (commands / clients) * clients).await?;
    }
    let written = bytes(&mut db).await? - before;
    let settled = work.stop().await?;
    plane.expect_settled(settled).await?;
    Ok(written as f64 / 1e3 / (settled / 2) as f64)
}

async fn bytes(db: &mut sqlx::PgConnection) -> anyhow::Result<i64> {
    let at = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
    Ok(sqlx::query_scalar(at).fetch_one(db).await?)
}
