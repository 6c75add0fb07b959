//! `batches`, `batch_leaves` and `batch_approvals`: what people approve together.
//!
//! **Invariant:** a document and its scope never change once they are written. Whoever decides on a batch, or by its state, holds
//! its row: commands join it under a share lock, approvals and ends take it for themselves, so neither misses the other.

use std::collections::{BTreeMap, HashSet};

use bc_proto::batch::{Approval, Document, Leaf};
use bc_proto::canonical;
use bc_proto::id::{BatchId, NodeId, TenantId};
use bc_proto::merkle::Tree;
use bc_proto::sign::{PublicKey, Signature};
use serde_json::{Value, json};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::{Error, corrupt, signed, unsigned};

/// The most batches on one page.
pub const MAX_PAGE: u32 = 200;

/// Where a batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    /// Its approvals are missing, or none are asked for.
    Open,
    /// The quorum was met.
    Approved,
    /// Somebody who may approve said no.
    Rejected,
    /// Its time is over.
    Expired,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What is signed.
    pub document: Document,
    /// Where it stands.
    pub state: State,
    /// Until when its commands may be accepted.
    pub expires_at: OffsetDateTime,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it was rejected or expired.
    pub closed_at: Option<OffsetDateTime>,
    /// Who rejected it, and why.
    pub rejection: Option<(String, String)>,
}

/// An approval that was verified when it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The approver's name at that time.
    pub name: String,
    /// The approval.
    pub approval: Approval,
}

/// A batch to write.
#[derive(Debug)]
pub struct NewBatch<'a> {
    /// The document.
    pub document: &'a Document,
    /// Unique per tenant.
    pub idempotency_key: &'a str,
    /// What it allows, in the tree's order.
    pub scope: &'a [Leaf],
    /// The tree of the scope.
    pub tree: &'a Tree,
}

/// Writes a batch, with its event; `false`: the tenant's key means a batch already.
pub async fn insert(db: &mut PgConnection, new: NewBatch<'_>, now: OffsetDateTime) -> Result<bool, Error> {
    let document = new.document;
    let mut leaves = Leaves::of(new.scope);
    leaves.proofs = (0..document.size).map(|index| new.tree.prove(index).unwrap_or_default()).collect();
    let body = json!({
        "batchId": document.batch_id.to_string(), "requestedBy": document.requested_by, "reason": document.reason,
        "size": document.size, "documentSha256": sha256(document),
    });
    let written = sqlx::query_scalar!(
        r#"with fresh as (
             insert into batches (id, tenant_id, idempotency_key, requested_by, document, state, created_at, expires_at)
             values ($1, $2, $3, $4, $5, 'open', $6, $7)
             on conflict (tenant_id, idempotency_key) do nothing
             returning id, tenant_id
           ), said as (
             insert into events (tenant_id, topic, body, at) select tenant_id, 'batch.created', $8, $13 from fresh
           ), scope as (
             insert into batch_leaves (batch_id, index, subject, kind, payload_sha256, proof)
             select f.id, a.position - 1, a.subject, a.kind, a.payload_sha256, a.proof
             from fresh f, unnest($9::text[], $10::text[], $11::bytea[], $12::bytea[])
               with ordinality as a (subject, kind, payload_sha256, proof, position)
           )
           select count(*) as "count!" from fresh"#,
        document.batch_id.uuid(),
        document.tenant_id.uuid(),
        new.idempotency_key,
        document.requested_by,
        canonical::to_vec(document).expect("text and whole numbers are JSON"),
        at_ms(document.created_at_ms),
        at_ms(document.expires_at_ms),
        body,
        &leaves.subjects,
        &leaves.kinds,
        &leaves.hashes as &[Option<Vec<u8>>],
        &leaves.proofs,
        now,
    )
    .fetch_one(db)
    .await?;
    Ok(written > 0)
}

/// SHA-256 of a document's canonical JSON, as events and the log name it: 64 hexadecimal digits.
fn sha256(document: &Document) -> String {
    canonical::sha256_hex(&canonical::to_vec(document).expect("text and whole numbers are JSON"))
}

/// A time that was a whole number of milliseconds, as the database keeps it.
pub(crate) fn at_ms(ms: u64) -> OffsetDateTime {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000);
    at.unwrap_or(time::PrimitiveDateTime::MAX.assume_utc())
}

