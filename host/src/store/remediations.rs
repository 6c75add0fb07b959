//! `remediations` and `remediation_holds`: what was tried to mend nodes by itself, and why others are left alone.
//!
//! **Invariant:** whoever writes here has the module's lock, which goes with its transaction; and a node has one attempt at a time,
//! whatever is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use bc_proto::id::{BatchId, CommandId, NodeId, TenantId};
use bc_proto::rules::remediation::{Ailment, Outcome};
use bc_proto::rules::state::State;
use bc_proto::spec::NodeSpec;
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::kinds::Digest;
use super::{Error, code, corrupt, signed, unsigned};

/// The most attempts on one page.
pub const MAX_PAGE: u32 = 200;

/// The key of the advisory lock that keeps replicas from acting at the same time; any number that nothing else here uses.
const LOCK: i64 = 0x7265_6d65_6479;

/// Where an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Standing {
    /// Its command is not over.
    Pending,
    /// It did what it should.
    Succeeded,
    /// It is known that nothing was done.
    Failed,
    /// Nobody can say what was done.
    Ambiguous,
    /// It was called off before it was sent.
    Withdrawn,
}

impl Standing {
    /// As the rules count it; `None` for what counts as no attempt.
    pub const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Pending => Some(Outcome::Pending),
            Self::Succeeded => Some(Outcome::Succeeded),
            Self::Failed => Some(Outcome::Failed),
            Self::Ambiguous => Some(Outcome::Ambiguous),
            Self::Withdrawn => None,
        }
    }
}

impl From<Outcome> for Standing {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Pending => Self::Pending,
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Failed => Self::Failed,
            Outcome::Ambiguous => Self::Ambiguous,
        }
    }
}

/// An attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its command.
    pub command: CommandId,
    /// Whose the node is.
    pub tenant: TenantId,
    /// The node.
    pub node: NodeId,
    /// What is to be mended.
    pub ailment: Ailment,
    /// Its number among those at this ailment of the node, from 1.
    pub number: u32,
    /// UUIDs of the GPUs; empty for the node itself.
    pub gpus: Vec<String>,
    /// The batch that was made for it.
    pub batch: BatchId,
    /// Where it stands.
    pub standing: Standing,
    /// Why it ended so, as a stable code; empty before, and for success.
    pub reason: String,
    /// When it began.
    pub started_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
    /// When somebody let the node go on after it, and who.
    pub cleared: Option<(OffsetDateTime, String)>,
    /// Whether it is pending and its command was not sent yet.
    pub is_unsent: bool,
}

struct Row {
    command_id: Uuid,
    tenant_id: Uuid,
    node_id: Uuid,
    ailment: String,
    attempt: i32,
    gpus: Vec<String>,
    batch_id: Uuid,
    outcome: String,
    reason: String,
    started_at: OffsetDateTime,
    ended_at: Option<OffsetDateTime>,
    cleared_at: Option<OffsetDateTime>,
    cleared_by: Option<String>,
    is_unsent: bool,
}

impl TryFrom<Row> for Attempt {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let command = CommandId::from_uuid(row.command_id);
        Ok(Self {
            command,
            tenant: TenantId::from_uuid(row.tenant_id),
            node: NodeId::from_uuid(row.node_id),
            ailment: ailment("remediations", command, &row.ailment)?,
            number: u32::try_from(row.attempt).map_err(|_| corrupt("remediations", "attempt", command))?,
            gpus: row.gpus,
            batch: BatchId::from_uuid(row.batch_id),
            standing: row.outcome.parse().map_err(|_| corrupt("remediations", "outcome", command))?,
            reason: row.reason,
            started_at: row.started_at,
            ended_at: row.ended_at,
            cleared: row.cleared_at.zip(row.cleared_by),
            is_unsent: row.is_unsent,
        })
    }
}

fn ailment(table: &'static str, row: impl ToString, word: &str) -> Result<Ailment, Error> {
    word.parse().map_err(|_| corrupt(table, "ailment", row))
}

/// Keeps other replicas from acting until the transaction ends. False: another one acts.
pub async fn lock(db: &mut PgTransaction<'_>) -> Result<bool, Error> {
    let is_ours = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "is_ours!""#, LOCK);
    Ok(is_ours.fetch_one(&mut **db).await?)
}

