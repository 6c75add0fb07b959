//! `command_states`: commands, and where they stand, read.
//!
//! **Invariant:** reading never changes a command, and costs the same however many of them are over.

use bc_proto::id::{BatchId, CommandId, NodeId, TenantId};
use bc_proto::manifest::Role;
use bc_proto::rules::state::State;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::kinds::Digest;
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
    /// The batch that it belongs to.
    pub batch: Option<BatchId>,
    /// Whether it is held until the batch has its approvals.
    pub is_held: bool,
    /// Who asked for it; `None` for one from before that was written down.
    pub requested_by: Option<String>,
    /// The kind.
    pub kind: String,
    /// SHA-256 of the kind's component.
    pub kind_digest: Vec<u8>,
    /// `control`, `provision` or `bulk`.
    pub lane: String,
    /// The kind's traits, as words.
    pub traits: Vec<String>,
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
    /// When it may be sent at the earliest; `None` for at once, and while it is held back.
    pub not_before: Option<OffsetDateTime>,
    /// When it was first sent.
    pub dispatched_at: Option<OffsetDateTime>,
    /// When it ended.
    pub settled_at: Option<OffsetDateTime>,
    /// The node's own time of its end.
    pub reported_at: Option<OffsetDateTime>,
    /// Since when it is called off.
    pub cancel_requested_at: Option<OffsetDateTime>,
    /// Whether it uploads a support bundle.
    pub has_upload: bool,
}

/// What decides whether a node gets a command, as one statement sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Prospect {
    /// What the node is now.
    pub role: Role,
    /// The only kinds that the node's certificate allows; `None` for all.
    pub allowed_kinds: Option<Vec<String>>,
    /// The command that the key already means.
    pub existing: Option<Existing>,
    /// The active component of the kind, and whether an operator exposed it.
    pub kind: Option<(Digest, bool)>,
}

/// The command of a key.
#[derive(Debug, Clone, PartialEq)]
pub struct Existing {
    /// Its id.
    pub id: CommandId,
    /// Its kind.
    pub kind: String,
    /// SHA-256 of its payload's canonical JSON.
    pub payload_hash: Vec<u8>,
    /// The batch that it belongs to.
    pub batch: Option<BatchId>,
}

/// What stands for and against a new command; `None`: the tenant has no such node.
pub async fn prospect(
    db: &mut PgConnection,
    tenant: TenantId,
    node: NodeId,
    idempotency_key: &str,
    kind: &str,
) -> Result<Option<Prospect>, Error> {
    let row = sqlx::query!(
        r#"select n.role::text as "role!", cert.allowed_kinds as "allowed_kinds?",
               c.id as "id?", c.kind as "kind?", c.payload_hash as "payload_hash?", c.batch_id as "batch_id?",
               k.digest as "digest?", k.exposed as "exposed?"
           from nodes n
           left join commands c on c.node_id = n.id and c.idempotency_key = $3
           left join kinds k on k.name = $4 and k.status = 'active'
           left join lateral (
               select allowed_kinds from node_certificates
               where node_id = n.id and incarnation = n.incarnation and revoked_at is null
               order by not_before desc, fingerprint limit 1
           ) cert on true
           where n.id = $2 and n.tenant_id = $1 and n.deleted_at is null"#,
        tenant.uuid(),
        node.uuid(),
        idempotency_key,
        kind,
    )
    .fetch_optional(db)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let existing = match (row.id, row.kind, row.payload_hash) {
        (Some(id), Some(kind), Some(payload_hash)) => Some(Existing {
            id: CommandId::from_uuid(id),
            kind,
            payload_hash,
            batch: row.batch_id.map(BatchId::from_uuid),
        }),
        _ => None,
    };
    let kind = match (row.digest, row.exposed) {
        (Some(digest), Some(exposed)) => {
            Some((digest.try_into().map_err(|_| corrupt("kinds", "digest", kind))?, exposed))
        }
        _ => None,
    };
    Ok(Some(Prospect {
        role: code::parse_role(&row.role).ok_or_else(|| corrupt("nodes", "role", node))?,
        allowed_kinds: row.allowed_kinds,
        existing,
        kind,
    }))
}

