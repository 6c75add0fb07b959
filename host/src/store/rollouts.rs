//! `rollouts` and `rollout_nodes`: releases on their way to many nodes.
//!
//! **Invariant:** whoever changes a rollout has locked its row; a step's command is queued in the transaction that says so.

use bc_proto::id::{CommandId, NodeId, RolloutId, TenantId};
use bc_proto::rules::rollout::{Limits, Step};
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::kinds::Digest;
use super::{Error, corrupt};

/// Where a rollout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    /// Steps are begun.
    Running,
    /// None is begun until somebody says so.
    Paused,
    /// Every node has its end.
    Done,
    /// No step is begun any more.
    Cancelled,
}

impl State {
    /// Whether it is over for good.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

/// A rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Its id.
    pub id: RolloutId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The release.
    pub sha256: Digest,
    /// The release's version.
    pub version: String,
    /// How far it may go.
    pub limits: Limits,
    /// Whether nodes may get an older version than theirs.
    pub allow_downgrade: bool,
    /// Where it stands.
    pub state: State,
    /// Why it is paused or over, as a stable code; empty otherwise.
    pub reason: String,
    /// Who asked for it.
    pub requested_by: String,
    /// When that was.
    pub created_at: OffsetDateTime,
    /// When it was over.
    pub ended_at: Option<OffsetDateTime>,
}

struct Row {
    id: Uuid,
    tenant_id: Uuid,
    sha256: Vec<u8>,
    version: String,
    max_unavailable: i32,
    max_failures: i32,
    forgiven: i32,
    allow_downgrade: bool,
    state: String,
    reason: String,
    requested_by: String,
    created_at: OffsetDateTime,
    ended_at: Option<OffsetDateTime>,
}

impl TryFrom<Row> for Rollout {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let id = RolloutId::from_uuid(row.id);
        let bad = |column| corrupt("rollouts", column, id);
        let number = |column, value: i32| u32::try_from(value).map_err(|_| bad(column));
        Ok(Self {
            tenant: TenantId::from_uuid(row.tenant_id),
            sha256: row.sha256.try_into().map_err(|_| bad("sha256"))?,
            version: row.version,
            limits: Limits {
                max_unavailable: number("max_unavailable", row.max_unavailable)?,
                max_failures: number("max_failures", row.max_failures)?,
                forgiven: number("forgiven", row.forgiven)?,
            },
            allow_downgrade: row.allow_downgrade,
            state: row.state.parse().map_err(|_| bad("state"))?,
            reason: row.reason,
            requested_by: row.requested_by,
            created_at: row.created_at,
            ended_at: row.ended_at,
            id,
        })
    }
}

/// A node of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its wave, from 0.
    pub wave: u32,
    /// Where it stands.
    pub step: Step,
    /// Its command, once there is one.
    pub command: Option<CommandId>,
    /// Why the command ended so, as a stable code; empty before, and for success.
    pub reason: String,
    /// Whether it has a session.
    pub is_connected: bool,
    /// Whether another rollout changes it now.
    pub is_taken: bool,
}

/// Writes a rollout that begins, its nodes with their waves, and its event. False: its key is taken, and nothing was written.
pub async fn insert(
    db: &mut PgTransaction<'_>,
    rollout: &Rollout,
    key: &str,
    nodes: &[(NodeId, u32)],
) -> Result<bool, Error> {
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let done = sqlx::query!(
        "insert into rollouts (id, tenant_id, sha256, max_unavailable, max_failures, allow_downgrade, state, reason,
                               idempotency_key, requested_by, created_at)
         values ($1, $2, $3, $4, $5, $6, 'running', '', $7, $8, $9)
         on conflict (tenant_id, idempotency_key) do nothing",
        rollout.id.uuid(),
        rollout.tenant.uuid(),
        &rollout.sha256[..],
        number(rollout.limits.max_unavailable),
        number(rollout.limits.max_failures),
        rollout.allow_downgrade,
        key,
        rollout.requested_by,
        rollout.created_at,
    )
    .execute(&mut **db)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    let ids: Vec<Uuid> = nodes.iter().map(|(node, _)| node.uuid()).collect();
    let waves: Vec<i32> = nodes.iter().map(|(_, wave)| number(*wave)).collect();
    sqlx::query!(
        "insert into rollout_nodes (rollout_id, node_id, wave, step, reason)
         select $1, node_id, wave, 'waiting', '' from unnest($2::uuid[], $3::integer[]) as a (node_id, wave)",
        rollout.id.uuid(),
        &ids,
        &waves,
    )
    .execute(&mut **db)
    .await?;
    tell(db, rollout, "rollout.started", rollout.created_at).await?;
    Ok(true)
}

