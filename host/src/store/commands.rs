//! `command_states`: commands, and where they stand, read.
//!
//! **Invariant:** reading never changes a command.

use bc_proto::id::{CommandId, NodeId, TenantId};
use bc_proto::rules::state::State;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::{Error, code, corrupt, signed, unsigned};

/// The most commands on one page.
pub const MAX_PAGE: u32 = 200;

/// A command, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Its id.
    pub id: CommandId,
    /// Its place among the node's commands.
    pub seq: u64,
    /// The node that it is for.
    pub node: NodeId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The kind.
    pub kind: String,
    /// The payload.
    pub payload: Value,
    /// The key that makes a retry find it.
    pub idempotency_key: String,
    /// Where it stands.
    pub state: State,
    /// Why it ended so, as a stable code; empty for success and before the end.
    pub reason: String,
    /// The result exactly as the node stored it; `None` before the end.
    pub result: Option<Vec<u8>>,
    /// Until when it may wait to be accepted.
    pub not_after: OffsetDateTime,
    /// When it was queued.
    pub created_at: OffsetDateTime,
    /// When it ended.
    pub settled_at: Option<OffsetDateTime>,
    /// Since when it is called off.
    pub cancel_requested_at: Option<OffsetDateTime>,
}

/// The command of a tenant with an id.
pub async fn find(db: &mut PgConnection, tenant: TenantId, id: CommandId) -> Result<Option<Command>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id as "id!", seq as "seq!", node_id as "node_id!", tenant_id as "tenant_id!", kind as "kind!",
             payload as "payload!", idempotency_key as "idempotency_key!", state as "state!", reason as "reason!",
             result, not_after as "not_after!", created_at as "created_at!", settled_at, cancel_requested_at
           from command_states where tenant_id = $1 and id = $2"#,
        tenant.uuid(),
        id.uuid(),
    )
    .fetch_optional(db)
    .await?;
    row.map(Command::try_from).transpose()
}

/// A page of a node's commands, newest first: those with a seq below `below` (all for `None`), in one state if it is named.
/// The next page is below the last seq of this one.
pub async fn list(
    db: &mut PgConnection,
    tenant: TenantId,
    node: NodeId,
    state: Option<State>,
    below: Option<u64>,
    limit: u32,
) -> Result<Vec<Command>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id!", seq as "seq!", node_id as "node_id!", tenant_id as "tenant_id!", kind as "kind!",
             payload as "payload!", idempotency_key as "idempotency_key!", state as "state!", reason as "reason!",
             result, not_after as "not_after!", created_at as "created_at!", settled_at, cancel_requested_at
           from command_states
           where tenant_id = $1 and node_id = $2 and seq < $3 and ($4::text is null or state = $4)
           order by seq desc limit $5"#,
        tenant.uuid(),
        node.uuid(),
        signed(below.unwrap_or(u64::MAX)),
        state.map(|state| state.to_string()),
        i64::from(limit.min(MAX_PAGE)),
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Command::try_from).collect()
}

struct Row {
    id: Uuid,
    seq: i64,
    node_id: Uuid,
    tenant_id: Uuid,
    kind: String,
    payload: Value,
    idempotency_key: String,
    state: String,
    reason: String,
    result: Option<Vec<u8>>,
    not_after: OffsetDateTime,
    created_at: OffsetDateTime,
    settled_at: Option<OffsetDateTime>,
    cancel_requested_at: Option<OffsetDateTime>,
}

impl TryFrom<Row> for Command {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let id = CommandId::from_uuid(row.id);
        Ok(Self {
            seq: unsigned("commands", "seq", id, row.seq)?,
            node: NodeId::from_uuid(row.node_id),
            tenant: TenantId::from_uuid(row.tenant_id),
            kind: row.kind,
            payload: row.payload,
            idempotency_key: row.idempotency_key,
            state: code::parse_state(&row.state).ok_or_else(|| corrupt("command_states", "state", id))?,
            reason: row.reason,
            result: row.result,
            not_after: row.not_after,
            created_at: row.created_at,
            settled_at: row.settled_at,
            cancel_requested_at: row.cancel_requested_at,
            id,
        })
    }
}
