//! `reservations`: GPUs that somebody has reserved.
//!
//! **Invariant:** a reservation becomes active by a binding alone that was found right before, and of the session that counts.

use std::fmt;

use bc_proto::id::{AllocationId, NodeId, TenantId};
use bc_proto::spec::Hold;
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::{Error, corrupt, signed, unsigned};

/// The most reservations on one page.
pub const MAX_PAGE: u32 = 200;

/// Where a reservation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It stands in the node's spec.
    Requested,
    /// The node has signed that it holds the GPU.
    Active,
    /// Given back.
    Released,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Requested, Self::Active, Self::Released];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "requested",
            Self::Active => "active",
            Self::Released => "released",
        })
    }
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The allocation.
    pub id: AllocationId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The node.
    pub node: NodeId,
    /// The UUID of the GPU, or of a MIG instance.
    pub gpu: String,
    /// A share of it; `None` for all of it.
    pub slot: Option<u32>,
    /// Where it stands.
    pub state: State,
    /// The generation of the node's spec that asked for it.
    pub generation: u64,
    /// What the node signed, and its signature; `None` before.
    pub bound: Option<(Vec<u8>, Vec<u8>)>,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// By whom.
    pub created_by: String,
    /// When its binding verified.
    pub active_at: Option<OffsetDateTime>,
    /// When it was given back.
    pub released_at: Option<OffsetDateTime>,
}

struct Row {
    id: Uuid,
    tenant_id: Uuid,
    node_id: Uuid,
    gpu: String,
    slot: Option<i32>,
    state: String,
    generation: i64,
    bound_body: Option<Vec<u8>>,
    bound_sig: Option<Vec<u8>>,
    created_at: OffsetDateTime,
    created_by: String,
    active_at: Option<OffsetDateTime>,
    released_at: Option<OffsetDateTime>,
}

fn state(row: Uuid, word: &str) -> Result<State, Error> {
    let state = State::ALL.into_iter().find(|state| state.to_string() == word);
    state.ok_or_else(|| corrupt("reservations", "state", row))
}

fn slot(row: Uuid, slot: Option<i32>) -> Result<Option<u32>, Error> {
    slot.map(|slot| u32::try_from(slot).map_err(|_| corrupt("reservations", "slot", row))).transpose()
}

impl TryFrom<Row> for Reservation {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            id: AllocationId::from_uuid(row.id),
            tenant: TenantId::from_uuid(row.tenant_id),
            node: NodeId::from_uuid(row.node_id),
            slot: slot(row.id, row.slot)?,
            state: state(row.id, &row.state)?,
            generation: unsigned("reservations", "generation", row.id, row.generation)?,
            gpu: row.gpu,
            bound: row.bound_body.zip(row.bound_sig),
            created_at: row.created_at,
            created_by: row.created_by,
            active_at: row.active_at,
            released_at: row.released_at,
        })
    }
}

/// Writes a new reservation. The node is locked, and nothing live is in its way.
pub async fn insert(db: &mut PgTransaction<'_>, new: &Reservation, idempotency_key: &str) -> Result<(), Error> {
    sqlx::query!(
        "insert into reservations (id, tenant_id, node_id, gpu, slot, state, idempotency_key, generation, created_at,
                                   created_by)
         values ($1, $2, $3, $4, $5, 'requested', $6, $7, $8, $9)",
        new.id.uuid(),
        new.tenant.uuid(),
        new.node.uuid(),
        new.gpu,
        new.slot.map(|slot| i32::try_from(slot).unwrap_or(i32::MAX)),
        idempotency_key,
        signed(new.generation),
        new.created_at,
        new.created_by,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// Gives a reservation back; false where it was before.
pub async fn release(db: &mut PgTransaction<'_>, id: AllocationId, now: OffsetDateTime) -> Result<bool, Error> {
    let done = sqlx::query!(
        "update reservations set state = 'released', released_at = $2 where id = $1 and state <> 'released'",
        id.uuid(),
        now,
    )
    .execute(&mut **db)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// What nodes should hold: the live reservations of one, as its spec says them.
pub async fn holds(db: &mut PgConnection, node: NodeId) -> Result<Vec<Hold>, Error> {
    let rows = sqlx::query!(
        "select id, gpu, slot from reservations where node_id = $1 and state <> 'released' order by id",
        node.uuid(),
    )
    .fetch_all(db)
    .await?;
    let holds = rows.into_iter().map(|row| {
        let slot = slot(row.id, row.slot)?;
        Ok(Hold { allocation: AllocationId::from_uuid(row.id), gpu: row.gpu, slot })
    });
    holds.collect()
}

/// A reservation of a tenant.
pub async fn find(db: &mut PgConnection, tenant: TenantId, id: AllocationId) -> Result<Option<Reservation>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, node_id, gpu, slot, state::text as "state!", generation, bound_body, bound_sig,
                  created_at, created_by, active_at, released_at
           from reservations where tenant_id = $1 and id = $2"#,
        tenant.uuid(),
        id.uuid(),
    )
    .fetch_optional(db)
    .await?;
    row.map(Reservation::try_from).transpose()
}

