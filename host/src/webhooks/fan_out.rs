//! From the outbox to deliveries.
//!
//! **Invariant:** one transaction holds the position, writes the deliveries and moves it: each event goes to a webhook once, in the
//! order of the outbox, whichever replica does it.

use bc_proto::id::DeliveryId;
use bc_proto::rules::webhook::wants;
use serde_json::value::to_raw_value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Module;
use crate::api::types;
use crate::store;
use crate::store::events::{self, Cursor, Event, Filter};
use crate::store::webhook_deliveries::{self as deliveries, NewDelivery, Position};

/// The most events of one step.
const BATCH: u32 = 500;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fanned {
    /// Another replica is at it.
    Elsewhere,
    /// There is no webhook.
    Nobody,
    /// It has read up to here.
    Read {
        /// How far.
        end: Cursor,
        /// Whether there may be more.
        is_full: bool,
        /// Whether an open transaction holds events back.
        is_held_back: bool,
    },
}

impl Module {
    /// One step: the next stretch of the outbox, from where the position stands or from `seen` if that is later.
    pub(super) async fn fan_out(&self, seen: Cursor) -> Result<Fanned, store::Error> {
        let now = self.world.now();
        // Most have none: no lock is taken for that.
        if deliveries::targets(&mut *self.pool.acquire().await?).await?.is_empty() {
            return Ok(Fanned::Nobody);
        }
        let mut tx = self.pool.begin().await?;
        let Some(position) = deliveries::position(&mut tx).await? else { return Ok(Fanned::Elsewhere) };
        let targets = deliveries::targets(&mut tx).await?;
        let Some(first) = targets.iter().map(|target| target.from).min() else { return Ok(Fanned::Nobody) };
        // What lies before the oldest webhook is nobody's.
        let from = position.cursor.max(seen).max(first);
        let page = events::page(&mut tx, from, Filter::default(), BATCH).await?;
        let mut new = Vec::new();
        for event in page.events {
            let of_tenant = targets.iter().filter(|it| it.tenant == event.tenant && event.cursor > it.from);
            let wanted = of_tenant.filter(|it| wants(it.topics.iter().map(String::as_str), &event.topic));
            let wanted: Vec<_> = wanted.map(|it| it.webhook).collect();
            if wanted.is_empty() {
                continue;
            }
            let (cursor, topic, body) = (event.cursor, event.topic.clone(), of_event(event));
            new.extend(wanted.into_iter().map(|webhook| NewDelivery {
                id: DeliveryId::from_uuid(self.world.uuid()),
                webhook,
                event: Some(cursor),
                topic: topic.clone(),
                body: body.clone(),
            }));
        }
        let read = Fanned::Read { end: page.end, is_full: page.is_full, is_held_back: page.is_held_back };
        if new.is_empty() && !page.is_full {
            return Ok(read);
        }
        // A clock behind that of the replica before does not let new events overtake older ones.
        let due_at = now.max(position.due_at);
        deliveries::insert(&mut tx, &new, due_at, now).await?;
        deliveries::advance(&mut tx, Position { cursor: page.end, due_at }).await?;
        tx.commit().await?;
        Ok(read)
    }
}

/// What is sent of an event.
fn of_event(event: Event) -> String {
    let (topic, at) = (event.topic.clone(), event.at);
    message(&topic, at, &types::Event::from(event))
}

/// What is sent: `{type, timestamp, data}`.
pub(crate) fn message(topic: &str, at: OffsetDateTime, data: &impl serde::Serialize) -> String {
    #[derive(serde::Serialize)]
    struct Body<'a> {
        r#type: &'a str,
        timestamp: String,
        data: Box<serde_json::value::RawValue>,
    }
    let timestamp = at.format(&Rfc3339).unwrap_or_else(|_| at.to_string());
    let data = to_raw_value(data).expect("documents of the API are JSON");
    serde_json::to_string(&Body { r#type: topic, timestamp, data }).expect("text and JSON are JSON")
}
