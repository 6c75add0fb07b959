//! `workflows`, `workflow_steps` and `workflow_tries`.
//!
//! **Invariant:** a workflow is changed under the lock of its row, and of its node's row before that. A try is written in the
//! transaction that queues its command.

use std::collections::BTreeMap;

use bc_proto::id::{BatchId, CommandId, NodeId, TenantId, WorkflowId};
use bc_proto::rules::state::State;
use bc_proto::rules::workflow::{self as rules, Phase, Standing, StepStanding};
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::kinds::Digest;
use super::{Error, code, corrupt, signed, unsigned};

/// The most workflows on one page.
pub const MAX_PAGE: u32 = 200;

/// The key of the advisory lock that keeps replicas from acting at the same time; any number that nothing else here uses.
const LOCK: i64 = 0x776f_726b_666c;

/// A workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Workflow {
    /// Its id.
    pub id: WorkflowId,
    /// Whose the node is.
    pub tenant: TenantId,
    /// The node.
    pub node: NodeId,
    /// The life of the node that it is for.
    pub incarnation: u64,
    /// SHA-256 of the request that began it.
    pub request: [u8; 32],
    /// Why, in words.
    pub reason: String,
    /// Who began it.
    pub requested_by: String,
    /// Whether the node stays set apart though all diagnostics pass.
    pub keeps_quarantine: bool,
    /// How often a person had it go on, and once for its beginning.
    pub attempt: u32,
    /// Where it stands.
    pub standing: Standing,
    /// Why it ended so; empty before, and for success.
    pub why: String,
    /// When it began.
    pub created_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
    /// When somebody wanted it called off, and who.
    pub cancel: Option<(OffsetDateTime, String)>,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The kind of its command.
    pub kind: String,
    /// The component.
    pub digest: Digest,
    /// Canonical JSON.
    pub payload: Vec<u8>,
    /// How long its command may wait.
    pub deadline_seconds: u32,
    /// Where it stands.
    pub standing: StepStanding,
    /// Why, as a stable code.
    pub reason: String,
    /// How often it was begun since a person last had it begin.
    pub tries: u32,
    /// Whether its kind is destructive.
    pub is_destructive: bool,
    /// Whether results of its kind have to be signed.
    pub is_attested: bool,
    /// Whether its kind ends the daemon that runs it.
    pub is_self_terminating: bool,
    /// Its newest command.
    pub newest: Option<Try>,
    /// How many commands it has had in all.
    pub commands: u32,
}

/// A command of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Try {
    /// The command.
    pub command: CommandId,
    /// Its batch.
    pub batch: Option<BatchId>,
    /// When it was queued.
    pub began_at: OffsetDateTime,
    /// When its end was taken note of.
    pub ended_at: Option<OffsetDateTime>,
    /// Where the command stands.
    pub state: State,
    /// Whether it is held until its batch has its approvals.
    pub is_held: bool,
}

impl Step {
    /// What it is called.
    pub fn name(&self) -> &str {
        match Phase::of(&self.kind) {
            Phase::Acceptance => &self.kind,
            phase => phase.name(),
        }
    }
}

impl Workflow {
    /// As the rules see it.
    pub fn rules(&self) -> rules::Workflow {
        let step = |it: &Step| rules::Step { phase: Phase::of(&it.kind), standing: it.standing, tries: it.tries };
        rules::Workflow {
            standing: self.standing,
            is_cancelling: self.cancel.is_some(),
            steps: self.steps.iter().map(step).collect(),
        }
    }
}

struct Row {
    id: Uuid,
    tenant_id: Uuid,
    node_id: Uuid,
    incarnation: i64,
    request_sha256: Vec<u8>,
    reason: String,
    requested_by: String,
    keeps_quarantine: bool,
    attempt: i32,
    standing: String,
    why: String,
    created_at: OffsetDateTime,
    ended_at: Option<OffsetDateTime>,
    cancel_requested_at: Option<OffsetDateTime>,
    cancel_requested_by: Option<String>,
}

