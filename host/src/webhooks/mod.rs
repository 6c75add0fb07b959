//! Webhooks: events that are sent to URLs, signed as the Standard Webhooks specification says.
//!
//! A loop on every replica with an API. It turns what the outbox has gained into deliveries, one replica at a time, and serves the
//! webhooks that have something due: a webhook is claimed by one replica, which sends its deliveries one after the other.
//!
//! **Invariant:** a delivery is written in the transaction that moves the position of the outbox, and is over only once that is
//! durable: whatever dies, it is sent at least once, under one id. What one webhook does delays no other.

mod deliver;
mod fan_out;
mod key;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bc_proto::rules::webhook::Allow;
use sqlx::PgPool;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::fan_out::Fanned;
pub(crate) use self::fan_out::message;
pub use self::key::SealingKey;
pub(crate) use self::key::Secret;
use self::send::Sender;
pub(crate) use self::send::judged;
use crate::bus::{self, Bus, Signal};
use crate::store::events::Cursor;
use crate::store::{self, webhook_deliveries};
use crate::world::World;

/// How long an answer may take.
pub const TIMEOUT: Duration = Duration::from_secs(15);

/// The most webhooks that a replica serves at once.
const MAX_SERVED: usize = 128;

/// How long news are gathered before they are read.
const PACE: Duration = Duration::from_millis(50);

/// How often it looks though nobody told it anything: nobody tells when an attempt is due.
const SAFETY_NET: Duration = Duration::from_secs(2);

/// How soon the outbox is read again while an open transaction holds events back, at first and at most.
const HELD_BACK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How long deliveries are kept that are over.
const KEPT: time::Duration = time::Duration::days(30);

/// How often old ones are looked for.
const PRUNE: time::Duration = time::Duration::hours(1);

/// The most that are deleted in one statement.
const PRUNED: u32 = 5_000;

/// What the operator of the control plane decides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What seals secrets at rest.
    pub key: SealingKey,
    /// What is reached though it is not of the public internet.
    pub allow: Allow,
    /// Certificates of the only authorities that receivers' may come from, PEM; those of the system where it is absent.
    pub ca_pem: Option<Vec<u8>>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// What is wrong with them.
#[derive(Debug, thiserror::Error)]
#[error("webhooks.{key}: {rule}")]
pub struct BadSettings {
    /// The key.
    pub key: &'static str,
    /// Its rule.
    pub rule: String,
}

impl Settings {
    /// Whether anything can be sent with them.
    pub fn check(&self) -> Result<(), BadSettings> {
        self.sender().map(|_| ())
    }

    fn sender(&self) -> Result<Sender, BadSettings> {
        Sender::new(self.allow.clone(), self.ca_pem.as_deref(), self.timeout)
    }
}

/// What it works with. It has no state of its own that another replica would need.
#[derive(Debug, Clone)]
pub struct Module {
    pool: PgPool,
    bus: Bus,
    world: World,
    key: Arc<SealingKey>,
    sender: Sender,
}

/// Starts the loop, until `stop`.
pub fn start(module: Module, stop: &CancellationToken) {
    let signals = module.bus.subscribe();
    tokio::spawn(stop.clone().run_until_cancelled_owned(run(module, signals)));
}

async fn run(module: Module, mut signals: broadcast::Receiver<Signal>) {
    // Up to here there was nothing for any webhook. It spares a write of the position each time that nothing was found.
    let mut seen = Cursor::default();
    let mut pause = HELD_BACK.0;
    let mut pruned_at = None;
    let mut serving = JoinSet::new();
    loop {
        let nap = match module.fan_out(seen).await {
            Ok(Fanned::Read { end, is_full, is_held_back, .. }) => {
                seen = end;
                pause = if is_held_back { (pause * 2).min(HELD_BACK.1) } else { HELD_BACK.0 };
                match (is_full, is_held_back) {
                    (true, _) => Duration::ZERO,
                    (_, true) => pause,
                    _ => SAFETY_NET,
                }
            }
            Ok(Fanned::Elsewhere | Fanned::Nobody) => SAFETY_NET,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "events do not become deliveries for now");
                SAFETY_NET
            }
        };
        while serving.try_join_next().is_some() {}
        match module.claim(MAX_SERVED.saturating_sub(serving.len())).await {
            Ok(claimed) => {
                for (webhook, claim) in claimed {
                    let module = module.clone();
                    serving.spawn(async move { module.serve(webhook, claim).await });
                }
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "webhooks are not served for now");
            }
        }
        let now = module.world.now();
        if pruned_at.is_none_or(|at| now - at >= PRUNE) {
            pruned_at = Some(now);
            if let Err(error) = module.prune().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "old deliveries were not deleted");
            }
        }
        tokio::select! {
            () = bus::told(&mut signals, &Signal::Events, nap) => {}
            Some(_) = serving.join_next() => {}
        }
        tokio::time::sleep(PACE).await;
        while !matches!(signals.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
    }
}

impl Module {
    /// A module over a database.
    pub fn new(pool: PgPool, bus: Bus, world: World, settings: &Settings) -> Result<Self, BadSettings> {
        Ok(Self { pool, bus, world, key: Arc::new(settings.key.clone()), sender: settings.sender()? })
    }

    /// Looks once: turns all there is into deliveries and sends what is due, all webhooks at once. Returns how many attempts were
    /// made.
    pub async fn pass(&self) -> Result<usize, store::Error> {
        let mut seen = Cursor::default();
        while let Fanned::Read { end, is_full: true, .. } = self.fan_out(seen).await? {
            seen = end;
        }
        let mut serving = JoinSet::new();
        for (webhook, claim) in self.claim(MAX_SERVED).await? {
            let module = self.clone();
            serving.spawn(async move { module.serve(webhook, claim).await });
        }
        Ok(serving.join_all().await.into_iter().sum())
    }

    /// Deletes what has been over for long.
    async fn prune(&self) -> Result<(), store::Error> {
        let before = self.world.now() - KEPT;
        while webhook_deliveries::prune(&mut *self.pool.acquire().await?, before, PRUNED).await? >= u64::from(PRUNED) {}
        Ok(())
    }
}
