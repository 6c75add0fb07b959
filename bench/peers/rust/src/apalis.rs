//! apalis on Postgres.

use std::sync::Arc;
use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use sqlx::PgPool;
use tokio::runtime::Handle;

use crate::{BULK, Figure, Queue, Seen};

const QUEUE: &str = "jobs";

#[derive(Clone)]
pub(crate) struct Apalis {
    pool: PgPool,
    figure: Figure,
}

impl Apalis {
    pub(crate) async fn open(pool: &PgPool, figure: Figure) -> anyhow::Result<Self> {
        sqlx::raw_sql("drop schema if exists apalis cascade; drop table if exists _sqlx_migrations")
            .execute(pool)
            .await?;
        PostgresStorage::setup(pool).await?;
        Ok(Self { pool: pool.clone(), figure })
    }

    async fn push(&self, jobs: usize) -> anyhow::Result<()> {
        let job = || TaskBuilder::new(crate::payload().to_string().into_bytes()).build();
        let jobs = (0..jobs).map(|_| job()).collect();
        let mut connection = self.pool.acquire().await?;
        apalis_postgres::queries::push_tasks(&mut *connection, QUEUE, jobs).await?;
        Ok(())
    }
}

async fn handle(_: serde_json::Value, seen: Data<Arc<Seen>>) -> Result<(), BoxDynError> {
    seen.more(1);
    Ok(())
}

impl Queue for Apalis {
    const VERSION: &'static str = "1.0.0";
    const OPEN: &'static str = "select count(*) from apalis.jobs where status <> 'Done'";
    const LOCKED: &'static str = "select count(*) from apalis.jobs where status in ('Queued', 'Running')";

    async fn one(&self) -> anyhow::Result<()> {
        self.push(1).await
    }

    async fn many(&self) -> anyhow::Result<()> {
        self.push(BULK).await
    }

    async fn work(&self, seen: Arc<Seen>) -> anyhow::Result<()> {
        let batch = if self.figure == Figure::Idle { 10 } else { 1000 };
        let config = Config::default().queue(QUEUE).batch_size(batch).lock_tasks(false);
        let storage = PostgresStorage::<serde_json::Value>::new(&self.pool).with_config(config);
        // The compiler cannot prove that a worker's future is Send, so it gets a thread of its own.
        if self.figure == Figure::Idle {
            let storage = storage.with_pubsub();
            let worker =
                WorkerBuilder::new("listening").backend(storage).data(seen).parallelize(tokio::spawn).build(handle);
            tokio::task::spawn_blocking(move || Handle::current().block_on(worker.run()));
            // Its listener has no sign of being ready.
            tokio::time::sleep(Duration::from_millis(300)).await;
        } else {
            // Without an interval the last jobs are marked as done by the next heartbeat only, up to half a minute later.
            let storage = storage.poll_with_interval(Duration::from_millis(5));
            let worker =
                WorkerBuilder::new("polling").backend(storage).data(seen).parallelize(tokio::spawn).build(handle);
            tokio::task::spawn_blocking(move || Handle::current().block_on(worker.run()));
        }
        Ok(())
    }
}
