//! What people do with workflows: begin one, call it off, have it go on.
//!
//! **Invariant:** all is decided under the node's lock: a node whose GPUs are reserved is not set apart for a wipe, and no GPU of one
//! that is set apart is reserved.

use bc_proto::id::{AllocationId, NodeId, TenantId, WorkflowId};
use bc_proto::rules::workflow::{Standing, StepStanding};
use sqlx::PgTransaction;
use time::OffsetDateTime;

use crate::desired;
use crate::store::kinds::Digest;
use crate::store::quarantines::{self, Quarantine};
use crate::store::workflows::{self, Step, Workflow};
use crate::store::{Error, nodes, reservations, specs};

/// A step of a new workflow. Whoever makes one has asked its kind whether it takes the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStep {
    /// The kind.
    pub kind: String,
    /// The component that validated the payload.
    pub digest: Digest,
    /// Canonical JSON.
    pub payload: Vec<u8>,
    /// How long its command may wait to be accepted.
    pub deadline_seconds: u32,
    /// Whether the kind is destructive.
    pub is_destructive: bool,
}

/// A workflow to begin. Whoever makes one has asked the rules whether its steps are one.
#[derive(Debug, Clone)]
pub struct NewWorkflow {
    /// Its id, if it is new.
    pub id: WorkflowId,
    /// Whose the node is.
    pub tenant: TenantId,
    /// The node.
    pub node: NodeId,
    /// Unique per tenant.
    pub idempotency_key: String,
    /// SHA-256 of what the key stands for.
    pub request: [u8; 32],
    /// Why, in words.
    pub reason: String,
    /// Who begins it.
    pub requested_by: String,
    /// Whether the node stays set apart though all diagnostics pass.
    pub keeps_quarantine: bool,
    /// Its steps, in order.
    pub steps: Vec<NewStep>,
}

/// Why something destructive does not begin on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InUse {
    /// It is reserved.
    Reserved(Vec<AllocationId>),
    /// Its spec has instances.
    Instances(Vec<String>),
}

/// What became of the wish for a workflow.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// It goes on by itself from here.
    New(WorkflowId),
    /// The key's workflow was begun earlier.
    Existing(WorkflowId),
}

/// Why a workflow does not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotBegun {
    /// The tenant has no such node.
    UnknownNode,
    /// The key's workflow is another one.
    Conflict(WorkflowId),
    /// Another one runs on the node.
    Running(WorkflowId),
    /// The node is in use.
    InUse(InUse),
}

/// Begins a workflow and sets its node apart, in the caller's transaction. Commit, and then tell [`crate::bus::Signal::Events`].
pub async fn begin(
    db: &mut PgTransaction<'_>,
    new: NewWorkflow,
    now: OffsetDateTime,
) -> Result<Result<Begun, NotBegun>, Error> {
    if !specs::lock(db, new.tenant, new.node).await? {
        return Ok(Err(NotBegun::UnknownNode));
    }
    if let Some(found) = workflows::find_by_key(db, new.tenant, &new.idempotency_key).await? {
        let is_same = found.request == new.request && found.node == new.node;
        return Ok(if is_same { Ok(Begun::Existing(found.id)) } else { Err(NotBegun::Conflict(found.id)) });
    }
    if let Some(other) = workflows::running(db, new.node).await? {
        return Ok(Err(NotBegun::Running(other)));
    }
    if new.steps.iter().any(|step| step.is_destructive)
        && let Some(in_use) = in_use(db, new.node).await?
    {
        return Ok(Err(NotBegun::InUse(in_use)));
    }
    let Some(node) = nodes::find(db, new.tenant, new.node).await? else { return Ok(Err(NotBegun::UnknownNode)) };
    let step = |it: NewStep| Step {
        kind: it.kind,
        digest: it.digest,
        payload: it.payload,
        deadline_seconds: it.deadline_seconds,
        standing: StepStanding::Waiting,
        reason: String::new(),
        tries: 0,
        is_destructive: it.is_destructive,
        is_attested: false,
        is_self_terminating: false,
        newest: None,
        commands: 0,
    };
    let workflow = Workflow {
        id: new.id,
        tenant: new.tenant,
        node: new.node,
        incarnation: node.incarnation,
        request: new.request,
        reason: new.reason,
        requested_by: new.requested_by,
        keeps_quarantine: new.keeps_quarantine,
        attempt: 1,
        standing: Standing::Running,
        why: String::new(),
        created_at: now,
        ended_at: None,
        cancel: None,
        steps: new.steps.into_iter().map(step).collect(),
    };
    workflows::insert(db, &workflow, &new.idempotency_key).await?;
    set_apart(db, &workflow, &workflow.requested_by, now).await?;
    Ok(Ok(Begun::New(new.id)))
}