impl TryFrom<Row> for Workflow {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let id = WorkflowId::from_uuid(row.id);
        let bad = |column| corrupt("workflows", column, id);
        Ok(Self {
            id,
            tenant: TenantId::from_uuid(row.tenant_id),
            node: NodeId::from_uuid(row.node_id),
            incarnation: unsigned("workflows", "incarnation", id, row.incarnation)?,
            request: row.request_sha256.try_into().map_err(|_| bad("request_sha256"))?,
            reason: row.reason,
            requested_by: row.requested_by,
            keeps_quarantine: row.keeps_quarantine,
            attempt: u32::try_from(row.attempt).map_err(|_| bad("attempt"))?,
            standing: row.standing.parse().map_err(|_| bad("standing"))?,
            why: row.why,
            created_at: row.created_at,
            ended_at: row.ended_at,
            cancel: row.cancel_requested_at.zip(row.cancel_requested_by),
            steps: Vec::new(),
        })
    }
}

/// Keeps other replicas from acting until the transaction ends. False: another one acts.
pub async fn lock(db: &mut PgTransaction<'_>) -> Result<bool, Error> {
    let is_ours = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "is_ours!""#, LOCK);
    Ok(is_ours.fetch_one(&mut **db).await?)
}

/// Locks a workflow's row until the transaction ends. The node is locked before.
pub async fn lock_one(db: &mut PgTransaction<'_>, id: WorkflowId) -> Result<(), Error> {
    sqlx::query!("select id from workflows where id = $1 for update", id.uuid()).fetch_optional(&mut **db).await?;
    Ok(())
}

/// A workflow for which there may be something to do, and its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The workflow.
    pub id: WorkflowId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The node.
    pub node: NodeId,
}

/// Workflows that run and wait for no command, or for one that is over, or are to be called off; in the order of their ids, those
/// after `after`.
pub async fn due(db: &mut PgConnection, after: Option<WorkflowId>, limit: u32) -> Result<Vec<Due>, Error> {
    let rows = sqlx::query!(
        "select w.id, w.tenant_id, w.node_id
         from workflows w
         left join workflow_tries t on t.workflow_id = w.id and t.ended_at is null
         left join commands c on c.id = t.command_id
         where w.standing = 'running' and ($1::uuid is null or w.id > $1)
           and (t.command_id is null or w.cancel_requested_at is not null
                or exists (select from settled s where s.node_id = c.node_id and s.seq = c.seq))
         order by w.id limit $2",
        after.map(|id| id.uuid()),
        i64::from(limit),
    )
    .fetch_all(db)
    .await?;
    let due = rows.into_iter().map(|row| Due {
        id: WorkflowId::from_uuid(row.id),
        tenant: TenantId::from_uuid(row.tenant_id),
        node: NodeId::from_uuid(row.node_id),
    });
    Ok(due.collect())
}

/// A workflow of a tenant, whole.
pub async fn find(db: &mut PgConnection, tenant: TenantId, id: WorkflowId) -> Result<Option<Workflow>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, node_id, incarnation, request_sha256, reason, requested_by, keeps_quarantine, attempt,
                  standing::text as "standing!", why, created_at, ended_at, cancel_requested_at, cancel_requested_by
           from workflows where tenant_id = $1 and id = $2"#,
        tenant.uuid(),
        id.uuid(),
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(with_steps(db, vec![row.try_into()?]).await?.pop())
}

/// The workflow of a key.
pub async fn find_by_key(db: &mut PgConnection, tenant: TenantId, key: &str) -> Result<Option<Workflow>, Error> {
    let id = sqlx::query_scalar!(
        "select id from workflows where tenant_id = $1 and idempotency_key = $2",
        tenant.uuid(),
        key,
    );
    match id.fetch_optional(&mut *db).await? {
        Some(id) => find(db, tenant, WorkflowId::from_uuid(id)).await,
        None => Ok(None),
    }
}

/// The workflow that runs on a node.
pub async fn running(db: &mut PgConnection, node: NodeId) -> Result<Option<WorkflowId>, Error> {
    let id = sqlx::query_scalar!("select id from workflows where node_id = $1 and standing = 'running'", node.uuid());
    Ok(id.fetch_optional(db).await?.map(WorkflowId::from_uuid))
}