async fn tell(db: &mut PgTransaction<'_>, rollout: &Rollout, topic: &str, at: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "insert into events (tenant_id, topic, body, at)
         values ($1, $2, jsonb_build_object('rolloutId', $3::text, 'version', $4::text, 'state', $5::text, 'reason', $6::text), $7)",
        rollout.tenant.uuid(),
        topic,
        rollout.id.to_string(),
        rollout.version,
        rollout.state.to_string(),
        rollout.reason,
        at,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// The rollout of a tenant with an id.
pub async fn find(db: &mut PgConnection, tenant: TenantId, id: RolloutId) -> Result<Option<Rollout>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select o.id, o.tenant_id, o.sha256, r.version, o.max_unavailable, o.max_failures, o.forgiven, o.allow_downgrade,
                  o.state::text as "state!", o.reason, o.requested_by, o.created_at, o.ended_at
           from rollouts o join releases r on r.sha256 = o.sha256 where o.tenant_id = $1 and o.id = $2"#,
        tenant.uuid(),
        id.uuid(),
    );
    row.fetch_optional(db).await?.map(Rollout::try_from).transpose()
}

/// The rollout of a tenant that a key means.
pub async fn of_key(db: &mut PgConnection, tenant: TenantId, key: &str) -> Result<Option<Rollout>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select o.id, o.tenant_id, o.sha256, r.version, o.max_unavailable, o.max_failures, o.forgiven, o.allow_downgrade,
                  o.state::text as "state!", o.reason, o.requested_by, o.created_at, o.ended_at
           from rollouts o join releases r on r.sha256 = o.sha256 where o.tenant_id = $1 and o.idempotency_key = $2"#,
        tenant.uuid(),
        key,
    );
    row.fetch_optional(db).await?.map(Rollout::try_from).transpose()
}

/// A tenant's newest rollouts.
pub async fn list(db: &mut PgConnection, tenant: TenantId, limit: u32) -> Result<Vec<Rollout>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select o.id, o.tenant_id, o.sha256, r.version, o.max_unavailable, o.max_failures, o.forgiven, o.allow_downgrade,
                  o.state::text as "state!", o.reason, o.requested_by, o.created_at, o.ended_at
           from rollouts o join releases r on r.sha256 = o.sha256 where o.tenant_id = $1 order by o.id desc limit $2"#,
        tenant.uuid(),
        i64::from(limit),
    );
    rows.fetch_all(db).await?.into_iter().map(Rollout::try_from).collect()
}

/// The rollouts that go on.
pub async fn open(db: &mut PgConnection) -> Result<Vec<RolloutId>, Error> {
    let ids = sqlx::query_scalar!("select id from rollouts where state in ('running', 'paused') order by id");
    Ok(ids.fetch_all(db).await?.into_iter().map(RolloutId::from_uuid).collect())
}

/// Locks a rollout until the transaction ends. Others wait.
pub async fn lock(db: &mut PgTransaction<'_>, id: RolloutId) -> Result<Option<Rollout>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select o.id, o.tenant_id, o.sha256, r.version, o.max_unavailable, o.max_failures, o.forgiven, o.allow_downgrade,
                  o.state::text as "state!", o.reason, o.requested_by, o.created_at, o.ended_at
           from rollouts o join releases r on r.sha256 = o.sha256 where o.id = $1 for update of o"#,
        id.uuid(),
    );
    row.fetch_optional(&mut **db).await?.map(Rollout::try_from).transpose()
}