async fn set_apart(
    db: &mut PgTransaction<'_>,
    workflow: &Workflow,
    by: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let quarantine =
        Quarantine { workflow: Some(workflow.id), reason: workflow.reason.clone(), by: by.to_owned(), since: now };
    quarantines::set(db, (workflow.tenant, workflow.node), &quarantine).await?;
    Ok(())
}

/// What of a node is in use. The node is locked.
async fn in_use(db: &mut PgTransaction<'_>, node: NodeId) -> Result<Option<InUse>, Error> {
    let holds = reservations::holds(db, node).await?;
    if !holds.is_empty() {
        return Ok(Some(InUse::Reserved(holds.into_iter().map(|hold| hold.allocation).collect())));
    }
    let instances = match specs::newest(db, node).await? {
        Some(spec) => desired::parse(&spec)?.instances,
        None => Vec::new(),
    };
    let names: Vec<String> = instances.into_iter().map(|instance| instance.id).collect();
    Ok((!names.is_empty()).then_some(InUse::Instances(names)))
}

/// Notes that a workflow is wanted called off; the module does it. Returns it as it stands; `None`: the tenant has none such.
pub async fn cancel(
    db: &mut PgTransaction<'_>,
    tenant: TenantId,
    id: WorkflowId,
    by: &str,
    now: OffsetDateTime,
) -> Result<Option<Workflow>, Error> {
    workflows::lock_one(db, id).await?;
    let Some(found) = workflows::find(db, tenant, id).await? else { return Ok(None) };
    if found.rules().cancel() {
        workflows::cancel(db, id, by, now).await?;
    }
    workflows::find(db, tenant, id).await
}

/// Why a workflow does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRetried {
    /// The tenant has none such.
    Unknown,
    /// The node was deleted.
    UnknownNode,
    /// It runs, or has succeeded.
    Stands(Standing),
    /// Another one runs on the node.
    Running(WorkflowId),
    /// The node is in use.
    InUse(InUse),
}

/// A person has a workflow go on from the step that did not succeed. Commit, and then tell [`crate::bus::Signal::Events`].
pub async fn retry(
    db: &mut PgTransaction<'_>,
    (tenant, id): (TenantId, WorkflowId),
    by: &str,
    now: OffsetDateTime,
) -> Result<Result<(), NotRetried>, Error> {
    let Some(found) = workflows::find(db, tenant, id).await? else { return Ok(Err(NotRetried::Unknown)) };
    if !specs::lock(db, tenant, found.node).await? {
        return Ok(Err(NotRetried::UnknownNode));
    }
    workflows::lock_one(db, id).await?;
    let Some(found) = workflows::find(db, tenant, id).await? else { return Ok(Err(NotRetried::Unknown)) };
    let mut rules = found.rules();
    if !rules.retry() {
        return Ok(Err(NotRetried::Stands(found.standing)));
    }
    if let Some(other) = workflows::running(db, found.node).await? {
        return Ok(Err(NotRetried::Running(other)));
    }
    let destroys = |(step, rules): (&Step, _)| step.is_destructive && rules == StepStanding::Waiting;
    let mut left = found.steps.iter().zip(rules.steps.iter().map(|it| it.standing));
    if left.any(destroys)
        && let Some(in_use) = in_use(db, found.node).await?
    {
        return Ok(Err(NotRetried::InUse(in_use)));
    }
    let Some(node) = nodes::find(db, tenant, found.node).await? else { return Ok(Err(NotRetried::UnknownNode)) };
    workflows::retry(db, &found, &rules, node.incarnation, now).await?;
    set_apart(db, &found, by, now).await?;
    Ok(Ok(()))
}