/// A page of a tenant's workflows, newest first: those older than `below`, of one node or in one standing if that is named.
pub async fn list(
    db: &mut PgConnection,
    tenant: TenantId,
    node: Option<NodeId>,
    standing: Option<Standing>,
    below: Option<WorkflowId>,
    limit: u32,
) -> Result<Vec<Workflow>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id, tenant_id, node_id, incarnation, request_sha256, reason, requested_by, keeps_quarantine, attempt,
                  standing::text as "standing!", why, created_at, ended_at, cancel_requested_at, cancel_requested_by
           from workflows
           where tenant_id = $1 and ($2::uuid is null or node_id = $2)
             and ($3::text is null or standing = $3::text::workflow_standing) and ($4::uuid is null or id < $4)
           order by id desc limit $5"#,
        tenant.uuid(),
        node.map(|id| id.uuid()),
        standing.map(|it| it.to_string()),
        below.map(|id| id.uuid()),
        i64::from(limit.min(MAX_PAGE + 1)),
    )
    .fetch_all(&mut *db)
    .await?;
    let workflows = rows.into_iter().map(Workflow::try_from).collect::<Result<_, _>>()?;
    with_steps(db, workflows).await
}

async fn with_steps(db: &mut PgConnection, mut workflows: Vec<Workflow>) -> Result<Vec<Workflow>, Error> {
    let ids: Vec<Uuid> = workflows.iter().map(|it| it.id.uuid()).collect();
    let rows = sqlx::query!(
        r#"select s.workflow_id, s.kind, s.kind_digest, s.payload, s.deadline_seconds, s.standing::text as "standing!",
                  s.reason, s.tries, k.traits, t.command_id as "command_id?", t.batch_id as "batch_id?",
                  t.began_at as "began_at?", t.ended_at as "ended_at?", c.state as "state?",
                  coalesce(c.not_before = 'infinity', false) as "is_held!",
                  (select count(*) from workflow_tries a
                   where a.workflow_id = s.workflow_id and a.position = s.position) as "commands!"
           from workflow_steps s
           join kinds k on k.digest = s.kind_digest
           left join lateral (
             select * from workflow_tries a where a.workflow_id = s.workflow_id and a.position = s.position
             order by a.number desc limit 1
           ) t on true
           left join lateral (select state, not_before from command_states v where v.id = t.command_id offset 0) c on true
           where s.workflow_id = any($1) order by s.workflow_id, s.position"#,
        &ids,
    )
    .fetch_all(db)
    .await?;
    let mut steps: BTreeMap<Uuid, Vec<Step>> = BTreeMap::new();
    for row in rows {
        let id = WorkflowId::from_uuid(row.workflow_id);
        let bad = |column| corrupt("workflow_steps", column, id);
        let is = |word: &str| row.traits.iter().any(|it| it == word);
        let newest = match (row.command_id, row.began_at) {
            (Some(command), Some(began_at)) => Some(Try {
                command: CommandId::from_uuid(command),
                batch: row.batch_id.map(BatchId::from_uuid),
                began_at,
                ended_at: row.ended_at,
                state: row.state.as_deref().and_then(code::parse_state).ok_or_else(|| bad("command_id"))?,
                is_held: row.is_held,
            }),
            _ => None,
        };
        steps.entry(row.workflow_id).or_default().push(Step {
            is_destructive: is("destructive"),
            is_attested: is("attested"),
            is_self_terminating: is("self-terminating"),
            kind: row.kind,
            digest: row.kind_digest.try_into().map_err(|_| bad("kind_digest"))?,
            payload: row.payload,
            deadline_seconds: u32::try_from(row.deadline_seconds).map_err(|_| bad("deadline_seconds"))?,
            standing: row.standing.parse().map_err(|_| bad("standing"))?,
            reason: row.reason,
            tries: u32::try_from(row.tries).map_err(|_| bad("tries"))?,
            newest,
            commands: u32::try_from(row.commands).unwrap_or(u32::MAX),
        });
    }
    for workflow in &mut workflows {
        workflow.steps = steps.remove(&workflow.id.uuid()).unwrap_or_default();
    }
    Ok(workflows)
}