/// The reservation of a node by its key.
pub async fn find_by_key(db: &mut PgConnection, node: NodeId, key: &str) -> Result<Option<Reservation>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, node_id, gpu, slot, state::text as "state!", generation, bound_body, bound_sig,
                  created_at, created_by, active_at, released_at
           from reservations where node_id = $1 and idempotency_key = $2"#,
        node.uuid(),
        key,
    )
    .fetch_optional(db)
    .await?;
    row.map(Reservation::try_from).transpose()
}

/// A page of a node's reservations, newest first: those in a state (all for `None`), older than `below` (all for `None`).
pub async fn list(
    db: &mut PgConnection,
    tenant: TenantId,
    node: NodeId,
    state: Option<State>,
    below: Option<AllocationId>,
    limit: u32,
) -> Result<Vec<Reservation>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, node_id, gpu, slot, state::text as "state!", generation, bound_body, bound_sig,
                  created_at, created_by, active_at, released_at
           from reservations
           where tenant_id = $1 and node_id = $2 and ($3::text is null or state = $3::text::reservation_state)
             and ($4::uuid is null or id < $4)
           order by id desc limit $5"#,
        tenant.uuid(),
        node.uuid(),
        state.map(|state| state.to_string()),
        below.map(|id| id.uuid()),
        i64::from(limit.min(MAX_PAGE + 1)),
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Reservation::try_from).collect()
}

/// What a binding is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The allocation.
    pub id: AllocationId,
    /// The node that was asked.
    pub node: NodeId,
    /// The life that it lives now.
    pub incarnation: u64,
    /// The GPU that was asked for.
    pub gpu: String,
    /// Where it stands.
    pub state: State,
    /// The generation that asked for it.
    pub generation: u64,
    /// The node's certificates, X.509 in DER: of its present life, and not revoked.
    pub certificates: Vec<Vec<u8>>,
}

/// What was asked of nodes by these allocations.
pub async fn asked(db: &mut PgConnection, allocations: &[AllocationId]) -> Result<Vec<Asked>, Error> {
    let ids: Vec<Uuid> = allocations.iter().map(AllocationId::uuid).collect();
    let rows = sqlx::query!(
        r#"select r.id, r.node_id, n.incarnation, r.gpu, r.state::text as "state!", r.generation,
                  array(
                      select c.certificate from node_certificates c
                      where c.node_id = n.id and c.incarnation = n.incarnation and c.revoked_at is null
                  ) as "certificates!"
           from reservations r join nodes n on n.id = r.node_id
           where r.id = any($1)"#,
        &ids,
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        Ok(Asked {
            id: AllocationId::from_uuid(row.id),
            node: NodeId::from_uuid(row.node_id),
            incarnation: unsigned("nodes", "incarnation", row.node_id, row.incarnation)?,
            gpu: row.gpu,
            state: state(row.id, &row.state)?,
            generation: unsigned("reservations", "generation", row.id, row.generation)?,
            certificates: row.certificates,
        })
    });
    parsed.collect()
}