/// A scope, column by column, as UNNEST takes it.
#[derive(Default)]
struct Leaves {
    subjects: Vec<String>,
    kinds: Vec<String>,
    hashes: Vec<Option<Vec<u8>>>,
    proofs: Vec<Vec<u8>>,
}

impl Leaves {
    fn of(scope: &[Leaf]) -> Self {
        let mut leaves = Self::default();
        for leaf in scope {
            leaves.subjects.push(leaf.subject.clone());
            leaves.kinds.push(leaf.kind.clone());
            leaves.hashes.push(leaf.payload_sha256.as_deref().and_then(|text| hex::decode(text).ok()));
        }
        leaves
    }
}

struct Row {
    id: Uuid,
    document: Vec<u8>,
    state: String,
    expires_at: OffsetDateTime,
    created_at: OffsetDateTime,
    closed_at: Option<OffsetDateTime>,
    rejected_by: Option<String>,
    rejection: Option<String>,
}

impl TryFrom<Row> for Batch {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let id = BatchId::from_uuid(row.id);
        Ok(Self {
            document: serde_json::from_slice(&row.document).map_err(|_| corrupt("batches", "document", id))?,
            state: row.state.parse().map_err(|_| corrupt("batches", "state", id))?,
            expires_at: row.expires_at,
            created_at: row.created_at,
            closed_at: row.closed_at,
            rejection: row.rejected_by.zip(row.rejection),
        })
    }
}

/// The batch of a tenant with an id.
pub async fn find(db: &mut PgConnection, tenant: TenantId, id: BatchId) -> Result<Option<Batch>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, document, state::text as "state!", expires_at, created_at, closed_at, rejected_by, rejection
           from batches where tenant_id = $1 and id = $2"#,
        tenant.uuid(),
        id.uuid(),
    );
    row.fetch_optional(db).await?.map(Batch::try_from).transpose()
}

/// The batch that a tenant's key means.
pub async fn find_by_key(db: &mut PgConnection, tenant: TenantId, key: &str) -> Result<Option<Batch>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, document, state::text as "state!", expires_at, created_at, closed_at, rejected_by, rejection
           from batches where tenant_id = $1 and idempotency_key = $2"#,
        tenant.uuid(),
        key,
    );
    row.fetch_optional(db).await?.map(Batch::try_from).transpose()
}

/// A page of a tenant's batches, newest first: those older than `below`, in one state if it is named.
pub async fn list(
    db: &mut PgConnection,
    tenant: TenantId,
    state: Option<State>,
    below: Option<BatchId>,
    limit: u32,
) -> Result<Vec<Batch>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id, document, state::text as "state!", expires_at, created_at, closed_at, rejected_by, rejection
           from batches
           where tenant_id = $1 and ($2::text is null or state::text = $2) and ($3::uuid is null or id < $3)
           order by id desc limit $4"#,
        tenant.uuid(),
        state.map(|state| state.to_string()),
        below.map(|id| id.uuid()),
        i64::from(limit),
    );
    rows.fetch_all(db).await?.into_iter().map(Batch::try_from).collect()
}

/// A batch, for a decision on it: nobody else decides until the transaction ends, and no command joins it.
pub async fn lock(db: &mut PgConnection, tenant: TenantId, id: BatchId) -> Result<Option<Batch>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, document, state::text as "state!", expires_at, created_at, closed_at, rejected_by, rejection
           from batches where tenant_id = $1 and id = $2 for no key update"#,
        tenant.uuid(),
        id.uuid(),
    );
    row.fetch_optional(db).await?.map(Batch::try_from).transpose()
}

/// Batches, for commands that join them: no decision is made on them until the transaction ends.
pub async fn lock_to_join(db: &mut PgConnection, ids: &[BatchId]) -> Result<BTreeMap<BatchId, Batch>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(BatchId::uuid).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"select id, document, state::text as "state!", expires_at, created_at, closed_at, rejected_by, rejection
           from batches where id = any($1) order by id for share"#,
        &ids,
    );
    let rows = rows.fetch_all(db).await?;
    rows.into_iter().map(|row| Ok((BatchId::from_uuid(row.id), Batch::try_from(row)?))).collect()
}