/// Writes a workflow that begins, with its steps and its event.
pub async fn insert(db: &mut PgTransaction<'_>, new: &Workflow, key: &str) -> Result<(), Error> {
    sqlx::query!(
        "insert into workflows (id, tenant_id, node_id, incarnation, idempotency_key, request_sha256, reason, requested_by,
                                keeps_quarantine, attempt, standing, why, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, 'running', '', $10)",
        new.id.uuid(),
        new.tenant.uuid(),
        new.node.uuid(),
        signed(new.incarnation),
        key,
        &new.request[..],
        new.reason,
        new.requested_by,
        new.keeps_quarantine,
        new.created_at,
    )
    .execute(&mut **db)
    .await?;
    let positions: Vec<i32> = (0..).take(new.steps.len()).collect();
    let kinds: Vec<String> = new.steps.iter().map(|it| it.kind.clone()).collect();
    let digests: Vec<Vec<u8>> = new.steps.iter().map(|it| it.digest.to_vec()).collect();
    let payloads: Vec<Vec<u8>> = new.steps.iter().map(|it| it.payload.clone()).collect();
    let deadlines: Vec<i32> =
        new.steps.iter().map(|it| i32::try_from(it.deadline_seconds).unwrap_or(i32::MAX)).collect();
    sqlx::query!(
        "insert into workflow_steps (workflow_id, position, kind, kind_digest, payload, deadline_seconds, standing, reason,
                                     tries)
         select $1, a.position, a.kind, a.digest, a.payload, a.deadline, 'waiting', '', 0
         from unnest($2::int[], $3::text[], $4::bytea[], $5::bytea[], $6::int[])
           as a (position, kind, digest, payload, deadline)",
        new.id.uuid(),
        &positions,
        &kinds,
        &digests,
        &payloads,
        &deadlines,
    )
    .execute(&mut **db)
    .await?;
    say_started(db, new.id, 1, new.created_at).await
}

async fn say_started(
    db: &mut PgTransaction<'_>,
    id: WorkflowId,
    attempt: u32,
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into events (tenant_id, node_id, topic, body, at)
         select tenant_id, node_id, 'workflow.started',
                jsonb_build_object('workflowId', $2::text, 'attempt', $3::int, 'kinds',
                                   (select jsonb_agg(kind order by position) from workflow_steps where workflow_id = id)), $4
         from workflows where id = $1",
        id.uuid(),
        id.to_string(),
        i32::try_from(attempt).unwrap_or(i32::MAX),
        now,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// A command of a step that is about to be queued.
#[derive(Debug, Clone, Copy)]
pub struct NewTry {
    /// The command.
    pub command: CommandId,
    /// Its number among those of its kind on the node.
    pub number: u32,
    /// Its batch.
    pub batch: Option<BatchId>,
}

/// The number of the next command of a kind that workflows queue for a node. The node is locked.
pub async fn next_number(db: &mut PgTransaction<'_>, node: NodeId, kind: &str) -> Result<u32, Error> {
    let last = sqlx::query_scalar!(
        r#"select coalesce(max(number), 0) as "last!" from workflow_tries where node_id = $1 and kind = $2"#,
        node.uuid(),
        kind,
    );
    let last = last.fetch_one(&mut **db).await?;
    u32::try_from(last).map(|last| last + 1).map_err(|_| corrupt("workflow_tries", "number", node))
}

/// Writes that a step is begun.
pub async fn insert_try(
    db: &mut PgTransaction<'_>,
    workflow: &Workflow,
    at: usize,
    new: NewTry,
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "insert into workflow_tries (command_id, workflow_id, position, node_id, kind, number, attempt, batch_id, began_at,
                                     reason)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, '')",
        new.command.uuid(),
        workflow.id.uuid(),
        position(at),
        workflow.node.uuid(),
        workflow.steps[at].kind,
        i32::try_from(new.number).unwrap_or(i32::MAX),
        i32::try_from(workflow.attempt).unwrap_or(i32::MAX),
        new.batch.map(|id| id.uuid()),
        now,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// Notes that the end of a command was looked at.