/// A binding that was found right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The allocation.
    pub id: AllocationId,
    /// The node, and the life of it that holds the GPU.
    pub node: NodeId,
    /// The life.
    pub incarnation: u64,
    /// The session that it came on.
    pub epoch: u64,
    /// What the node signed, as it came.
    pub body: Vec<u8>,
    /// Its signature, as it came.
    pub signature: Vec<u8>,
}

/// Makes reservations active, in one statement, with an event for each: those that are still requested, of nodes that still live
/// that life and have that session. Returns how many.
pub async fn activate(db: &mut PgConnection, bindings: &[Binding], now: OffsetDateTime) -> Result<u64, Error> {
    let ids: Vec<Uuid> = bindings.iter().map(|it| it.id.uuid()).collect();
    let nodes: Vec<Uuid> = bindings.iter().map(|it| it.node.uuid()).collect();
    let incarnations: Vec<i64> = bindings.iter().map(|it| signed(it.incarnation)).collect();
    let epochs: Vec<i64> = bindings.iter().map(|it| signed(it.epoch)).collect();
    let names: Vec<String> = bindings.iter().map(|it| it.id.to_string()).collect();
    let bodies: Vec<Vec<u8>> = bindings.iter().map(|it| it.body.clone()).collect();
    let signatures: Vec<Vec<u8>> = bindings.iter().map(|it| it.signature.clone()).collect();
    let done = sqlx::query!(
        "with changed as (
            update reservations r set state = 'active', active_at = $7, bound_body = a.body, bound_sig = a.sig
            from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $8::text[])
                as a (id, node_id, incarnation, epoch, body, sig, name)
            join nodes n on n.id = a.node_id and n.incarnation = a.incarnation and n.session_epoch = a.epoch
                and n.deleted_at is null
            where r.id = a.id and r.node_id = a.node_id and r.state = 'requested'
            returning r.tenant_id, r.node_id, r.gpu, r.slot, a.name
         )
         insert into events (tenant_id, node_id, topic, body, at)
         select tenant_id, node_id, 'reservation.active',
                jsonb_strip_nulls(jsonb_build_object('reservationId', name, 'gpu', gpu, 'slot', slot)), $7
         from changed",
        &ids,
        &nodes,
        &incarnations,
        &epochs,
        &bodies,
        &signatures,
        now,
        &names,
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// A binding that is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The node on whose session it came.
    pub node: NodeId,
    /// The session.
    pub epoch: u64,
    /// The allocation that it names; `None` where it does not even read.
    pub allocation: Option<AllocationId>,
    /// Why, in words.
    pub why: String,
}

/// Leaves an event for each binding that is not believed.
pub async fn refuse(db: &mut PgConnection, refusals: &[Refusal], now: OffsetDateTime) -> Result<u64, Error> {
    let nodes: Vec<Uuid> = refusals.iter().map(|it| it.node.uuid()).collect();
    let epochs: Vec<i64> = refusals.iter().map(|it| signed(it.epoch)).collect();
    let ids: Vec<Option<String>> = refusals.iter().map(|it| it.allocation.map(|id| id.to_string())).collect();
    let whys: Vec<String> = refusals.iter().map(|it| it.why.clone()).collect();
    let done = sqlx::query!(
        "insert into events (tenant_id, node_id, topic, body, at)
         select n.tenant_id, n.id, 'reservation.binding-refused',
                jsonb_strip_nulls(jsonb_build_object('reservationId', a.id, 'reason', a.why)), $5
         from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[]) as a (node_id, epoch, id, why)
         join nodes n on n.id = a.node_id and n.session_epoch = a.epoch and n.deleted_at is null",
        &nodes,
        &epochs,
        &ids as &[Option<String>],
        &whys,
        now,
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// The node begins another life, which holds nothing yet: what was active is only asked for again.
pub async fn unbind(db: &mut PgConnection, node: NodeId) -> Result<u64, Error> {
    let done = sqlx::query!(
        "update reservations set state = 'requested', active_at = null, bound_body = null, bound_sig = null
         where node_id = $1 and state = 'active'",
        node.uuid(),
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}
