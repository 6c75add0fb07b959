//! `node_specs`: the desired state of nodes, generation by generation.
//!
//! **Invariant:** generations of a node are inserted one after the other, under the lock of its row, and never changed: what was
//! signed is what is read and relayed, to the byte.

use std::collections::HashMap;

use bc_proto::id::{NodeId, TenantId};
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::{Error, signed, unsigned};

/// A generation of a node's spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The node.
    pub node: NodeId,
    /// The generation.
    pub generation: u64,
    /// The document, canonical JSON.
    pub document: Vec<u8>,
    /// The worker key's signature, protobuf `WorkerSignature`; `None` where nothing is signed.
    pub signature: Option<Vec<u8>>,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// Who asked for it.
    pub created_by: String,
}

struct Row {
    node_id: Uuid,
    generation: i64,
    document: Vec<u8>,
    signature: Option<Vec<u8>>,
    created_at: OffsetDateTime,
    created_by: String,
}

impl TryFrom<Row> for Spec {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            node: NodeId::from_uuid(row.node_id),
            generation: unsigned("node_specs", "generation", row.node_id, row.generation)?,
            document: row.document,
            signature: row.signature,
            created_at: row.created_at,
            created_by: row.created_by,
        })
    }
}

/// Locks a node's row until the transaction ends, so that generations come one after the other. Whoever needs several nodes locks
/// them in the order of their ids. False: the tenant has no such node.
pub async fn lock(db: &mut PgTransaction<'_>, tenant: TenantId, node: NodeId) -> Result<bool, Error> {
    let found = sqlx::query_scalar!(
        "select id from nodes where id = $1 and tenant_id = $2 and deleted_at is null for no key update",
        node.uuid(),
        tenant.uuid(),
    )
    .fetch_optional(&mut **db)
    .await?;
    Ok(found.is_some())
}

/// The newest generation of a node; `None` before the first.
pub async fn newest(db: &mut PgConnection, node: NodeId) -> Result<Option<Spec>, Error> {
    let row = sqlx::query_as!(
        Row,
        "select * from node_specs where node_id = $1 order by generation desc limit 1",
        node.uuid(),
    )
    .fetch_optional(db)
    .await?;
    row.map(Spec::try_from).transpose()
}

/// Adds a generation, with its event. The node is locked.
pub async fn insert(db: &mut PgTransaction<'_>, spec: &Spec) -> Result<(), Error> {
    sqlx::query!(
        "with inserted as (
            insert into node_specs (node_id, generation, document, signature, created_at, created_by)
            values ($1, $2, $3, $4, $5, $6)
         )
         insert into events (tenant_id, node_id, topic, body, at)
         select tenant_id, id, 'node.spec-changed', jsonb_build_object('generation', $2::bigint), $5
         from nodes where id = $1",
        spec.node.uuid(),
        signed(spec.generation),
        spec.document,
        spec.signature.as_deref(),
        spec.created_at,
        spec.created_by,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// The newest specs of nodes, each of those alone that have a newer one than the generation beside it. One look into the index
/// for each node.
pub async fn newer(db: &mut PgConnection, than: &[(NodeId, u64)]) -> Result<Vec<Spec>, Error> {
    let nodes: Vec<Uuid> = than.iter().map(|(node, _)| node.uuid()).collect();
    let generations: Vec<i64> = than.iter().map(|&(_, generation)| signed(generation)).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"select s.node_id as "node_id!", s.generation as "generation!", s.document as "document!", s.signature,
                  s.created_at as "created_at!", s.created_by as "created_by!"
           from unnest($1::uuid[], $2::bigint[]) as a (node_id, generation)
           cross join lateral (
               select * from node_specs n where n.node_id = a.node_id and n.generation > a.generation
               order by n.generation desc limit 1
           ) s"#,
        &nodes,
        &generations,
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Spec::try_from).collect()
}

/// What a node says that it has applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The node.
    pub node: NodeId,
    /// The session that it came on.
    pub epoch: u64,
    /// The generation.
    pub generation: u64,
}

/// Records what nodes have applied, in one statement, with an event for each that got further. It never goes back within a
/// session; a new Hello says anew where the node is.
pub async fn applied(db: &mut PgConnection, applied: &[Applied], now: OffsetDateTime) -> Result<u64, Error> {
    // The furthest of each node: one statement changes a row once.
    let mut furthest: HashMap<Uuid, &Applied> = HashMap::new();
    for it in applied {
        let present = furthest.entry(it.node.uuid()).or_insert(it);
        if (it.epoch, it.generation) > (present.epoch, present.generation) {
            *present = it;
        }
    }
    let nodes: Vec<Uuid> = furthest.keys().copied().collect();
    let epochs: Vec<i64> = furthest.values().map(|it| signed(it.epoch)).collect();
    let generations: Vec<i64> = furthest.values().map(|it| signed(it.generation)).collect();
    let done = sqlx::query!(
        "with changed as (
            update nodes n set spec_generation = a.generation
            from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as a (node_id, epoch, generation)
            where n.id = a.node_id and n.session_epoch = a.epoch and n.spec_generation < a.generation
              and n.deleted_at is null
            returning n.id, n.tenant_id, n.spec_generation
         )
         insert into events (tenant_id, node_id, topic, body, at)
         select tenant_id, id, 'node.spec-applied', jsonb_build_object('generation', spec_generation), $4 from changed",
        &nodes,
        &epochs,
        &generations,
        now,
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// The generation that a node of a tenant has applied; `None`: there is no such node.
pub async fn find_applied(db: &mut PgConnection, tenant: TenantId, node: NodeId) -> Result<Option<u64>, Error> {
    let generation = sqlx::query_scalar!(
        "select spec_generation from nodes where id = $1 and tenant_id = $2 and deleted_at is null",
        node.uuid(),
        tenant.uuid(),
    )
    .fetch_optional(db)
    .await?;
    generation.map(|generation| unsigned("nodes", "spec_generation", node, generation)).transpose()
}