/// A node that has something, had something, or is attempted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patient {
    /// The node.
    pub node: NodeId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its label `pool`.
    pub pool: Option<String>,
    /// Whether its label `protected` is `true`, or it is set apart.
    pub is_protected: bool,
    /// Whether it has a session.
    pub is_connected: bool,
    /// What it has, with the GPUs that have it.
    pub ailments: Vec<(Ailment, String)>,
    /// GPUs and MIG instances that are reserved, stand in its newest spec, or are passed through by it.
    pub in_use: BTreeSet<String>,
    /// The generation of its newest spec; `None` before the first.
    pub generation: Option<u64>,
    /// The only kinds that its certificate allows; `None` for all.
    pub allowed_kinds: Option<Vec<String>>,
    /// Why it is left alone, as was noted last.
    pub hold: Option<(Ailment, String)>,
}

/// Nodes to decide about, in the order of their ids: those after `after`, or `only` one.
pub async fn patients(
    db: &mut PgConnection,
    only: Option<NodeId>,
    after: Option<NodeId>,
    limit: u32,
) -> Result<Vec<Patient>, Error> {
    let rows = sqlx::query!(
        r#"with named as (
             select node_id from node_conditions where type in ('RowRemapPending', 'RebootRequired')
             union select node_id from remediations where outcome = 'pending'
             union select node_id from remediation_holds
           )
           select n.id, n.tenant_id, n.labels ->> 'pool' as pool,
             coalesce(n.labels ->> 'protected' = 'true', false)
               or exists (select from quarantines q where q.node_id = n.id) as "is_protected!",
             n.session_closed_at is null
               and coalesce(g.seen_at > now() - interval '15 seconds', false) as "is_connected!",
             array(select type from node_conditions c
                   where c.node_id = n.id and c.type in ('RowRemapPending', 'RebootRequired')
                   order by c.type, c.subject) as "types!",
             array(select subject from node_conditions c
                   where c.node_id = n.id and c.type in ('RowRemapPending', 'RebootRequired')
                   order by c.type, c.subject) as "subjects!",
             array(select gpu from reservations r where r.node_id = n.id and r.state <> 'released') as "reserved!",
             s.generation as "generation?", s.document as "document?", h.ailment as "hold_ailment?", h.why as "hold_why?",
             cert.allowed_kinds as "allowed_kinds?"
           from named a
           join nodes n on n.id = a.node_id and n.deleted_at is null
           left join gateways g on g.name = n.gateway
           left join remediation_holds h on h.node_id = n.id
           left join lateral (
             select generation, document from node_specs where node_id = n.id order by generation desc limit 1
           ) s on true
           left join lateral (
             select allowed_kinds from node_certificates
             where node_id = n.id and incarnation = n.incarnation and revoked_at is null
             order by not_before desc, fingerprint limit 1
           ) cert on true
           where ($1::uuid is null or n.id = $1) and ($2::uuid is null or n.id > $2)
           order by n.id limit $3"#,
        only.map(|id| id.uuid()),
        after.map(|id| id.uuid()),
        i64::from(limit),
    )
    .fetch_all(db)
    .await?;
    let mut patients = Vec::with_capacity(rows.len());
    for row in rows {
        let node = NodeId::from_uuid(row.id);
        let mut ailments = Vec::new();
        for (word, subject) in row.types.iter().zip(row.subjects) {
            ailments.push((ailment("node_conditions", node, word)?, subject));
        }
        let mut in_use: BTreeSet<String> = row.reserved.into_iter().collect();
        if let Some(document) = row.document {
            let spec: NodeSpec =
                serde_json::from_slice(&document).map_err(|_| corrupt("node_specs", "document", node))?;
            in_use.extend(spec.holds.into_iter().map(|hold| hold.gpu));
            in_use.extend(spec.instances.into_iter().flat_map(|instance| instance.pass_through));
        }
        let hold = match row.hold_ailment.zip(row.hold_why) {
            Some((word, why)) => Some((ailment("remediation_holds", node, &word)?, why)),
            None => None,
        };
        patients.push(Patient {
            node,
            tenant: TenantId::from_uuid(row.tenant_id),
            pool: row.pool,
            is_protected: row.is_protected,
            is_connected: row.is_connected,
            ailments,
            in_use,
            generation: row.generation.map(|it| unsigned("node_specs", "generation", node, it)).transpose()?,
            allowed_kinds: row.allowed_kinds,
            hold,
        });
    }
    Ok(patients)
}