/// The nodes of a rollout, by wave and name.
pub async fn members(db: &mut PgConnection, id: RolloutId) -> Result<Vec<Member>, Error> {
    let rows = sqlx::query!(
        r#"select m.node_id, n.name, m.wave, m.step::text as "step!", m.command_id, m.reason,
                  n.deleted_at is null and n.session_closed_at is null
                    and coalesce(g.seen_at > now() - interval '15 seconds', false) as "is_connected!",
                  exists (select from rollout_nodes x
                          where x.node_id = m.node_id and x.step = 'pending' and x.rollout_id <> m.rollout_id) as "is_taken!"
           from rollout_nodes m
           join nodes n on n.id = m.node_id left join gateways g on g.name = n.gateway
           where m.rollout_id = $1 order by m.wave, n.name, m.node_id"#,
        id.uuid(),
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let node = NodeId::from_uuid(row.node_id);
        Ok(Member {
            node,
            name: row.name,
            wave: u32::try_from(row.wave).map_err(|_| corrupt("rollout_nodes", "wave", node))?,
            step: row.step.parse().map_err(|_| corrupt("rollout_nodes", "step", node))?,
            command: row.command_id.map(CommandId::from_uuid),
            reason: row.reason,
            is_connected: row.is_connected,
            is_taken: row.is_taken,
        })
    });
    parsed.collect()
}

/// Gives steps whose commands are over, or whose nodes are gone, their ends, with an event each. The rollout is locked. Returns how
/// many.
pub async fn conclude(db: &mut PgTransaction<'_>, id: RolloutId, now: OffsetDateTime) -> Result<u64, Error> {
    let done = sqlx::query!(
        "with over as (
           select m.node_id, case when s.state = 'succeeded' then 'succeeded' else 'failed' end as step,
                  case when s.state = 'succeeded' then '' when s.reason = '' then s.state::text else s.reason end as reason
           from rollout_nodes m
           join commands c on c.id = m.command_id
           cross join lateral (
             select * from settled where settled.node_id = c.node_id and settled.seq = c.seq limit 1
           ) s
           where m.rollout_id = $1 and m.step = 'pending'
           union all
           select m.node_id, 'skipped', 'node-deleted'
           from rollout_nodes m join nodes n on n.id = m.node_id
           where m.rollout_id = $1 and m.step = 'waiting' and n.deleted_at is not null
         ), changed as (
           update rollout_nodes m set step = o.step::rollout_step, reason = o.reason
           from over o where m.rollout_id = $1 and m.node_id = o.node_id
           returning m.*
         )
         insert into events (tenant_id, node_id, command_id, topic, body, at)
         select r.tenant_id, c.node_id, c.command_id, 'rollout.step',
                jsonb_build_object('rolloutId', $2::text, 'step', c.step, 'reason', c.reason), $3
         from changed c join rollouts r on r.id = c.rollout_id",
        id.uuid(),
        id.to_string(),
        now,
    )
    .execute(&mut **db)
    .await?;
    Ok(done.rows_affected())
}

/// A step begins: its command is queued in this transaction. The rollout is locked. False: it had begun.
pub async fn begin(db: &mut PgTransaction<'_>, id: RolloutId, node: NodeId, command: CommandId) -> Result<bool, Error> {
    let done = sqlx::query!(
        "update rollout_nodes set step = 'pending', command_id = $3
         where rollout_id = $1 and node_id = $2 and step = 'waiting'",
        id.uuid(),
        node.uuid(),
        command.uuid(),
    )
    .execute(&mut **db)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Changes where a locked rollout stands, with its event. One that goes on again forgives the failures so far.
pub async fn change(
    db: &mut PgTransaction<'_>,
    rollout: &mut Rollout,
    state: State,
    reason: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    (rollout.state, rollout.ended_at) = (state, state.is_over().then_some(now));
    reason.clone_into(&mut rollout.reason);
    sqlx::query!(
        "update rollouts set state = $2::text::rollout_state, reason = $3, ended_at = $4,
           forgiven = case when $2 = 'running'
             then (select count(*) from rollout_nodes where rollout_id = $1 and step = 'failed')::integer else forgiven end
         where id = $1",
        rollout.id.uuid(),
        state.to_string(),
        reason,
        rollout.ended_at,
    )
    .execute(&mut **db)
    .await?;
    tell(db, rollout, "rollout.changed", now).await
}

/// The active component of a kind.
pub async fn active_kind(db: &mut PgConnection, name: &str) -> Result<Option<Digest>, Error> {
    let digest = sqlx::query_scalar!("select digest from kinds where status = 'active' and name = $1", name);
    let digest = digest.fetch_optional(db).await?;
    digest.map(|digest| digest.try_into().map_err(|_| corrupt("kinds", "digest", name))).transpose()
}
