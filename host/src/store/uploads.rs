//! What commands upload.
//!
//! **Invariant:** where a file goes is what was signed with its command, and never changes.

use bc_proto::id::{CommandId, NodeId, TenantId};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::{Error, signed, unsigned};
use crate::bundles::Destination;

/// The most bundles on one page: the store is asked about each.
pub const MAX_PAGE: u32 = 50;

/// A node's command, as far as its upload goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Where its file goes; `None` where it uploads nothing.
    pub destination: Option<Destination>,
    /// Whether the node has it and it is not over.
    pub is_in_flight: bool,
    /// Until when it may wait to be accepted.
    pub not_after: OffsetDateTime,
}

/// What a node's command uploads; `None`: the node has no such command.
pub async fn find(db: &mut PgConnection, node: NodeId, command: CommandId) -> Result<Option<Upload>, Error> {
    let row = sqlx::query!(
        r#"select c.upload_object, c.upload_max_bytes, c.not_after,
                  exists (select from in_flight f where f.node_id = c.node_id and f.seq = c.seq) as "is_in_flight!"
           from commands c where c.id = $1 and c.node_id is not distinct from $2"#,
        command.uuid(),
        node.uuid(),
    )
    .fetch_optional(db)
    .await?;
    row.map(|row| {
        Ok(Upload {
            destination: destination(command, row.upload_object, row.upload_max_bytes)?,
            is_in_flight: row.is_in_flight,
            not_after: row.not_after,
        })
    })
    .transpose()
}

fn destination(
    command: CommandId,
    object: Option<String>,
    max_bytes: Option<i64>,
) -> Result<Option<Destination>, Error> {
    let Some((object, max_bytes)) = object.zip(max_bytes) else { return Ok(None) };
    Ok(Some(Destination { object, max_bytes: unsigned("commands", "upload_max_bytes", command, max_bytes)? }))
}

/// A command with a bundle, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The command.
    pub command: CommandId,
    /// Its place among the node's commands.
    pub seq: u64,
    /// The kind.
    pub kind: String,
    /// The key that makes a retry find it.
    pub idempotency_key: String,
    /// The command's state.
    pub state: String,
    /// Its result exactly as the node stored it; `None` before the end.
    pub result: Option<Vec<u8>>,
    /// When it was queued.
    pub created_at: OffsetDateTime,
    /// The most bytes of its bundle.
    pub max_bytes: u64,
}

/// A page of a node's commands that upload something, newest first: those with a seq below `below`, all for `None`.
pub async fn list(
    db: &mut PgConnection,
    tenant: TenantId,
    node: NodeId,
    below: Option<u64>,
    limit: u32,
) -> Result<Vec<Bundle>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select c.id, c.seq, c.kind, c.idempotency_key, c.created_at, c.upload_max_bytes as "max_bytes!",
                  s.state as "state!", s.result
           from (
               select * from commands
               where tenant_id = $1 and node_id = $2 and upload_object is not null and seq < $3
               order by seq desc limit $4
           ) c
           cross join lateral (
               select state, result from command_states s where s.node_id = c.node_id and s.seq = c.seq offset 0
           ) s
           order by c.seq desc"#,
        tenant.uuid(),
        node.uuid(),
        signed(below.unwrap_or(u64::MAX)),
        i64::from(limit),
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Bundle::try_from).collect()
}

/// One of them; `None`: the tenant's node has no such command, or it uploads nothing.
pub async fn get(
    db: &mut PgConnection,
    tenant: TenantId,
    node: NodeId,
    command: CommandId,
) -> Result<Option<Bundle>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select c.id, c.seq, c.kind, c.idempotency_key, c.created_at, c.upload_max_bytes as "max_bytes!",
                  s.state as "state!", s.result
           from commands c
           cross join lateral (
               select state, result from command_states s where s.node_id = c.node_id and s.seq = c.seq offset 0
           ) s
           where c.id = $3 and c.tenant_id is not distinct from $1 and c.node_id is not distinct from $2
             and c.upload_object is not null"#,
        tenant.uuid(),
        node.uuid(),
        command.uuid(),
    )
    .fetch_optional(db)
    .await?;
    row.map(Bundle::try_from).transpose()
}

struct Row {
    id: Uuid,
    seq: i64,
    kind: String,
    idempotency_key: String,
    created_at: OffsetDateTime,
    max_bytes: i64,
    state: String,
    result: Option<Vec<u8>>,
}

impl TryFrom<Row> for Bundle {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let command = CommandId::from_uuid(row.id);
        Ok(Self {
            seq: unsigned("commands", "seq", command, row.seq)?,
            max_bytes: unsigned("commands", "upload_max_bytes", command, row.max_bytes)?,
            kind: row.kind,
            idempotency_key: row.idempotency_key,
            state: row.state,
            result: row.result,
            created_at: row.created_at,
            command,
        })
    }
}