/// Whether the tenant has, or had, a node.
pub async fn had_node(db: &mut PgConnection, tenant: TenantId, node: NodeId) -> Result<bool, Error> {
    let query = sqlx::query_scalar!(
        r#"select exists (select from nodes where id = $2 and tenant_id = $1) as "exists!""#,
        tenant.uuid(),
        node.uuid(),
    );
    Ok(query.fetch_one(db).await?)
}

/// Whether a node has a destructive command that is not over.
pub async fn has_destructive(db: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    let found = sqlx::query_scalar!(
        r#"with open as (
             select node_id, seq from ready where node_id = $1 union all select node_id, seq from in_flight where node_id = $1
           )
           select exists (
             select from open o
             join commands c on c.node_id = o.node_id and c.seq = o.seq
             join kinds k on k.digest = c.kind_digest
             where 'destructive' = any(k.traits)
           ) as "exists!""#,
        node.uuid(),
    );
    Ok(found.fetch_one(db).await?)
}

/// The command of a tenant with an id.
pub async fn find(db: &mut PgConnection, tenant: TenantId, id: CommandId) -> Result<Option<Command>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id as "id!", seq as "seq!", node_id as "node_id!", tenant_id as "tenant_id!", kind as "kind!",
             kind_digest as "kind_digest!", c.lane::text as "lane!",
             (select traits from kinds k where k.digest = c.kind_digest) as traits,
             payload as "payload!", idempotency_key as "idempotency_key!", state as "state!", reason as "reason!",
             result, not_after as "not_after!", created_at as "created_at!", settled_at, cancel_requested_at,
             case when not_before < 'infinity' then not_before end as not_before, dispatched_at, reported_at,
             (select batch_id from commands b where b.node_id = c.node_id and b.seq = c.seq) as batch_id,
             (select requested_by from commands b where b.node_id = c.node_id and b.seq = c.seq) as requested_by,
             (select upload_object is not null from commands b where b.node_id = c.node_id and b.seq = c.seq)
               as "has_upload!",
             coalesce(not_before = 'infinity', false) as "is_held!"
           from command_states c where tenant_id = $1 and id = $2"#,
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
    let word = state.map(|state| state.to_string());
    let terminal = state.filter(|state| state.is_terminal()).map(|state| state.to_string());
    // Where a command stands is which table its row is in, so each state has its own way to the newest seqs. The branches of
    // other states are not even begun: their conditions do not depend on a row.
    let rows = sqlx::query_as!(
        Row,
        r#"with page as (
             (select seq from commands where $4::text is null and node_id = $2 and seq < $3
              order by seq desc limit $5)
             union all
             (select r.seq from unnest(enum_range(null::lane)) as of (lane)
              cross join lateral (
                  select seq from ready where node_id = $2 and lane = of.lane and seq < $3 order by seq desc limit $5) r
              where $4 = 'pending' order by r.seq desc limit $5)
             union all
             (select seq from in_flight
              where $4 in ('dispatched', 'acked', 'running') and node_id = $2 and seq < $3 and state::text = $4
              order by seq desc limit $5)
             union all
             (select seq from settled
              where $6 = 'succeeded' and node_id = $2 and seq < $3 and state = 'succeeded'
              order by seq desc limit $5)
             union all
             (select seq from settled
              where $6 <> 'succeeded' and node_id = $2 and seq < $3 and state <> 'succeeded'
                and state = $6::text::terminal_state
              order by seq desc limit $5)
           )
           select id as "id!", c.seq as "seq!", node_id as "node_id!", tenant_id as "tenant_id!", kind as "kind!",
             kind_digest as "kind_digest!", c.lane::text as "lane!",
             (select traits from kinds k where k.digest = c.kind_digest) as traits,
             payload as "payload!", idempotency_key as "idempotency_key!", state as "state!", reason as "reason!",
             result, not_after as "not_after!", created_at as "created_at!", settled_at, cancel_requested_at,
             case when not_before < 'infinity' then not_before end as not_before, dispatched_at, reported_at,
             (select batch_id from commands b where b.node_id = c.node_id and b.seq = c.seq) as batch_id,
             (select requested_by from commands b where b.node_id = c.node_id and b.seq = c.seq) as requested_by,
             (select upload_object is not null from commands b where b.node_id = c.node_id and b.seq = c.seq)
               as "has_upload!",
             coalesce(not_before = 'infinity', false) as "is_held!"
           from (select seq from page order by seq desc limit $5) p
           cross join lateral (
               select * from command_states s where s.node_id = $2 and s.seq = p.seq and s.tenant_id = $1 offset 0) c
           where $4::text is null or state = $4
           order by c.seq desc"#,
        tenant.uuid(),
        node.uuid(),
        signed(below.unwrap_or(u64::MAX)),
        word,
        i64::from(limit),
        terminal,
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Command::try_from).collect()
}