/// The attempts at nodes that still count: those that are pending, those that nobody can tell and nobody cleared, and those that
/// began or ended after `since`. Withdrawn ones do not.
pub async fn counting(db: &mut PgConnection, nodes: &[NodeId], since: OffsetDateTime) -> Result<Vec<Attempt>, Error> {
    let nodes: Vec<Uuid> = nodes.iter().map(NodeId::uuid).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"select command_id, tenant_id, node_id, ailment, attempt, gpus, batch_id, outcome::text as "outcome!", reason,
                  started_at, ended_at, cleared_at, cleared_by,
                  outcome = 'pending' and exists (
                    select from commands c join ready r on r.node_id = c.node_id and r.lane = c.lane and r.seq = c.seq
                    where c.id = command_id
                  ) as "is_unsent!"
           from remediations
           where node_id = any($1) and outcome <> 'withdrawn'
             and (started_at > $2 or ended_at > $2 or outcome = 'pending' or (outcome = 'ambiguous' and cleared_at is null))
           order by node_id, started_at"#,
        &nodes,
        since,
    );
    rows.fetch_all(db).await?.into_iter().map(Attempt::try_from).collect()
}

/// The nodes of a pool of a tenant, or those without one.
pub type Pool = (TenantId, Option<String>);

/// What is going on in the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fleet {
    /// How many nodes there are.
    pub nodes: u32,
    /// How many of them were attempted after a time.
    pub attempted: u32,
    /// How many nodes of each pool have no session, or are to boot.
    pub away: BTreeMap<Pool, u32>,
    /// The active components of the kinds that mend, by name.
    pub kinds: BTreeMap<String, Digest>,
}

/// Looks at the fleet; attempts count from `since` on.
pub async fn fleet(db: &mut PgConnection, kinds: &[String], since: OffsetDateTime) -> Result<Fleet, Error> {
    let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    let pools = sqlx::query!(
        r#"select n.tenant_id, n.labels ->> 'pool' as pool, count(*) as "nodes!",
             count(*) filter (where
               n.session_closed_at is not null
               or not coalesce(g.seen_at > now() - interval '15 seconds', false)
               or exists (select from remediations r
                          where r.node_id = n.id and r.outcome = 'pending' and r.ailment = 'RebootRequired')
             ) as "away!"
           from nodes n left join gateways g on g.name = n.gateway
           where n.deleted_at is null
           group by n.tenant_id, n.labels ->> 'pool'"#
    )
    .fetch_all(&mut *db)
    .await?;
    let mut fleet = Fleet::default();
    for row in pools {
        fleet.nodes = fleet.nodes.saturating_add(count(row.nodes));
        fleet.away.insert((TenantId::from_uuid(row.tenant_id), row.pool), count(row.away));
    }
    let attempted = sqlx::query_scalar!(
        r#"select count(distinct node_id) as "attempted!" from remediations
           where started_at > $1 and outcome <> 'withdrawn'"#,
        since,
    );
    fleet.attempted = count(attempted.fetch_one(&mut *db).await?);
    let active = sqlx::query!("select name, digest from kinds where status = 'active' and name = any($1)", kinds);
    for row in active.fetch_all(db).await? {
        let digest = row.digest.try_into().map_err(|_| corrupt("kinds", "digest", &row.name))?;
        fleet.kinds.insert(row.name, digest);
    }
    Ok(fleet)
}

/// The number of the next attempt at an ailment of a node.
pub async fn next_number(db: &mut PgConnection, node: NodeId, ailment: Ailment) -> Result<u32, Error> {
    let last = sqlx::query_scalar!(
        r#"select coalesce(max(attempt), 0) as "last!" from remediations where node_id = $1 and ailment = $2"#,
        node.uuid(),
        ailment.to_string(),
    );
    let last = last.fetch_one(db).await?;
    u32::try_from(last).map(|last| last + 1).map_err(|_| corrupt("remediations", "attempt", node))
}

