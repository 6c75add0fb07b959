//! `log_entries`, `log_nodes`, `log_heads` and `log_position`: the transparency log, and what it is made of.
//!
//! **Invariant:** entries, hashes, head and position are written in one transaction, by whoever holds the log's lock: each event
//! is in the log once, whatever crashes.

use std::collections::BTreeMap;

use bc_proto::audit::{self, Batch, CancelRequested, Decider, Entry, Head, Queued, Settled, Upload};
use bc_proto::id::{BatchId, CommandId, NodeId, TenantId};
use bc_proto::merkle::Hash;
use bc_proto::merkle::stored::Node;
use bc_proto::sign::{Signature, WorkerSignature};
use serde_json::Value;
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::events::Cursor;
use super::{Error, corrupt, signed, unix_ms, unsigned, worker_keys};

/// The key of the advisory lock that makes the writer a singleton; any number that nothing else here uses.
const LOCK: i64 = 0x6c_6f67_6765;

/// The topics that concern a command.
const ABOUT_COMMANDS: [&str; 3] = ["node.command.queued", "node.command.cancel-requested", "command.settled"];

/// Takes the log for this transaction; `false`: another replica has it. The lock goes with the transaction.
pub async fn lock(db: &mut PgTransaction<'_>) -> Result<bool, Error> {
    let is_ours = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "is_ours!""#, LOCK);
    Ok(is_ours.fetch_one(&mut **db).await?)
}

/// How far of the outbox is in the log.
pub async fn position(db: &mut PgConnection) -> Result<Cursor, Error> {
    let row = sqlx::query!(r#"select xid::text::bigint as "xid!", id from log_position"#).fetch_one(db).await?;
    let number = |column, value| unsigned("log_position", column, "the one", value);
    Ok(Cursor::new(number("xid", row.xid)?, number("id", row.id)?))
}

/// The next stretch of the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Its end.
    pub end: Cursor,
    /// Whether there may be more right after it.
    pub is_full: bool,
    /// Whether there are events which an open transaction holds back.
    pub is_held_back: bool,
}

/// The stretch after a cursor, of at most `limit` events. All of it is committed: nothing appears in it later.
pub async fn stretch(db: &mut PgConnection, from: Cursor, limit: u32) -> Result<Stretch, Error> {
    let (xid, id) = from.parts();
    let row = sqlx::query!(
        r#"with here as (select pg_snapshot_xmin(pg_current_snapshot()) as xmin), page as (
             select e.xid, e.id from events e, here
             where (e.xid, e.id) > ($1::text::xid8, $2::bigint) and e.xid < here.xmin
             order by e.xid, e.id limit $3
           )
           select here.xmin::text::bigint as "xmin!", (select count(*) from page) as "count!",
             exists (select from events where xid >= here.xmin) as "is_held_back!",
             last.xid::text::bigint as "xid?", last.id as "id?"
           from here left join (select xid, id from page order by xid desc, id desc limit 1) last on true"#,
        xid.to_string(),
        signed(id),
        i64::from(limit),
    )
    .fetch_one(db)
    .await?;
    let number = |column, value| unsigned("events", column, "the horizon", value);
    let is_full = row.count >= i64::from(limit);
    let end = match (row.xid, row.id) {
        (Some(xid), Some(id)) if is_full => Cursor::new(number("xid", xid)?, number("id", id)?),
        _ => Cursor::new(number("xid", row.xmin)?, 0).max(from),
    };
    Ok(Stretch { end, is_full, is_held_back: row.is_held_back })
}

/// What of a stretch belongs into the log, in its order: the commands of destructive kinds and their ends, and all of batches.
pub async fn facts(db: &mut PgConnection, from: Cursor, to: Cursor) -> Result<Vec<Entry>, Error> {
    let (from, to) = (from.parts(), to.parts());
    let rows = sqlx::query_as!(
        Fact,
        r#"select e.tenant_id, e.node_id, e.command_id, e.topic, e.body as facts, e.at,
             c.incarnation as "incarnation?", c.kind as "kind?", c.kind_digest as "kind_digest?",
             c.payload_hash as "payload_hash?", c.not_after as "not_after?", c.min_generation as "min_generation?",
             c.batch_id as "batch_id?", c.requested_by as "requested_by?", c.signature as "signature?",
             w.certificate as "worker?", c.created_at as "signed_at?",
             c.upload_object as "upload_object?", c.upload_max_bytes as "upload_max_bytes?",
             s.state::text as "state?", s.reason as "reason?", sha256(s.result) as "result_hash?",
             s.reported_at as "reported_at?", s.node_sig as "node_sig?", s.attested_by as "certificate_hash?"
           from events e
           left join commands c on c.id = e.command_id
           left join worker_keys w on w.id = c.worker_key
           left join settled s on e.topic = 'command.settled' and s.node_id = c.node_id and s.seq = c.seq
           where (e.xid, e.id) > ($1::text::xid8, $2::bigint) and (e.xid, e.id) <= ($3::text::xid8, $4::bigint)
             and (e.topic like 'batch.%' or e.topic = any($5)
               and exists (select from kinds k where k.digest = c.kind_digest and 'destructive' = any(k.traits)))
           order by e.xid, e.id"#,
        from.0.to_string(),
        signed(from.1),
        to.0.to_string(),
        signed(to.1),
        &ABOUT_COMMANDS.map(str::to_owned),
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Fact::entry).collect()
}