pub async fn end_try(
    db: &mut PgTransaction<'_>,
    command: CommandId,
    reason: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "update workflow_tries set ended_at = $2, reason = $3 where command_id = $1 and ended_at is null",
        command.uuid(),
        now,
        reason,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// Writes where a step stands, with its event.
pub async fn set_step(
    db: &mut PgTransaction<'_>,
    workflow: &Workflow,
    at: usize,
    (step, reason): (rules::Step, &str),
    command: Option<(CommandId, Option<BatchId>)>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "with changed as (
           update workflow_steps set standing = $3::text::workflow_step_standing, reason = $4, tries = $5
           where workflow_id = $1 and position = $2
         )
         insert into events (tenant_id, node_id, command_id, topic, body, at)
         select tenant_id, node_id, $6, 'workflow.step',
                jsonb_strip_nulls(jsonb_build_object('workflowId', $7::text, 'step', $8::text, 'state', $3::text,
                                                     'reason', $4::text, 'batchId', $9::text)), $10
         from workflows where id = $1",
        workflow.id.uuid(),
        position(at),
        step.standing.to_string(),
        reason,
        i32::try_from(step.tries).unwrap_or(i32::MAX),
        command.map(|(id, _)| id.uuid()),
        workflow.id.to_string(),
        workflow.steps[at].name(),
        command.and_then(|(_, batch)| batch).map(|id| id.to_string()),
        now,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

fn position(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}

/// Ends a workflow, with its event.
pub async fn end(
    db: &mut PgTransaction<'_>,
    id: WorkflowId,
    standing: Standing,
    why: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "with ended as (
           update workflows set standing = $2::text::workflow_standing, why = $3, ended_at = $4
           where id = $1 and standing = 'running'
           returning tenant_id, node_id, attempt
         )
         insert into events (tenant_id, node_id, topic, body, at)
         select tenant_id, node_id, 'workflow.ended',
                jsonb_build_object('workflowId', $5::text, 'attempt', attempt, 'state', $2::text, 'why', $3::text), $4
         from ended",
        id.uuid(),
        standing.to_string(),
        why,
        now,
        id.to_string(),
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// Notes that somebody wants a workflow called off; the first one stays.
pub async fn cancel(db: &mut PgTransaction<'_>, id: WorkflowId, by: &str, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "update workflows set cancel_requested_at = $2, cancel_requested_by = $3
         where id = $1 and standing = 'running' and cancel_requested_at is null",
        id.uuid(),
        now,
        by,
    )
    .execute(&mut **db)
    .await?;
    Ok(())
}

/// Has a workflow go on, with its steps as the rules then say, in the node's present life.
pub async fn retry(
    db: &mut PgTransaction<'_>,
    workflow: &Workflow,
    after: &rules::Workflow,
    incarnation: u64,
    now: OffsetDateTime,
) -> Result<(), Error> {
    sqlx::query!(
        "update workflows set standing = 'running', why = '', ended_at = null, attempt = attempt + 1, incarnation = $2,
                cancel_requested_at = null, cancel_requested_by = null
         where id = $1",
        workflow.id.uuid(),
        signed(incarnation),
    )
    .execute(&mut **db)
    .await?;
    let standings: Vec<String> = after.steps.iter().map(|it| it.standing.to_string()).collect();
    sqlx::query!(
        "update workflow_steps s set standing = a.standing::workflow_step_standing,
                reason = case when a.standing = 'waiting' then '' else s.reason end,
                tries = case when a.standing = 'waiting' then 0 else s.tries end
         from unnest($2::text[]) with ordinality as a (standing, position)
         where s.workflow_id = $1 and s.position = a.position - 1",
        workflow.id.uuid(),
        &standings,
    )
    .execute(&mut **db)
    .await?;
    say_started(db, workflow.id, workflow.attempt + 1, now).await
}
