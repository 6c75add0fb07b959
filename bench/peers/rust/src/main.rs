//! Measures one figure of one queue and prints one line of JSON.
//!
//! `bc-bench-peers PEER FIGURE URL CLIENTS SECONDS COUNT`
//!
//! **Invariant:** each queue is driven through its documented interface, and nothing is left of an earlier run.

mod apalis;
mod pgmq;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Jobs of a bulk insert.
pub(crate) const BULK: usize = 1000;

/// A queue that has not finished by then is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn payload() -> Value {
    json!({ "n": 1.5, "text": "a payload of the usual size" })
}

/// What to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    Enqueue,
    Bulk,
    Drain,
    Cycle,
    Idle,
}

/// What the worker has handled.
#[derive(Default)]
pub(crate) struct Seen {
    jobs: AtomicUsize,
    told: Notify,
}

impl Seen {
    pub(crate) fn more(&self, jobs: usize) {
        self.jobs.fetch_add(jobs, Ordering::Release);
        self.told.notify_one();
    }

    fn jobs(&self) -> usize {
        self.jobs.load(Ordering::Acquire)
    }
}

/// One of the queues.
pub(crate) trait Queue: Clone + Send + Sync + 'static {
    /// The version of its crate.
    const VERSION: &'static str;
    /// How many jobs are not over.
    const OPEN: &'static str;
    /// How many jobs a worker holds.
    const LOCKED: &'static str;
    fn one(&self) -> impl Future<Output = anyhow::Result<()>> + Send;
    fn many(&self) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// Starts the worker.
    fn work(&self, seen: Arc<Seen>) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// The size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    clients: usize,
    time: Duration,
    count: usize,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peer, figure, url, clients, seconds, count] = arguments.as_slice() else { bail!("wants six arguments") };
    let size =
        Size { clients: clients.parse()?, time: Duration::from_secs_f64(seconds.parse()?), count: count.parse()? };
    let figure = match figure.as_str() {
        "enqueue" => Figure::Enqueue,
        "bulk" => Figure::Bulk,
        "drain" => Figure::Drain,
        "cycle" => Figure::Cycle,
        "idle" => Figure::Idle,
        other => bail!("no figure {other}"),
    };
    let connections = u32::try_from(size.clients)? + 6;
    let pool = PgPoolOptions::new().max_connections(connections).min_connections(connections).connect(url).await?;
    let answer = match peer.as_str() {
        "pgmq" => measure(&pool, figure, size, pgmq::Pgmq::open(&pool, figure).await?).await?,
        "apalis" => measure(&pool, figure, size, apalis::Apalis::open(&pool, figure).await?).await?,
        other => bail!("no peer {other}"),
    };
    println!("{answer}");
    // Workers that go on in the background end with the process.
    std::process::exit(0);
}

async fn measure<Q: Queue>(pool: &PgPool, figure: Figure, size: Size, queue: Q) -> anyhow::Result<Value> {
    let seen = Arc::<Seen>::default();
    let started;
    let ops = match figure {
        Figure::Enqueue => {
            started = Instant::now();
            until_over(size, &queue, async |queue| queue.one().await).await?
        }
        Figure::Bulk => {
            started = Instant::now();
            until_over(size, &queue, async |queue| queue.many().await).await? * BULK
        }
        Figure::Drain => {
            for _ in 0..size.count.div_ceil(BULK) {
                queue.many().await?;
            }
            started = Instant::now();
            queue.work(seen.clone()).await?;
            all_done::<Q>(pool, &seen, size.count).await?;
            size.count
        }
        Figure::Cycle => {
            queue.work(seen.clone()).await?;
            started = Instant::now();
            let ops = until_over(size, &queue, async |queue| queue.one().await).await?;
            all_done::<Q>(pool, &seen, ops).await?;
            ops
        }
        Figure::Idle => return idle(size, &queue, seen).await,
    };
    let seconds = started.elapsed().as_secs_f64();
    let mut answer = json!({ "version": Q::VERSION, "ops": ops, "seconds": seconds });
    if matches!(figure, Figure::Drain | Figure::Cycle) {
        let locked: i64 = sqlx::query_scalar(Q::LOCKED).fetch_one(pool).await?;
        answer["locked"] = locked.into();
    }
    Ok(answer)
}

/// Until the time is up, on all clients; answers how often.
async fn until_over<Q: Queue, F>(size: Size, queue: &Q, what: F) -> anyhow::Result<usize>
where
    F: for<'a> AsyncFn(&'a Q) -> anyhow::Result<()>,
{
    let over = Instant::now() + size.time;
    let one = async || {
        let mut ops = 0;
        while Instant::now() < over {
            what(queue).await?;
            ops += 1;
        }
        anyhow::Ok(ops)
    };
    let all = futures_util::future::try_join_all((0..size.clients).map(|_| one())).await?;
    Ok(all.into_iter().sum())
}

/// Until nothing is open any more; the database is asked only after the worker has seen all.
async fn all_done<Q: Queue>(pool: &PgPool, seen: &Seen, wanted: usize) -> anyhow::Result<()> {
    let open = async || -> anyhow::Result<i64> { Ok(sqlx::query_scalar(Q::OPEN).fetch_one(pool).await?) };
    let patience = Instant::now() + PATIENCE;
    loop {
        if seen.jobs() >= wanted && open().await? == 0 {
            return Ok(());
        }
        if Instant::now() > patience {
            if seen.jobs() == 0 {
                bail!("the worker never started");
            }
            bail!("stuck with {} jobs open", open().await?);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn idle<Q: Queue>(size: Size, queue: &Q, seen: Arc<Seen>) -> anyhow::Result<Value> {
    queue.work(seen.clone()).await?;
    let mut ms = Vec::with_capacity(size.count);
    for turn in 0..size.count {
        // Some rest, of a length that fits no interval of polling.
        tokio::time::sleep(Duration::from_micros(5000 + (turn as u64 * 7919) % 10_000)).await;
        let started = Instant::now();
        queue.one().await?;
        while seen.jobs() <= turn {
            tokio::time::timeout(PATIENCE, seen.told.notified()).await.context("the worker never started")?;
        }
        ms.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(json!({ "version": Q::VERSION, "ms": ms }))
}

/// One worker's loop, which goes on until the process ends.
pub(crate) fn spawn(worker: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
    let mut set = JoinSet::new();
    set.spawn(async move {
        if let Err(error) = worker.await {
            eprintln!("a worker ended: {error:#}");
        }
    });
    set.detach_all();
}