struct Fact {
    tenant_id: Uuid,
    node_id: Option<Uuid>,
    command_id: Option<Uuid>,
    topic: String,
    facts: Value,
    at: OffsetDateTime,
    incarnation: Option<i64>,
    kind: Option<String>,
    kind_digest: Option<Vec<u8>>,
    payload_hash: Option<Vec<u8>>,
    not_after: Option<OffsetDateTime>,
    min_generation: Option<i64>,
    batch_id: Option<Uuid>,
    requested_by: Option<String>,
    signature: Option<Vec<u8>>,
    worker: Option<Vec<u8>>,
    signed_at: Option<OffsetDateTime>,
    upload_object: Option<String>,
    upload_max_bytes: Option<i64>,
    state: Option<String>,
    reason: Option<String>,
    result_hash: Option<Vec<u8>>,
    reported_at: Option<OffsetDateTime>,
    node_sig: Option<Vec<u8>>,
    certificate_hash: Option<Vec<u8>>,
}

impl Fact {
    fn entry(self) -> Result<Entry, Error> {
        let (tenant, at_ms) = (TenantId::from_uuid(self.tenant_id), unix_ms(self.at));
        let (Some(command), Some(node)) = (self.command_id, self.node_id) else {
            let mut facts = self.facts;
            // What has a field of its own does not stand in the facts as well, except for the batch.
            let mut take = |name: &str| facts.as_object_mut().and_then(|facts| facts.remove(name));
            let approval = take("approval").and_then(|it| serde_json::from_value(it).ok());
            let document_sha256 = take("documentSha256").and_then(|it| it.as_str().map(str::to_owned));
            let batch = facts.get("batchId").and_then(Value::as_str).and_then(|text| text.parse().ok());
            return Ok(Entry::Batch(Batch {
                batch,
                document_sha256,
                approval,
                facts,
                topic: self.topic,
                tenant,
                at_ms,
            }));
        };
        let (command, node) = (CommandId::from_uuid(command), NodeId::from_uuid(node));
        let there = |column| corrupt("commands", column, command);
        Ok(match self.topic.as_str() {
            "node.command.queued" => Entry::CommandQueued(Queued {
                incarnation: number("incarnation", command, self.incarnation)?.ok_or_else(|| there("incarnation"))?,
                kind: self.kind.ok_or_else(|| there("kind"))?,
                kind_digest: self.kind_digest.map(hex::encode).ok_or_else(|| there("kind_digest"))?,
                payload_sha256: self.payload_hash.map(hex::encode).ok_or_else(|| there("payload_hash"))?,
                not_after_ms: self.not_after.map(unix_ms).ok_or_else(|| there("not_after"))?,
                min_generation: number("min_generation", command, self.min_generation)?,
                batch: self.batch_id.map(BatchId::from_uuid),
                requested_by: self.requested_by,
                upload: match (self.upload_object, number("upload_max_bytes", command, self.upload_max_bytes)?) {
                    (Some(object), Some(max_bytes)) => Some(Box::new(Upload { object, max_bytes })),
                    _ => None,
                },
                signature: worker_keys::stored("commands", command, self.signature, self.worker, self.signed_at)?,
                tenant,
                command,
                node,
                at_ms,
            }),
            "command.settled" => {
                // The row of a command that was dropped with its partition says nothing more; the event still does.
                let said = |name: &str| self.facts.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let wrong = |_| corrupt("settled", "node_sig", command);
                Entry::CommandSettled(Settled {
                    state: self.state.unwrap_or_else(|| said("state")),
                    reason: self.reason.unwrap_or_else(|| said("reason")),
                    result_sha256: self.result_hash.map(hex::encode),
                    decided_by: if self.reported_at.is_some() { Decider::Node } else { Decider::ControlPlane },
                    node_sig: self.node_sig.map(|it| Signature::from_slice(&it)).transpose().map_err(wrong)?,
                    node_certificate_sha256: self.certificate_hash.map(hex::encode),
                    tenant,
                    command,
                    node,
                    at_ms,
                })
            }
            _ => Entry::CancelRequested(CancelRequested { tenant, command, node, at_ms }),
        })
    }
}

