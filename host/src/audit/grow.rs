//! How the log grows: from the outbox, in its order.
//!
//! **Invariant:** one transaction moves the position and adds the entries, their hashes and the head. Whichever replica does it,
//! and wherever it crashes, each event is logged once.

use std::time::Duration;

use bc_proto::audit::Head;
use bc_proto::merkle::stored::{self, Frontier, leaf_hash};
use sqlx::{PgPool, PgTransaction};
use time::OffsetDateTime;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::bus::{self, Bus, Signal};
use crate::faults::crash_at;
use crate::store::events::Cursor;
use crate::store::transparency::{self, Growth, Stretch};
use crate::trust::Signer;
use crate::world::World;

/// The most events of one step.
const BATCH: u32 = 1_000;

/// How long news are gathered before they are read: one read, and one head, for many events.
const PACE: Duration = Duration::from_millis(100);

/// How often the outbox is read though nobody told that it grew.
const SAFETY_NET: Duration = Duration::from_secs(10);

/// How soon it is read again while an open transaction holds events back, at first and at most.
const HELD_BACK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grown {
    /// Another replica is at it.
    Elsewhere,
    /// The log is signed, and this replica has no keys.
    NotByUs,
    /// It is up to date, up to here.
    Read {
        /// How far.
        end: Cursor,
        /// How many entries were added.
        added: usize,
        /// Whether there may be more.
        is_full: bool,
        /// Whether an open transaction holds events back.
        is_held_back: bool,
    },
}

/// Starts the loop, until `stop`.
pub fn start(pool: &PgPool, bus: &Bus, signer: &Signer, world: &World, stop: &CancellationToken) {
    let looping = run(pool.clone(), bus.subscribe(), signer.clone(), world.clone());
    tokio::spawn(stop.clone().run_until_cancelled_owned(looping));
}

async fn run(pool: PgPool, mut signals: broadcast::Receiver<Signal>, signer: Signer, world: World) {
    // Up to here there was nothing for the log. It spares a write of the position each time that nothing was found.
    let mut seen = Cursor::default();
    let mut pause = HELD_BACK.0;
    let mut is_warned = false;
    loop {
        let nap = match grow(&pool, &signer, seen, world.now()).await {
            Ok(Grown::Read { end, is_full, is_held_back, .. }) => {
                seen = end;
                if is_full {
                    continue;
                }
                pause = if is_held_back { (pause * 2).min(HELD_BACK.1) } else { HELD_BACK.0 };
                if is_held_back { pause } else { SAFETY_NET }
            }
            Ok(Grown::Elsewhere) => SAFETY_NET,
            Ok(Grown::NotByUs) => {
                if !std::mem::replace(&mut is_warned, true) {
                    tracing::warn!(
                        "the transparency log is signed and this replica has no keys: it leaves it to others"
                    );
                }
                SAFETY_NET
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the transparency log does not grow for now");
                SAFETY_NET
            }
        };
        bus::told(&mut signals, &Signal::Events, nap).await;
        tokio::time::sleep(PACE).await;
        while !matches!(signals.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
    }
}

/// One step: logs the next stretch of the outbox, from where the log stands or from `seen` if that is later.
pub async fn grow(pool: &PgPool, signer: &Signer, seen: Cursor, now: OffsetDateTime) -> Result<Grown, Error> {
    let mut tx = pool.begin().await?;
    let grown = step(&mut tx, signer, seen, now).await?;
    if let Grown::Read { added, .. } = grown {
        if added > 0 {
            crash_at("log.before-write");
        }
        tx.commit().await?;
        if added > 0 {
            crash_at("log.after-write");
        }
    }
    Ok(grown)
}

/// The same in a transaction of the caller's.
pub(super) async fn step(
    db: &mut PgTransaction<'_>,
    signer: &Signer,
    seen: Cursor,
    now: OffsetDateTime,
) -> Result<Grown, Error> {
    if !transparency::lock(db).await? {
        return Ok(Grown::Elsewhere);
    }
    let head = super::head(db).await?;
    if head.signature.is_some() && !signer.signs() {
        return Ok(Grown::NotByUs);
    }
    let from = transparency::position(db).await?.max(seen);
    let Stretch { end, is_full, is_held_back } = transparency::stretch(db, from, BATCH).await?;
    let entries = transparency::facts(db, from, end).await?;
    let (size, added) = (head.size, entries.len());
    let grown = Grown::Read { end, added, is_full, is_held_back };
    // A head from before there were keys gets its signature now.
    let wants_signature = size > 0 && head.signature.is_none() && signer.signs();
    if added == 0 && !wants_signature {
        if is_full {
            transparency::advance(db, end).await?;
        }
        return Ok(grown);
    }
    let kept = transparency::nodes(db, stored::frontier(size)).await?;
    let mut frontier = Frontier::of(size, &kept).ok_or(Error::Missing { size })?;
    // Signing what does not continue the last head would make a forgery look like the log.
    if hex::encode(frontier.root()) != head.root {
        return Err(Error::Changed { size });
    }
    let mut growth = Growth { from: size, entries: Vec::with_capacity(added), nodes: Vec::new() };
    for entry in entries {
        let body = entry.bytes();
        let hash = leaf_hash(&body);
        // The first is the leaf itself, which stands with its entry.
        growth.nodes.extend(frontier.push(hash).into_iter().skip(1));
        growth.entries.push((entry, body, hash));
    }
    let mut head = Head { size: frontier.size(), root: hex::encode(frontier.root()), signature: None };
    head.signature = signer.sign(&head.body(), now);
    if added > 0 {
        transparency::grow(db, growth, now).await?;
        transparency::advance(db, end).await?;
    }
    transparency::add_head(db, &head, now).await?;
    Ok(grown)
}