/// Writes an attempt that begins, with its event.
pub async fn insert(db: &mut PgTransaction<'_>, attempt: &Attempt) -> Result<(), Error> {
    sqlx::query!(
        "with fresh as (
           insert into remediations (command_id, tenant_id, node_id, ailment, attempt, gpus, batch_id, outcome, reason,
                                     started_at)
           values ($1, $2, $3, $4, $5, $6, $7, 'pending', '', $8)
           returning *
         )
         insert into events (tenant_id, node_id, command_id, topic, body, at)
         select tenant_id, node_id, command_id, 'remediation.started',
                jsonb_build_object('ailment', ailment, 'attempt', attempt, 'gpus', to_jsonb(gpus), 'batchId', $9::text),
                started_at
         from fresh",
        attempt.command.uuid(),
        attempt.tenant.uuid(),
        attempt.node.uuid(),
        attempt.ailment.to_string(),
        i32::try_from(attempt.number).unwrap_or(i32::MAX),
        &attempt.gpus,
        attempt.batch.uuid(),
        attempt.started_at,
        attempt.batch.to_string(),
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// A pending attempt whose command is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// The command.
    pub command: CommandId,
    /// How it ended.
    pub state: State,
    /// Why, as a stable code.
    pub reason: String,
    /// The result as it is stored.
    pub result: Vec<u8>,
    /// Whether a node reported it.
    pub is_reported: bool,
    /// Whether results of its kind have to be signed.
    pub is_attested: bool,
    /// Whether its kind ends the daemon that runs it.
    pub is_self_terminating: bool,
}

/// Pending attempts whose commands are over, at most `limit`.
pub async fn over(db: &mut PgConnection, limit: u32) -> Result<Vec<Over>, Error> {
    let rows = sqlx::query!(
        r#"select c.id, s.state::text as "state!", s.reason as "reason!", s.result as "result!",
                  s.reported_at is not null as "is_reported!", 'attested' = any(k.traits) as "is_attested!",
                  'self-terminating' = any(k.traits) as "is_self_terminating!"
           from remediations a
           join commands c on c.id = a.command_id
           join kinds k on k.digest = c.kind_digest
           cross join lateral (
             select * from settled where settled.node_id = c.node_id and settled.seq = c.seq limit 1
           ) s
           where a.outcome = 'pending' limit $1"#,
        i64::from(limit),
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let command = CommandId::from_uuid(row.id);
        Ok(Over {
            command,
            state: code::parse_state(&row.state).ok_or_else(|| corrupt("settled", "state", command))?,
            reason: row.reason,
            result: row.result,
            is_reported: row.is_reported,
            is_attested: row.is_attested,
            is_self_terminating: row.is_self_terminating,
        })
    });
    parsed.collect()
}

/// Ends pending attempts, each with where it stands now and why, in one statement with their events. Returns how many.
pub async fn end(
    db: &mut PgTransaction<'_>,
    ended: &[(CommandId, Standing, String)],
    now: OffsetDateTime,
) -> Result<u64, Error> {
    let ids: Vec<Uuid> = ended.iter().map(|(id, _, _)| id.uuid()).collect();
    let standings: Vec<String> = ended.iter().map(|(_, standing, _)| standing.to_string()).collect();
    let reasons: Vec<String> = ended.iter().map(|(_, _, reason)| reason.clone()).collect();
    let done = sqlx::query!(
        "with changed as (
           update remediations r set outcome = a.outcome::remediation_outcome, reason = a.reason, ended_at = $4
           from unnest($1::uuid[], $2::text[], $3::text[]) as a (id, outcome, reason)
           where r.command_id = a.id and r.outcome = 'pending'
           returning r.*
         )
         insert into events (tenant_id, node_id, command_id, topic, body, at)
         select tenant_id, node_id, command_id, 'remediation.ended',
                jsonb_build_object('ailment', ailment, 'attempt', attempt, 'outcome', outcome, 'reason', reason), $4
         from changed",
        &ids,
        &standings,
        &reasons,
        now,
    )
    .execute(&mut **db)
    .await?;
    Ok(done.rows_affected())
}

