//! Loops without input: they look at the database now and then and put in order what time has changed.
//!
//! **Invariant:** every replica runs all of them, and each does nothing where another was faster.

use std::time::Duration;

use bc_proto::rules::sweep::PERIOD_MS;
use sqlx::PgPool;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::batches;
use crate::bus::{Bus, Signal};
use crate::faults::crash_at;
use crate::metrics;
use crate::queue;
use crate::store::{Error, partitions};
use crate::world::World;

/// The most commands of one sweep's transaction and table.
const SWEEP: u32 = 1_000;

/// The most batches that end in one transaction; each may have many commands.
const BATCHES: u32 = 10;

/// How often partitions are looked at. They are made months ahead.
const PARTITIONS: Duration = Duration::from_hours(6);

/// Starts them, until `stop`.
pub fn start(pool: &PgPool, bus: &Bus, world: &World, stop: &CancellationToken) {
    let sweeping = run_sweep(pool.clone(), bus.clone(), world.clone());
    let making = run_partitions(pool.clone(), world.clone());
    tokio::spawn(stop.clone().run_until_cancelled_owned(sweeping));
    tokio::spawn(stop.clone().run_until_cancelled_owned(making));
}

/// Ends what is past its time, commands and batches; returns how many.
pub async fn sweep(pool: &PgPool, bus: &Bus, world: &World) -> Result<usize, Error> {
    let mut all = 0;
    loop {
        let mut tx = pool.begin().await?;
        let swept = queue::sweep(&mut tx, world.now(), SWEEP).await?;
        let swept = swept.unwrap_or(0);
        if swept > 0 {
            crash_at("sweep.before-write");
        }
        tx.commit().await?;
        all += swept;
        if swept > 0 {
            crash_at("sweep.after-write");
            bus.tell(Signal::Events);
        }
        if swept < SWEEP as usize {
            break;
        }
    }
    loop {
        let mut tx = pool.begin().await?;
        let expired = batches::expire(&mut tx, world.now(), BATCHES).await?;
        tx.commit().await?;
        all += expired;
        if expired > 0 {
            bus.tell(Signal::Events);
        }
        if expired < BATCHES as usize {
            return Ok(all);
        }
    }
}

async fn run_sweep(pool: PgPool, bus: Bus, world: World) {
    let mut ticks = tokio::time::interval(Duration::from_millis(PERIOD_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match sweep(&pool, &bus, &world).await {
            Ok(swept) => metrics::swept(swept, world.now()),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "deadlines are not kept for now");
            }
        }
    }
}

/// Makes the partitions that will be needed.
pub async fn make_partitions(pool: &PgPool, world: &World) -> Result<(), Error> {
    let mut tx = pool.begin().await?;
    let made = partitions::make(&mut tx, world.now()).await?;
    tx.commit().await?;
    if made > 0 {
        tracing::info!(made, "partitions of settled were made");
    }
    Ok(())
}

async fn run_partitions(pool: PgPool, world: World) {
    loop {
        if let Err(error) = make_partitions(&pool, &world).await {
            // Commands settle into the default partition meanwhile.
            tracing::warn!(error = &error as &dyn std::error::Error, "partitions of settled were not made");
        }
        tokio::time::sleep(PARTITIONS).await;
    }
}