fn number(column: &'static str, command: CommandId, value: Option<i64>) -> Result<Option<u64>, Error> {
    value.map(|value| unsigned("commands", column, command, value)).transpose()
}

fn read(signature: Value) -> Option<WorkerSignature> {
    serde_json::from_value(signature).ok()
}

/// The newest head; of one size the signed one. `None`: the log is empty.
pub async fn head(db: &mut PgConnection) -> Result<Option<Head>, Error> {
    let row = sqlx::query!("select size, root, signature from log_heads order by size desc, is_signed desc limit 1");
    let Some(row) = row.fetch_optional(db).await? else { return Ok(None) };
    let wrong = |column| corrupt("log_heads", column, row.size);
    let signature = row.signature.map(|it| read(it).ok_or_else(|| wrong("signature"))).transpose()?;
    let size = unsigned("log_heads", "size", row.size, row.size)?;
    Ok(Some(Head { size, root: hex::encode(row.root), signature }))
}

/// The hashes of complete subtrees, those that are there.
pub async fn nodes(
    db: &mut PgConnection,
    nodes: impl IntoIterator<Item = Node>,
) -> Result<BTreeMap<Node, Hash>, Error> {
    let mut leaves: Vec<i64> = Vec::new();
    let (mut levels, mut indices): (Vec<i16>, Vec<i64>) = (Vec::new(), Vec::new());
    for Node { level, index } in nodes {
        if level == 0 {
            leaves.push(signed(index));
        } else {
            levels.push(i16::try_from(level).unwrap_or(i16::MAX));
            indices.push(signed(index));
        }
    }
    let rows = sqlx::query!(
        r#"select 0::smallint as "level!", e.index as "index!", e.leaf_hash as "hash!"
           from log_entries e where e.index = any($1)
           union all
           select n.level, n.index, n.hash
           from unnest($2::smallint[], $3::bigint[]) as a (level, index)
           join log_nodes n on n.level = a.level and n.index = a.index"#,
        &leaves,
        &levels,
        &indices,
    )
    .fetch_all(db)
    .await?;
    let mut found = BTreeMap::new();
    for row in rows {
        let wrong = || corrupt("log_nodes", "hash", format!("{} at {}", row.index, row.level));
        let level = u32::try_from(row.level).map_err(|_| wrong())?;
        let index = unsigned("log_nodes", "index", row.index, row.index)?;
        found.insert(Node { level, index }, row.hash.try_into().map_err(|_| wrong())?);
    }
    Ok(found)
}

/// What one step adds.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// The place of the first entry.
    pub from: u64,
    /// The entries, each with its leaf and the leaf's hash.
    pub entries: Vec<(Entry, Vec<u8>, Hash)>,
    /// The subtrees that they complete, leaves aside.
    pub nodes: Vec<(Node, Hash)>,
}