/// Notes why nodes are left alone, in one statement; `None` takes a note away. Only what changes is written, and each new reason
/// leaves an event. Returns how many new reasons there are.
pub async fn note(
    db: &mut PgTransaction<'_>,
    holds: &[(NodeId, Option<(Ailment, String)>)],
    now: OffsetDateTime,
) -> Result<u64, Error> {
    let nodes: Vec<Uuid> = holds.iter().map(|(node, _)| node.uuid()).collect();
    let ailments: Vec<Option<String>> =
        holds.iter().map(|(_, hold)| hold.as_ref().map(|(ailment, _)| ailment.to_string())).collect();
    let whys: Vec<Option<String>> = holds.iter().map(|(_, hold)| hold.as_ref().map(|(_, why)| why.clone())).collect();
    let done = sqlx::query!(
        "with said as materialized (
           select * from unnest($1::uuid[], $2::text[], $3::text[]) as a (node_id, ailment, why)
         ), gone as (
           delete from remediation_holds h using said s where h.node_id = s.node_id and s.ailment is null
         ), changed as (
           insert into remediation_holds as h (node_id, ailment, why, since)
           select node_id, ailment, why, $4 from said where ailment is not null
           on conflict (node_id) do update set ailment = excluded.ailment, why = excluded.why, since = excluded.since
             where (h.ailment, h.why) <> (excluded.ailment, excluded.why)
           returning h.node_id, h.ailment, h.why
         )
         insert into events (tenant_id, node_id, topic, body, at)
         select n.tenant_id, n.id, 'remediation.held', jsonb_build_object('ailment', c.ailment, 'why', c.why), $4
         from changed c join nodes n on n.id = c.node_id",
        &nodes,
        &ailments as &[Option<String>],
        &whys as &[Option<String>],
        now,
    )
    .execute(&mut **db)
    .await?;
    Ok(done.rows_affected())
}

/// A page of a tenant's attempts, newest first: those older than `below`, at one node if it is named.
pub async fn list(
    db: &mut PgConnection,
    tenant: TenantId,
    node: Option<NodeId>,
    below: Option<CommandId>,
    limit: u32,
) -> Result<Vec<Attempt>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select command_id, tenant_id, node_id, ailment, attempt, gpus, batch_id, outcome::text as "outcome!", reason,
                  started_at, ended_at, cleared_at, cleared_by, false as "is_unsent!"
           from remediations
           where tenant_id = $1 and ($2::uuid is null or node_id = $2) and ($3::uuid is null or command_id < $3)
           order by command_id desc limit $4"#,
        tenant.uuid(),
        node.map(|id| id.uuid()),
        below.map(|id| id.uuid()),
        i64::from(limit.min(MAX_PAGE + 1)),
    );
    rows.fetch_all(db).await?.into_iter().map(Attempt::try_from).collect()
}

/// A node that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The node.
    pub node: NodeId,
    /// What it has.
    pub ailment: Ailment,
    /// Why it is left alone.
    pub why: String,
    /// Since when.
    pub since: OffsetDateTime,
}

/// Nodes of a tenant that are left alone, at most `limit`, the longest first; one of them if it is named.
pub async fn holds(
    db: &mut PgConnection,
    tenant: TenantId,
    node: Option<NodeId>,
    limit: u32,
) -> Result<Vec<Held>, Error> {
    let rows = sqlx::query!(
        "select h.node_id, h.ailment, h.why, h.since
         from remediation_holds h join nodes n on n.id = h.node_id and n.deleted_at is null
         where n.tenant_id = $1 and ($2::uuid is null or h.node_id = $2)
         order by h.since, h.node_id limit $3",
        tenant.uuid(),
        node.map(|id| id.uuid()),
        i64::from(limit),
    )
    .fetch_all(db)
    .await?;
    let parsed = rows.into_iter().map(|row| {
        let node = NodeId::from_uuid(row.node_id);
        let ailment = ailment("remediation_holds", node, &row.ailment)?;
        Ok(Held { node, ailment, why: row.why, since: row.since })
    });
    parsed.collect()
}

/// Lets a node go on after attempts of which nobody can tell how they ended; returns how many those were.
pub async fn clear(
    db: &mut PgConnection,
    (tenant, node): (TenantId, NodeId),
    by: &str,
    now: OffsetDateTime,
) -> Result<u64, Error> {
    let done = sqlx::query!(
        "update remediations set cleared_at = $4, cleared_by = $3
         where tenant_id = $1 and node_id = $2 and outcome = 'ambiguous' and cleared_at is null",
        tenant.uuid(),
        node.uuid(),
        by,
        now,
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// A time that lies so many milliseconds before another.
pub fn before(now: OffsetDateTime, ms: u64) -> OffsetDateTime {
    let span = time::Duration::milliseconds(signed(ms));
    now.checked_sub(span).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
