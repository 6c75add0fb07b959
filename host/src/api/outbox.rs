//! One reader of the outbox for all who watch on this replica.
//!
//! It reads only while somebody watches: when it is told that the outbox grew, and every few seconds in case that was not heard.
//!
//! **Invariant:** each batch says from where to where it reaches. A watcher that stands anywhere else than in it reads the
//! database itself, so no event is missed or doubled whenever it joins, and however far it falls behind.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::bus::{Bus, Signal};
use crate::store::Error;
use crate::store::events::{self, Cursor, Event, Filter};

/// How many batches a slow watcher may lag behind before it has to read for itself.
const BACKLOG: usize = 256;

/// The most events in a batch.
const BATCH: u32 = 500;

/// How often the outbox is read though nobody told that it grew.
const SAFETY_NET: Duration = Duration::from_secs(5);

/// How soon it is read again while an open transaction holds events back, at first and at most.
const HELD_BACK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A piece of the outbox.
#[derive(Debug)]
pub(super) struct Batch {
    /// It holds all events after this.
    pub(super) from: Cursor,
    /// Up to and including this.
    pub(super) to: Cursor,
    /// The events of all tenants, oldest first.
    pub(super) events: Vec<Event>,
}

/// The reader, as watchers see it.
pub(super) struct Outbox {
    batches: broadcast::Sender<Arc<Batch>>,
    is_running: Mutex<bool>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { batches: broadcast::channel(BACKLOG).0, is_running: Mutex::new(false) }
    }

    /// The batches from now on. The first one comes at once, so that a watcher learns where the reader stands.
    pub(super) fn follow(
        self: &Arc<Self>,
        pool: &PgPool,
        bus: &Bus,
        stop: &CancellationToken,
    ) -> broadcast::Receiver<Arc<Batch>> {
        let receiver = self.batches.subscribe();
        let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_running {
            *is_running = true;
            let reader = Reader { outbox: Arc::clone(self), pool: pool.clone(), signals: bus.subscribe() };
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(reader.run()).await });
        }
        receiver
    }

    /// Whether nobody watches any more; the reader ends then. Under the lock, so that who comes at this moment starts another.
    fn is_over(&self) -> bool {
        let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        *is_running = self.batches.receiver_count() > 0;
        !*is_running
    }
}

struct Reader {
    outbox: Arc<Outbox>,
    pool: PgPool,
    signals: broadcast::Receiver<Signal>,
}

impl Reader {
    async fn run(mut self) {
        let mut at = None;
        let mut pause = HELD_BACK.0;
        while !self.outbox.is_over() {
            let nap = match self.step(&mut at).await {
                Ok(Next::AtOnce) => continue,
                Ok(Next::HeldBack) => {
                    pause = (pause * 2).min(HELD_BACK.1);
                    pause
                }
                Ok(Next::Told) => {
                    pause = HELD_BACK.0;
                    SAFETY_NET
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the outbox cannot be read");
                    HELD_BACK.1
                }
            };
            // Time passing is as good as being told.
            let _ = tokio::time::timeout(nap, told(&mut self.signals)).await;
        }
    }

    async fn step(&self, at: &mut Option<Cursor>) -> Result<Next, Error> {
        let mut db = self.pool.acquire().await?;
        let from = match *at {
            Some(at) => at,
            None => events::end(&mut db).await?,
        };
        let page = events::page(&mut db, from, Filter::default(), BATCH).await?;
        drop(db);
        *at = Some(page.end);
        // Nobody listens any more: that is seen in the next round.
        let _ = self.outbox.batches.send(Arc::new(Batch { from, to: page.end, events: page.events }));
        Ok(if page.is_full {
            Next::AtOnce
        } else if page.is_held_back {
            Next::HeldBack
        } else {
            Next::Told
        })
    }
}

enum Next {
    AtOnce,
    HeldBack,
    Told,
}

/// Waits until the outbox grew, or it may have.
async fn told(signals: &mut broadcast::Receiver<Signal>) {
    loop {
        match signals.recv().await {
            Ok(Signal::Work { .. } | Signal::Cancel { .. } | Signal::Spec { .. } | Signal::Progress(_)) => {}
            Ok(_) | Err(RecvError::Lagged(_)) => break,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
    // Many at once are one.
    while !matches!(
        signals.try_recv(),
        Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed)
    ) {}
}