/// Adds entries and hashes.
pub async fn grow(db: &mut PgConnection, growth: Growth, now: OffsetDateTime) -> Result<(), Error> {
    let (mut tenants, mut commands, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bodies, mut leaf_hashes) = (Vec::new(), Vec::new());
    for (entry, body, hash) in growth.entries {
        tenants.push(entry.tenant().uuid());
        commands.push(entry.command().map(|it| it.uuid()));
        batches.push(entry.batch().map(|it| it.uuid()));
        bodies.push(body);
        leaf_hashes.push(hash.to_vec());
    }
    sqlx::query!(
        "insert into log_entries (index, tenant_id, command_id, batch_id, body, leaf_hash, at)
         select $1 + place - 1, tenant_id, command_id, batch_id, body, leaf_hash, $7
         from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::bytea[], $6::bytea[])
             with ordinality as a (tenant_id, command_id, batch_id, body, leaf_hash, place)",
        signed(growth.from),
        &tenants,
        &commands as &[Option<Uuid>],
        &batches as &[Option<Uuid>],
        &bodies,
        &leaf_hashes,
        now,
    )
    .execute(&mut *db)
    .await?;
    let (mut levels, mut indices, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
    for (node, hash) in growth.nodes {
        levels.push(i16::try_from(node.level).unwrap_or(i16::MAX));
        indices.push(signed(node.index));
        hashes.push(hash.to_vec());
    }
    sqlx::query!(
        "insert into log_nodes (level, index, hash) select * from unnest($1::smallint[], $2::bigint[], $3::bytea[])",
        &levels,
        &indices,
        &hashes,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Adds a head.
pub async fn add_head(db: &mut PgConnection, head: &Head, now: OffsetDateTime) -> Result<(), Error> {
    let root = audit::hash(&head.root).ok_or_else(|| corrupt("log_heads", "root", head.size))?;
    let signature = head.signature.map(|it| serde_json::to_value(it).expect("a signature is JSON"));
    sqlx::query!(
        "insert into log_heads (size, is_signed, root, signature, at) values ($1, $2, $3, $4, $5)",
        signed(head.size),
        head.signature.is_some(),
        &root,
        signature,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Says how far of the outbox is in the log.
pub async fn advance(db: &mut PgConnection, to: Cursor) -> Result<(), Error> {
    let (xid, id) = to.parts();
    sqlx::query!("update log_position set xid = $1::text::xid8, id = $2", xid.to_string(), signed(id))
        .execute(db)
        .await?;
    Ok(())
}

/// An entry as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its place.
    pub index: u64,
    /// Whose it is.
    pub tenant: TenantId,
    /// The leaf.
    pub body: Vec<u8>,
    /// The leaf's hash.
    pub leaf_hash: Vec<u8>,
}

struct Row {
    index: i64,
    tenant_id: Uuid,
    body: Vec<u8>,
    leaf_hash: Vec<u8>,
}

impl TryFrom<Row> for Kept {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let index = unsigned("log_entries", "index", row.index, row.index)?;
        Ok(Self { index, tenant: TenantId::from_uuid(row.tenant_id), body: row.body, leaf_hash: row.leaf_hash })
    }
}

/// The entries from a place on, at most so many.
pub async fn entries(db: &mut PgConnection, from: u64, limit: u32) -> Result<Vec<Kept>, Error> {
    let rows = sqlx::query_as!(
        Row,
        "select index, tenant_id, body, leaf_hash from log_entries where index >= $1 order by index limit $2",
        signed(from),
        i64::from(limit),
    );
    rows.fetch_all(db).await?.into_iter().map(Kept::try_from).collect()
}

/// The entries of a tenant about a command, among the first `size`; with those about its batch, if `with_batch`.
pub async fn about(
    db: &mut PgConnection,
    tenant: TenantId,
    command: CommandId,
    size: u64,
    with_batch: bool,
) -> Result<Vec<Kept>, Error> {
    let rows = sqlx::query_as!(
        Row,
        "select index, tenant_id, body, leaf_hash from log_entries
         where tenant_id = $1 and index < $3
           and (command_id = $2
             or $4 and command_id is null and batch_id = any(array(
                 select batch_id from log_entries where command_id = $2 and tenant_id = $1 and batch_id is not null)))
         order by index",
        tenant.uuid(),
        command.uuid(),
        signed(size),
        with_batch,
    );
    rows.fetch_all(db).await?.into_iter().map(Kept::try_from).collect()
}

/// The place of a command's leaf in its batch: its index, whether it names the payload, and its proof. Of several that allow it
/// the one that names most.
pub async fn leaf(db: &mut PgConnection, order: &Queued) -> Result<Option<(u64, bool, Vec<u8>)>, Error> {
    let row = sqlx::query!(
        r#"select index, payload_sha256 is not null as "binds_payload!", proof from batch_leaves
           where batch_id = $1 and subject = $2 and kind = $3
             and (payload_sha256 is null or encode(payload_sha256, 'hex') = $4)
           order by payload_sha256 is null, index limit 1"#,
        order.batch.map(|it| it.uuid()),
        order.node.to_string(),
        order.kind,
        order.payload_sha256,
    );
    let Some(row) = row.fetch_optional(db).await? else { return Ok(None) };
    let index = unsigned("batch_leaves", "index", order.command, i64::from(row.index))?;
    Ok(Some((index, row.binds_payload, row.proof)))
}

/// The certificate of a node, DER, by its SHA-256.
pub async fn certificate(db: &mut PgConnection, fingerprint: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let found = sqlx::query_scalar!("select certificate from node_certificates where fingerprint = $1", fingerprint);
    Ok(found.fetch_optional(db).await?)
}
