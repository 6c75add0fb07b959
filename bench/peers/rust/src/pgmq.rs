//! pgmq, installed by its own crate from the SQL that it carries. Messages that are done are deleted.

use std::sync::Arc;
use std::time::Duration;

use pgmq::{Message, PGMQueueExt};
use serde_json::Value;
use sqlx::PgPool;

use crate::{BULK, Figure, Queue, Seen, payload};

const QUEUE: &str = "jobs";

/// For how long a message that was read is hidden, seconds.
const HIDDEN: i32 = 600;

#[derive(Clone)]
pub(crate) struct Pgmq {
    queue: PGMQueueExt,
    figure: Figure,
}

impl Pgmq {
    pub(crate) async fn open(pool: &PgPool, figure: Figure) -> anyhow::Result<Self> {
        sqlx::raw_sql("drop schema if exists pgmq cascade").execute(pool).await?;
        let queue = PGMQueueExt::new_with_pool(pool.clone()).await;
        queue.install_sql_from_embedded().await?;
        queue.create(QUEUE).await?;
        if figure == Figure::Idle {
            queue.enable_notify_insert(QUEUE, Duration::ZERO).await?;
        }
        Ok(Self { queue, figure })
    }

    /// Reads what there is and deletes it, until there is nothing.
    async fn handle(&self, seen: &Seen) -> anyhow::Result<()> {
        loop {
            let read: Vec<Message<Value, Value>> = self.queue.read_batch(QUEUE, HIDDEN, 1000).await?;
            if read.is_empty() {
                return Ok(());
            }
            if self.figure == Figure::Idle {
                seen.more(read.len());
            }
            let ids: Vec<i64> = read.iter().map(|message| message.msg_id).collect();
            self.queue.delete_batch(QUEUE, &ids).await?;
            if self.figure != Figure::Idle {
                seen.more(read.len());
            }
        }
    }
}

impl Queue for Pgmq {
    const VERSION: &'static str = "0.34.0-alpha.7";
    const OPEN: &'static str = "select count(*) from pgmq.q_jobs";
    const LOCKED: &'static str = "select count(*) from pgmq.q_jobs where vt > now()";

    async fn one(&self) -> anyhow::Result<()> {
        self.queue.send(QUEUE, &payload()).await?;
        Ok(())
    }

    async fn many(&self) -> anyhow::Result<()> {
        self.queue.send_batch(QUEUE, &vec![payload(); BULK]).await?;
        Ok(())
    }

    async fn work(&self, seen: Arc<Seen>) -> anyhow::Result<()> {
        let listener = match self.figure {
            Figure::Idle => Some(self.queue.queue_insert_listener(QUEUE).await?),
            _ => None,
        };
        if let Some(mut listener) = listener {
            let this = self.clone();
            crate::spawn(async move {
                loop {
                    this.handle(&seen).await?;
                    listener.recv().await?;
                }
            });
            return Ok(());
        }
        for _ in 0..2 {
            let (this, seen) = (self.clone(), seen.clone());
            crate::spawn(async move {
                loop {
                    this.handle(&seen).await?;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
        Ok(())
    }
}