/// The tenant's commands with these ids, in their order.
pub async fn of_ids(db: &mut PgConnection, tenant: TenantId, ids: &[CommandId]) -> Result<Vec<Command>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(CommandId::uuid).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"select c.id as "id!", c.seq as "seq!", node_id as "node_id!", tenant_id as "tenant_id!", kind as "kind!",
             kind_digest as "kind_digest!", c.lane::text as "lane!",
             (select traits from kinds k where k.digest = c.kind_digest) as traits,
             payload as "payload!", idempotency_key as "idempotency_key!", state as "state!", reason as "reason!",
             result, not_after as "not_after!", created_at as "created_at!", settled_at, cancel_requested_at,
             case when not_before < 'infinity' then not_before end as not_before, dispatched_at, reported_at,
             (select batch_id from commands b where b.node_id = c.node_id and b.seq = c.seq) as batch_id,
             (select requested_by from commands b where b.node_id = c.node_id and b.seq = c.seq) as requested_by,
             (select upload_object is not null from commands b where b.node_id = c.node_id and b.seq = c.seq)
               as "has_upload!",
             coalesce(not_before = 'infinity', false) as "is_held!"
           from unnest($2::uuid[]) with ordinality wanted (id, place)
           cross join lateral (
               select * from command_states s where s.id = wanted.id and s.tenant_id = $1 offset 0) c
           order by wanted.place"#,
        tenant.uuid(),
        &ids,
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
    kind_digest: Vec<u8>,
    lane: String,
    traits: Option<Vec<String>>,
    payload: Value,
    idempotency_key: String,
    state: String,
    reason: String,
    result: Option<Vec<u8>>,
    not_after: OffsetDateTime,
    created_at: OffsetDateTime,
    settled_at: Option<OffsetDateTime>,
    cancel_requested_at: Option<OffsetDateTime>,
    not_before: Option<OffsetDateTime>,
    dispatched_at: Option<OffsetDateTime>,
    reported_at: Option<OffsetDateTime>,
    batch_id: Option<Uuid>,
    is_held: bool,
    requested_by: Option<String>,
    has_upload: bool,
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
            kind_digest: row.kind_digest,
            lane: row.lane,
            traits: row.traits.ok_or_else(|| corrupt("commands", "kind_digest", id))?,
            payload: row.payload,
            idempotency_key: row.idempotency_key,
            state: code::parse_state(&row.state).ok_or_else(|| corrupt("command_states", "state", id))?,
            reason: row.reason,
            result: row.result,
            not_after: row.not_after,
            created_at: row.created_at,
            not_before: row.not_before,
            dispatched_at: row.dispatched_at,
            settled_at: row.settled_at,
            reported_at: row.reported_at,
            cancel_requested_at: row.cancel_requested_at,
            batch: row.batch_id.map(BatchId::from_uuid),
            is_held: row.is_held,
            requested_by: row.requested_by,
            has_upload: row.has_upload,
            id,
        })
    }
}
