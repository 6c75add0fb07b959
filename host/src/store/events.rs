//! `events`: the outbox, read.
//!
//! **Invariant:** a watcher that asks again with the cursor of the last event it saw misses none, whatever commits late.
//! Events are ordered by their transaction, and read only below the oldest transaction that is still open: nothing can appear
//! before what was read. A transaction that stays open delays every event after it, in whichever database of the server it is.

use std::fmt;
use std::str::FromStr;

use bc_proto::id::{CommandId, NodeId, TenantId};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Error, signed, unsigned};

/// How far a watcher has read. It travels as text, `<transaction>-<id>`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    xid: u64,
    id: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Where to resume after it.
    pub cursor: Cursor,
    /// Whose it is.
    pub tenant: TenantId,
    /// The node that it is about.
    pub node: Option<NodeId>,
    /// The command that it is about.
    pub command: Option<CommandId>,
    /// `node.command.queued`, `command.settled` or `node.command.cancel-requested`.
    pub topic: String,
    /// Its particulars.
    pub body: Value,
    /// When.
    pub at: OffsetDateTime,
}

/// Not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cursor has the form <number>-<number>")]
pub struct InvalidCursor;

impl Cursor {
    /// After the event with this id of this transaction.
    pub(super) const fn new(xid: u64, id: u64) -> Self {
        Self { xid, id }
    }

    /// Transaction and id.
    pub(super) const fn parts(self) -> (u64, u64) {
        (self.xid, self.id)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xid, self.id)
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (xid, id) = text.split_once('-').ok_or(InvalidCursor)?;
        let number = |text: &str| text.parse().map_err(|_| InvalidCursor);
        Ok(Self { xid: number(xid)?, id: number(id)? })
    }
}

/// The events after a cursor, oldest first; the default cursor is before all of them.
pub async fn after(db: &mut PgConnection, cursor: Cursor, limit: u32) -> Result<Vec<Event>, Error> {
    Ok(page(db, cursor, Filter::default(), limit).await?.events)
}

/// Which events a watcher wants; each field that is set narrows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only what is about this node.
    pub node: Option<NodeId>,
    /// Only what is about this command.
    pub command: Option<CommandId>,
}

impl Filter {
    /// Whether an event is wanted.
    pub fn wants(&self, event: &Event) -> bool {
        self.tenant.is_none_or(|it| it == event.tenant)
            && self.node.is_none_or(|it| Some(it) == event.node)
            && self.command.is_none_or(|it| Some(it) == event.command)
    }
}

/// A piece of the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The events after the cursor that the filter wants, oldest first.
    pub events: Vec<Event>,
    /// How far this has read: all that is wanted up to here is among the events. It may lie beyond the last of them.
    pub end: Cursor,
    /// Whether there may be more right after it: the page is full.
    pub is_full: bool,
    /// Whether there are events which an open transaction holds back. Nobody tells when it ends.
    pub is_held_back: bool,
}

/// Where a watcher begins that wants only what is to come.
pub async fn end(db: &mut PgConnection) -> Result<Cursor, Error> {
    let xid = sqlx::query_scalar!(r#"select pg_snapshot_xmin(pg_current_snapshot())::text::bigint as "xmin!""#);
    let xid = unsigned("events", "xid", "the horizon", xid.fetch_one(db).await?)?;
    Ok(Cursor { xid, id: 0 })
}

/// The next piece of the outbox after a cursor, at most `limit` events.
pub async fn page(db: &mut PgConnection, cursor: Cursor, filter: Filter, limit: u32) -> Result<Page, Error> {
    let rows = sqlx::query!(
        r#"with here as (select pg_snapshot_xmin(pg_current_snapshot()) as xmin)
           select here.xmin::text::bigint as "xmin!",
             exists (select from events where xid >= here.xmin) as "is_held_back!",
             e.xid::text::bigint as "xid?", e.id as "id?", e.tenant_id as "tenant_id?", e.node_id as "node_id?",
             e.command_id as "command_id?", e.topic as "topic?", e.body as "body?", e.at as "at?"
           from here left join lateral (
             select * from events
             where (xid, id) > ($1::text::xid8, $2::bigint) and xid < here.xmin
               and ($4::uuid is null or tenant_id = $4) and ($5::uuid is null or node_id = $5)
               and ($6::uuid is null or command_id = $6)
             order by xid, id limit $3
           ) e on true
           order by e.xid, e.id"#,
        cursor.xid.to_string(),
        signed(cursor.id),
        i64::from(limit),
        filter.tenant.map(|id| id.uuid()),
        filter.node.map(|id| id.uuid()),
        filter.command.map(|id| id.uuid()),
    )
    .fetch_all(db)
    .await?;
    let mut page = Page { events: Vec::new(), end: cursor, is_full: false, is_held_back: false };
    for row in rows {
        let number = |column, value| unsigned("events", column, format!("{:?}", row.id), value);
        page.is_held_back = row.is_held_back;
        page.end = page.end.max(Cursor { xid: number("xid", row.xmin)?, id: 0 });
        let (Some(xid), Some(id), Some(tenant), Some(topic), Some(body), Some(at)) =
            (row.xid, row.id, row.tenant_id, row.topic, row.body, row.at)
        else {
            continue;
        };
        let node = row.node_id.map(NodeId::from_uuid);
        let command = row.command_id.map(CommandId::from_uuid);
        page.events.push(Event {
            cursor: Cursor { xid: number("xid", xid)?, id: number("id", id)? },
            tenant: TenantId::from_uuid(tenant),
            node,
            command,
            topic,
            body: with_ids(body, node, command),
            at,
        });
    }
    page.is_full = page.events.len() >= limit as usize;
    if let (true, Some(last)) = (page.is_full, page.events.last()) {
        page.end = last.cursor;
    }
    Ok(page)
}

/// Ids that have a column do not stand in the body as well.
fn with_ids(mut body: Value, node: Option<NodeId>, command: Option<CommandId>) -> Value {
    if let Some(body) = body.as_object_mut() {
        body.extend(node.map(|id| ("nodeId".to_owned(), id.to_string().into())));
        body.extend(command.map(|id| ("commandId".to_owned(), id.to_string().into())));
    }
    body
}
