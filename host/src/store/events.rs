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
    let rows = sqlx::query!(
        r#"select xid::text::bigint as "xid!", id, tenant_id, node_id, command_id, topic, body, at from events
           where (xid, id) > ($1::text::xid8, $2::bigint) and xid < pg_snapshot_xmin(pg_current_snapshot())
           order by xid, id limit $3"#,
        cursor.xid.to_string(),
        signed(cursor.id),
        i64::from(limit),
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let number = |column, value| unsigned("events", column, row.id, value);
        let node = row.node_id.map(NodeId::from_uuid);
        let mut body = row.body;
        if let Some(body) = body.as_object_mut() {
            body.extend(node.map(|id| ("nodeId".to_owned(), id.to_string().into())));
            let command = row.command_id.map(CommandId::from_uuid);
            body.extend(command.map(|id| ("commandId".to_owned(), id.to_string().into())));
        }
        Ok(Event {
            cursor: Cursor { xid: number("xid", row.xid)?, id: number("id", row.id)? },
            tenant: TenantId::from_uuid(row.tenant_id),
            node,
            topic: row.topic,
            body,
            at: row.at,
        })
    });
    parsed.collect()
}