/// Batches whose time is over and that nobody ended yet, each locked for a decision; those that somebody decides on are left out.
pub async fn lock_due(db: &mut PgConnection, now: OffsetDateTime, limit: u32) -> Result<Vec<Batch>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id, document, state::text as "state!", expires_at, created_at, closed_at, rejected_by, rejection
           from batches where closed_at is null and expires_at <= $1
           order by expires_at limit $2 for no key update skip locked"#,
        now,
        i64::from(limit),
    );
    rows.fetch_all(db).await?.into_iter().map(Batch::try_from).collect()
}

/// Notes that the quorum is met.
pub async fn approve(db: &mut PgConnection, id: BatchId) -> Result<(), Error> {
    sqlx::query!("update batches set state = 'approved' where id = $1", id.uuid()).execute(db).await?;
    Ok(())
}

/// Ends a batch; `rejection` is who and why, absent where its time is over.
pub async fn close(
    db: &mut PgConnection,
    id: BatchId,
    rejection: Option<(&str, &str)>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "update batches set state = case when $2::text is null then 'expired' else 'rejected' end::batch_state,
                rejected_by = $2, rejection = $3, closed_at = $4
         where id = $1",
        id.uuid(),
        rejection.map(|(by, _)| by),
        rejection.map(|(_, why)| why),
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Tells those who watch what became of a batch.
pub async fn say(
    db: &mut PgConnection,
    batch: &Document,
    topic: &str,
    mut body: Value,
    now: OffsetDateTime,
) -> Result<(), Error> {
    body["batchId"] = batch.batch_id.to_string().into();
    body["documentSha256"] = sha256(batch).into();
    sqlx::query!(
        "insert into events (tenant_id, topic, body, at) values ($1, $2, $3, $4)",
        batch.tenant_id.uuid(),
        topic,
        body,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// What a batch allows, in its order.
pub async fn scope(db: &mut PgConnection, id: BatchId) -> Result<Vec<Leaf>, Error> {
    let rows = sqlx::query!(
        "select subject, kind, payload_sha256 from batch_leaves where batch_id = $1 order by index",
        id.uuid(),
    );
    let leaf = |hash: Option<Vec<u8>>, subject, kind| Leaf { subject, kind, payload_sha256: hash.map(hex::encode) };
    Ok(rows.fetch_all(db).await?.into_iter().map(|row| leaf(row.payload_sha256, row.subject, row.kind)).collect())
}

/// The approvals of batches, in the order of their names.
pub async fn approvals(db: &mut PgConnection, ids: &[BatchId]) -> Result<BTreeMap<BatchId, Vec<Received>>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(BatchId::uuid).collect();
    let rows = sqlx::query!(
        "select batch_id, approver, name, approved_at_ms, expires_at_ms, signature from batch_approvals
         where batch_id = any($1) order by batch_id, name, approver",
        &ids,
    )
    .fetch_all(db)
    .await?;
    let mut of: BTreeMap<BatchId, Vec<Received>> = BTreeMap::new();
    for row in rows {
        let id = BatchId::from_uuid(row.batch_id);
        let approval = approval(id, &row.approver, row.approved_at_ms, row.expires_at_ms, &row.signature)?;
        of.entry(id).or_default().push(Received { name: row.name, approval });
    }
    Ok(of)
}

/// An approval, of its columns.
pub(crate) fn approval(
    id: BatchId,
    approver: &[u8],
    approved_at_ms: i64,
    expires_at_ms: i64,
    signature: &[u8],
) -> Result<Approval, Error> {
    let bad = |column| corrupt("batch_approvals", column, id);
    let approver = approver.try_into().ok().and_then(|bytes| PublicKey::from_bytes(bytes).ok());
    Ok(Approval {
        approver: approver.ok_or_else(|| bad("approver"))?,
        approved_at_ms: unsigned("batch_approvals", "approved_at_ms", id, approved_at_ms)?,
        expires_at_ms: unsigned("batch_approvals", "expires_at_ms", id, expires_at_ms)?,
        signature: Signature::from_slice(signature).map_err(|_| bad("signature"))?,
    })
}

/// Keeps an approval. One by the same key that counts for longer stays; returns whether this one is kept.
pub async fn put_approval(
    db: &mut PgConnection,
    id: BatchId,
    name: &str,
    approval: &Approval,
    now: OffsetDateTime,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "insert into batch_approvals (batch_id, approver, name, approved_at_ms, expires_at_ms, signature, received_at)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (batch_id, approver) do update
           set name = excluded.name, approved_at_ms = excluded.approved_at_ms, expires_at_ms = excluded.expires_at_ms,
               signature = excluded.signature, received_at = excluded.received_at
           where excluded.expires_at_ms > batch_approvals.expires_at_ms",
        id.uuid(),
        &approval.approver.as_bytes()[..],
        name,
        signed(approval.approved_at_ms),
        signed(approval.expires_at_ms),
        &approval.signature.as_bytes()[..],
        now,
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Which of these a tenant has: nodes that are not deleted, and kinds that take new commands.
pub async fn known(
    db: &mut PgConnection,
    tenant: TenantId,
    nodes: &[NodeId],
    kinds: &[String],
) -> Result<(HashSet<NodeId>, HashSet<String>), Error> {
    let nodes: Vec<Uuid> = nodes.iter().map(NodeId::uuid).collect();
    let rows = sqlx::query!(
        r#"select id as "id?", null::text as "name?" from nodes
           where tenant_id = $1 and id = any($2) and deleted_at is null
           union all
           select null, name from kinds where name = any($3) and status = 'active'"#,
        tenant.uuid(),
        &nodes,
        kinds,
    )
    .fetch_all(db)
    .await?;
    let mut known = (HashSet::new(), HashSet::new());
    for row in rows {
        known.0.extend(row.id.map(NodeId::from_uuid));
        known.1.extend(row.name);
    }
    Ok(known)
}

/// A command that may belong to a batch.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its node.
    pub node: NodeId,
    /// SHA-256 of its kind's component.
    pub kind_digest: super::kinds::Digest,
    /// SHA-256 of its payload's canonical JSON.
    pub payload_sha256: [u8; 32],
    /// The batch.
    pub batch: Option<BatchId>,
}

/// What the tables say of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its place among those that were asked for.
    pub position: usize,
    /// The kind's name.
    pub kind: String,
    /// Whether the kind is destructive.
    pub is_destructive: bool,
    /// Whether the batch is one of the node's tenant.
    pub is_ours: bool,
    /// Whether the batch's scope has it.
    pub is_in_scope: bool,
}

/// Looks candidates up; those whose kind is not there are left out.
pub async fn standings(db: &mut PgConnection, candidates: &[Candidate]) -> Result<Vec<Standing>, Error> {
    let nodes: Vec<Uuid> = candidates.iter().map(|it| it.node.uuid()).collect();
    let subjects: Vec<String> = candidates.iter().map(|it| it.node.to_string()).collect();
    let digests: Vec<Vec<u8>> = candidates.iter().map(|it| it.kind_digest.to_vec()).collect();
    let hashes: Vec<Vec<u8>> = candidates.iter().map(|it| it.payload_sha256.to_vec()).collect();
    let batches: Vec<Option<Uuid>> = candidates.iter().map(|it| it.batch.map(|id| id.uuid())).collect();
    let rows = sqlx::query!(
        r#"select a.position as "position!", k.name, 'destructive' = any(k.traits) as "is_destructive!",
             exists (
               select from batches b join nodes n on n.id = a.node_id and n.tenant_id = b.tenant_id where b.id = a.batch_id
             ) as "is_ours!",
             exists (
               select from batch_leaves l
               where l.batch_id = a.batch_id and l.subject = a.subject and l.kind = k.name
                 and (l.payload_sha256 is null or l.payload_sha256 = a.hash)
             ) as "is_in_scope!"
           from unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::uuid[])
             with ordinality as a (node_id, subject, digest, hash, batch_id, position)
           join kinds k on k.digest = a.digest
           order by a.position"#,
        &nodes,
        &subjects,
        &digests,
        &hashes,
        &batches as &[Option<Uuid>],
    )
    .fetch_all(db)
    .await?;
    let standing = |position: i64| usize::try_from(position - 1).map_err(|_| corrupt("asked", "position", position));
    rows.into_iter()
        .map(|row| {
            Ok(Standing {
                position: standing(row.position)?,
                kind: row.name,
                is_destructive: row.is_destructive,
                is_ours: row.is_ours,
                is_in_scope: row.is_in_scope,
            })
        })
        .collect()
}
