//! `workflows.create`, `get`, `list`, `cancel` and `retry`.
//!
//! **Invariant:** before anything is done to the node, each step's own component has found its payload right, and stays the one that
//! runs.

use axum::Json;
use axum::extract::State;
use bc_proto::canonical;
use bc_proto::id::{NodeId, TenantId, WorkflowId};
use bc_proto::manifest::{Role, Trait};
use bc_proto::rules::state::State as Stands;
use bc_proto::rules::workflow::{self as rules, Phase, Standing, StepStanding};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

use super::auth::{BATCHES_CREATE, Caller, NODES_EXEC, NODES_READ};
use super::commands::queue_key;
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::quarantines::MAX_REASON;
use super::types::{self, Code, CreateWorkflow, ListWorkflows, Page, WorkflowRef, WorkflowStepRequest};
use super::{App, cursor};
use crate::bus::Signal;
use crate::faults::crash_at;
use crate::modules::metal::{self, Begun, InUse, NewStep, NewWorkflow, NotBegun, NotRetried};
use crate::registry;
use crate::store::workflows::{self, Step, Workflow};
use crate::store::{self, commands, nodes, unix_ms};

/// The most steps of a workflow.
const MAX_STEPS: usize = 16;

/// How long a step's command may wait if nothing is said, seconds; and where people have to approve it.
const DEADLINE: u32 = 3_600;
const DEADLINE_WITH_PEOPLE: u32 = 86_400;

/// Begin a workflow: the node is set apart, and the steps run one after the other.
///
/// A step begins once the one before it is known to have succeeded, by the node's signature where its kind is attested. Each
/// destructive step has a batch of its own, and waits for approvals where they are asked for. The same key again answers the
/// workflow as it stands.
#[utoipa::path(post, path = "/v1/workflows.create", operation_id = "workflows.create", tag = "workflows",
    request_body = CreateWorkflow,
    responses((status = 200, description = "The workflow", body = types::Workflow), Errors))]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<CreateWorkflow>,
) -> Result<Json<types::Workflow>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: NodeId = rules.id("nodeId", &ask.node_id);
    rules.text("reason", &ask.reason, 1, MAX_REASON);
    rules.text("idempotencyKey", &ask.idempotency_key, 1, 200);
    shape(&mut rules, &ask.steps);
    rules.check()?;
    caller.tenant(tenant)?;
    nodes::find(&mut *app.db().await?, tenant, node).await?.ok_or_else(|| Failure::not_found("node", node))?;
    caller.on_node(NODES_EXEC, node)?;
    let key = queue_key(tenant, &caller, &ask.idempotency_key);
    let request = request_sha256(&ask, node);
    // A retry finds its workflow though a kind was retired meanwhile.
    if let Some(found) = workflows::find_by_key(&mut *app.db().await?, tenant, &key).await? {
        if found.request != request {
            return Err(conflict(found.id));
        }
        return answer(&app, tenant, found.id).await;
    }
    let steps = steps(&app, tenant, node, &ask.steps).await?;
    if steps.iter().any(|step| step.is_destructive) {
        caller.on_tenant(BATCHES_CREATE, tenant)?;
    }
    let now = app.now();
    let new = NewWorkflow {
        id: WorkflowId::from_uuid(app.world.uuid()),
        tenant,
        node,
        idempotency_key: key,
        request,
        reason: ask.reason,
        requested_by: caller.holder.name.clone(),
        keeps_quarantine: ask.keep_quarantine,
        steps,
    };
    let mut tx = app.pool.begin().await?;
    let begun = metal::begin(&mut tx, new, now).await?;
    crash_at("workflow-create.before-write");
    tx.commit().await?;
    crash_at("workflow-create.after-write");
    match begun {
        Ok(Begun::New(id)) => {
            app.bus.tell(Signal::Events);
            answer(&app, tenant, id).await
        }
        Ok(Begun::Existing(id)) => answer(&app, tenant, id).await,
        Err(NotBegun::UnknownNode) => Err(Failure::not_found("node", node)),
        Err(NotBegun::Conflict(id)) => Err(conflict(id)),
        Err(NotBegun::Running(id)) => Err(running(node, id)),
        Err(NotBegun::InUse(in_use)) => Err(is_in_use(node, &in_use)),
    }
}

/// What is wrong with steps before any kind is asked.
fn shape(rules: &mut Rules, steps: &[WorkflowStepRequest]) {
    let holds = steps.len() <= MAX_STEPS;
    rules.rule(holds, "steps", format!("must have 1 to {MAX_STEPS} items, but has {}", steps.len()));
    if !holds {
        return;
    }
    for (at, step) in steps.iter().enumerate() {
        let is_name = (1..=64).contains(&step.kind.len()) && step.kind.bytes().all(|byte| byte.is_ascii_graphic());
        rules.rule(is_name, &format!("steps[{at}].kind"), "must be a kind's name, such as metal.disk.wipe");
        let field = format!("steps[{at}].deadlineSeconds");
        rules.number(&field, step.deadline_seconds, 60, 604_800, DEADLINE);
    }
    let kinds: Vec<&str> = steps.iter().map(|step| step.kind.as_str()).collect();
    if let Err(misshapen) = rules::check(&kinds) {
        let field = misshapen.at().map_or_else(|| "steps".to_owned(), |at| format!("steps[{at}].kind"));
        rules.rule(false, &field, misshapen.to_string());
    }
}

/// What a key stands for.
fn request_sha256(ask: &CreateWorkflow, node: NodeId) -> [u8; 32] {
    let steps = serde_json::to_value(&ask.steps).expect("a request is JSON");
    let whole = json!({
        "node": node.to_string(), "reason": ask.reason, "steps": steps, "keepQuarantine": ask.keep_quarantine,
    });
    Sha256::digest(canonical::to_vec(&whole).expect("a JSON value has canonical bytes")).into()
}

/// Asks each step's kind about its payload; answers what runs, or all that is wrong.
async fn steps(
    app: &App,
    tenant: TenantId,
    node: NodeId,
    asked: &[WorkflowStepRequest],
) -> Result<Vec<NewStep>, Failure> {
    let default = if app.config.pki.approvers.is_some() { DEADLINE_WITH_PEOPLE } else { DEADLINE };
    let (mut steps, mut problems) = (Vec::new(), Vec::new());
    // What comes after a boot may find the machine in another role.
    let mut boots = false;
    for (at, step) in asked.iter().enumerate() {
        let payload = canonical::to_vec(&step.payload).expect("a JSON value has canonical bytes");
        let limit = app.config.max_payload_bytes;
        if payload.len() > limit {
            let message = format!("steps[{at}].payload: must have at most {limit} bytes, but has {}", payload.len());
            return Err(Failure::new(Code::TooLarge, message).with(json!({ "limit": limit, "bytes": payload.len() })));
        }
        let phase = Phase::of(&step.kind);
        let prospect = commands::prospect(&mut *app.db().await?, tenant, node, "", &step.kind).await?;
        let prospect = prospect.ok_or_else(|| Failure::not_found("node", node))?;
        let is_open = |exposed| {
            let is_own = phase != Phase::Acceptance || step.kind.starts_with("diag.");
            is_own || registry::accepts(&step.kind, exposed)
        };
        let Some((digest, _)) = prospect.kind.filter(|&(_, exposed)| is_open(exposed)) else {
            let message = format!("steps[{at}].kind: {} is not a kind that workflows take on this server", step.kind);
            return Err(Failure::new(Code::Unsupported, message).with(json!({ "kind": step.kind })));
        };
        let allowed = prospect.allowed_kinds.filter(|_| !boots);
        if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(&step.kind)) {
            let message = format!("node {node} runs a restricted identity that does not accept {}", step.kind);
            let details = json!({ "reason": "restricted-identity", "kind": step.kind, "allowedKinds": allowed });
            return Err(Failure::new(Code::InvalidState, message).with(details));
        }
        let kind = app.registry.kind(&app.pool, digest).await?;
        let manifest = kind.manifest();
        suits(&step.kind, phase, |it| manifest.is(it))?;
        if !boots && !manifest.roles.contains(&prospect.role) {
            return Err(wrong_role(node, &step.kind, prospect.role, manifest.roles.iter().copied()));
        }
        match kind.validate(&step.payload).await {
            Ok(found) => problems.extend(found.into_iter().map(|it| (at, it))),
            Err(outcome) => {
                let message = format!("{} could not check the payload: `validate` {outcome}", step.kind);
                let details = json!({ "reason": "validate-failed", "kind": step.kind, "digest": kind.digest() });
                return Err(Failure::new(Code::InvalidState, message).with(details));
            }
        }
        boots |= phase == Phase::Reboot;
        steps.push(NewStep {
            kind: step.kind.clone(),
            digest,
            payload,
            deadline_seconds: step.deadline_seconds.unwrap_or(default),
            is_destructive: manifest.is(Trait::Destructive),
        });
    }
    let Some((at, first)) = problems.first() else { return Ok(steps) };
    let more = if problems.len() > 1 { format!(" (and {} more)", problems.len() - 1) } else { String::new() };
    let message = format!("steps[{at}]: {} does not take this payload: {first}{more}", asked[*at].kind);
    let listed: Vec<Value> = problems
        .iter()
        .map(|(at, it)| json!({ "step": at, "kind": asked[*at].kind, "pointer": it.pointer, "rule": it.message }))
        .collect();
    Err(Failure::new(Code::InvalidInput, message).with(json!({ "problems": listed })))
}

/// Whether what is registered under a name may do what the phase trusts it with.
fn suits(kind: &str, phase: Phase, is: impl Fn(Trait) -> bool) -> Result<(), Failure> {
    let (holds, rule) = match phase {
        // Else a gateway could say that disks were wiped.
        Phase::Wipe | Phase::Deploy => (
            is(Trait::Destructive) && is(Trait::Attested),
            "must be destructive and attested, so that its node signs what it did",
        ),
        Phase::Reboot => (is(Trait::SelfTerminating), "must be self-terminating"),
        Phase::Acceptance => (!is(Trait::Destructive), "is destructive, and no diagnostic"),
    };
    let message = || format!("the registered {kind} {rule}");
    if holds { Ok(()) } else { Err(Failure::state("unfit-kind", message())) }
}

fn wrong_role(node: NodeId, kind: &str, role: Role, roles: impl Iterator<Item = Role>) -> Failure {
    let words: Vec<String> = roles.map(|role| role.to_string()).collect();
    let message = format!("{kind} is for the roles {}, node {node} is a {role}", words.join(", "));
    let details = json!({ "reason": "wrong-role", "kind": kind, "role": role.to_string(), "roles": words });
    Failure::new(Code::InvalidState, message).with(details)
}

fn conflict(id: WorkflowId) -> Failure {
    let message = format!("idempotencyKey: means {id} already, which is another workflow");
    Failure::new(Code::Conflict, message).with(json!({ "workflowId": id.to_string() }))
}

fn running(node: NodeId, id: WorkflowId) -> Failure {
    let message = format!("{id} runs on {node}; wait for its end, or cancel it");
    let details = json!({ "reason": "workflow-running", "workflowId": id.to_string() });
    Failure::new(Code::InvalidState, message).with(details)
}

fn is_in_use(node: NodeId, in_use: &InUse) -> Failure {
    let (what, details) = match in_use {
        InUse::Reserved(ids) => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            (format!("reserved by {}; release that first", ids.join(", ")), json!({ "reservationIds": ids }))
        }
        InUse::Instances(ids) => (
            format!("to have instances ({}); set a spec without them first", ids.join(", ")),
            json!({ "instances": ids }),
        ),
    };
    let mut details = details;
    details["reason"] = json!("node-in-use");
    Failure::new(Code::InvalidState, format!("{node} is {what}")).with(details)
}

/// Show a workflow.
#[utoipa::path(post, path = "/v1/workflows.get", operation_id = "workflows.get", tag = "workflows",
    request_body = WorkflowRef, responses((status = 200, description = "The workflow", body = types::Workflow), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<WorkflowRef>,
) -> Result<Json<types::Workflow>, Failure> {
    let found = named(&app, &caller, NODES_READ, &ask).await?;
    answer(&app, found.tenant, found.id).await
}

/// The workflow that a request names, if the caller may do this with its node.
async fn named(app: &App, caller: &Caller, permission: &str, ask: &WorkflowRef) -> Result<Workflow, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let id: WorkflowId = rules.id("workflowId", &ask.workflow_id);
    rules.check()?;
    caller.tenant(tenant)?;
    let found = workflows::find(&mut *app.db().await?, tenant, id).await?;
    let found = found.filter(|it| caller.may(NODES_READ, &format!("compute-node/{}", it.node)));
    let found = found.ok_or_else(|| Failure::not_found("workflow", id))?;
    caller.on_node(permission, found.node)?;
    Ok(found)
}

/// List workflows, newest first.
#[utoipa::path(post, path = "/v1/workflows.list", operation_id = "workflows.list", tag = "workflows",
    request_body = ListWorkflows,
    responses((status = 200, description = "A page of them", body = Page<types::Workflow>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListWorkflows>,
) -> Result<Json<Page<types::Workflow>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: Option<NodeId> = ask.node_id.as_deref().map(|text| rules.id("nodeId", text));
    let state = ask.state.as_deref().map(|word| word.parse::<Standing>().ok());
    rules.rule(state != Some(None), "state", "must be one of running, succeeded, failed, ambiguous, cancelled");
    let limit = rules.number("limit", ask.limit, 1, workflows::MAX_PAGE, super::DEFAULT_PAGE) as usize;
    let below = ask.cursor.as_deref().map(|text| cursor::open::<String>(text)?.parse::<WorkflowId>().ok());
    rules.rule(below != Some(None), "cursor", cursor::RULE);
    rules.check()?;
    caller.tenant(tenant)?;
    let mut db = app.db().await?;
    if let Some(node) = node {
        caller.on_node(NODES_READ, node)?;
        nodes::find(&mut db, tenant, node).await?.ok_or_else(|| Failure::not_found("node", node))?;
    }
    let mut below = below.flatten();
    let mut seen: Vec<Workflow> = Vec::new();
    // Callers see all nodes or few: what may not be read is passed over a full page at a time.
    loop {
        let page = workflows::list(&mut db, tenant, node, state.flatten(), below, workflows::MAX_PAGE).await?;
        let is_last = page.len() < workflows::MAX_PAGE as usize;
        below = page.last().map(|last| last.id);
        seen.extend(page.into_iter().filter(|it| caller.may(NODES_READ, &format!("compute-node/{}", it.node))));
        if is_last || seen.len() > limit {
            break;
        }
    }
    let has_more = seen.len() > limit;
    seen.truncate(limit);
    let next_cursor = seen.last().filter(|_| has_more).map(|last| cursor::seal(&last.id.to_string()));
    Ok(Json(Page { items: seen.into_iter().map(document).collect(), next_cursor }))
}

/// Call a workflow off: no further step begins, and the command of the open one is cancelled.
///
/// It ends when that command's node has said what became of it. The node stays set apart. One that is over stays as it is.
#[utoipa::path(post, path = "/v1/workflows.cancel", operation_id = "workflows.cancel", tag = "workflows",
    request_body = WorkflowRef, responses((status = 200, description = "The workflow", body = types::Workflow), Errors))]
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<WorkflowRef>,
) -> Result<Json<types::Workflow>, Failure> {
    let found = named(&app, &caller, NODES_EXEC, &ask).await?;
    let mut tx = app.pool.begin().await?;
    metal::cancel(&mut tx, found.tenant, found.id, &caller.holder.name, app.now()).await?;
    tx.commit().await?;
    // The module is woken by what happens.
    app.bus.tell(Signal::Events);
    answer(&app, found.tenant, found.id).await
}

/// Have a workflow go on from the step that did not succeed. Look at the node first.
///
/// What is known to have succeeded is not done again, but that diagnostics are asked anew, all of them.
#[utoipa::path(post, path = "/v1/workflows.retry", operation_id = "workflows.retry", tag = "workflows",
    request_body = WorkflowRef, responses((status = 200, description = "The workflow", body = types::Workflow), Errors))]
pub(super) async fn retry(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<WorkflowRef>,
) -> Result<Json<types::Workflow>, Failure> {
    let found = named(&app, &caller, NODES_EXEC, &ask).await?;
    if found.steps.iter().any(|step| step.is_destructive) {
        caller.on_tenant(BATCHES_CREATE, found.tenant)?;
    }
    let mut tx = app.pool.begin().await?;
    let retried = metal::retry(&mut tx, (found.tenant, found.id), &caller.holder.name, app.now()).await?;
    match retried {
        Ok(()) => {}
        Err(NotRetried::Unknown) => return Err(Failure::not_found("workflow", found.id)),
        Err(NotRetried::UnknownNode) => return Err(Failure::not_found("node", found.node)),
        Err(NotRetried::Stands(standing)) => {
            let message = format!("{} is {standing}; only one that stopped goes on", found.id);
            return Err(Failure::state("not-stopped", message));
        }
        Err(NotRetried::Running(id)) => return Err(running(found.node, id)),
        Err(NotRetried::InUse(in_use)) => return Err(is_in_use(found.node, &in_use)),
    }
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    answer(&app, found.tenant, found.id).await
}

/// The workflow as it stands, with whose approvals it waits for.
async fn answer(app: &App, tenant: TenantId, id: WorkflowId) -> Result<Json<types::Workflow>, Failure> {
    let mut db = app.db().await?;
    let found = workflows::find(&mut db, tenant, id).await?.ok_or_else(|| Failure::not_found("workflow", id))?;
    let held = found.steps.iter().position(|step| step.newest.is_some_and(|it| it.is_held));
    let batch = held.and_then(|at| found.steps[at].newest).and_then(|it| it.batch);
    let mut shown = document(found);
    if let (Some(at), Some(batch)) = (held, batch) {
        shown.steps[at].missing_approvals = missing(app, &mut db, tenant, batch).await?;
    }
    Ok(Json(shown))
}

async fn missing(
    app: &App,
    db: &mut PgConnection,
    tenant: TenantId,
    id: bc_proto::id::BatchId,
) -> Result<Option<u32>, Failure> {
    let Some(policy) = &app.config.pki.approvers else { return Ok(None) };
    let Some(batch) = store::batches::find(&mut *db, tenant, id).await? else { return Ok(None) };
    let received = store::batches::approvals(db, &[id]).await?.remove(&id).unwrap_or_default();
    let approvals: Vec<_> = received.iter().map(|it| it.approval).collect();
    Ok(Some(policy.tally(&batch.document, &approvals, unix_ms(app.now())).missing))
}

fn document(found: Workflow) -> types::Workflow {
    let is_running = found.standing == Standing::Running;
    let mut is_next = is_running;
    let mut steps = Vec::new();
    for step in found.steps {
        let waits = waits_for(&step, is_next);
        is_next &= step.standing == StepStanding::Succeeded;
        steps.push(step_document(step, waits));
    }
    let (cancel_requested_at, cancel_requested_by) = found.cancel.unzip();
    types::Workflow {
        id: found.id.to_string(),
        tenant_id: found.tenant.to_string(),
        node_id: found.node.to_string(),
        state: found.standing.to_string(),
        why: found.why,
        reason: found.reason,
        requested_by: found.requested_by,
        keep_quarantine: found.keeps_quarantine,
        attempt: found.attempt,
        steps,
        created_at: found.created_at,
        ended_at: found.ended_at,
        cancel_requested_at,
        cancel_requested_by,
    }
}

fn waits_for(step: &Step, is_next: bool) -> Option<&'static str> {
    match (step.standing, step.newest) {
        (StepStanding::Open, Some(newest)) if newest.is_held => Some("approvals"),
        (StepStanding::Open, Some(newest)) if newest.state == Stands::Pending => Some("node"),
        (StepStanding::Open, Some(_)) => Some("result"),
        (StepStanding::Waiting, _) if is_next && step.is_destructive => Some("other-commands"),
        _ => None,
    }
}

fn step_document(step: Step, waits_for: Option<&'static str>) -> types::WorkflowStep {
    types::WorkflowStep {
        step: step.name().to_owned(),
        kind_digest: hex::encode(step.digest),
        payload: serde_json::from_slice(&step.payload).unwrap_or_default(),
        destructive: step.is_destructive,
        state: step.standing.to_string(),
        tries: step.tries,
        deadline_seconds: step.deadline_seconds,
        command_id: step.newest.map(|it| it.command.to_string()),
        command_state: step.newest.map(|it| it.state.to_string()),
        batch_id: step.newest.and_then(|it| it.batch).map(|id| id.to_string()),
        waits_for: waits_for.map(str::to_owned),
        missing_approvals: None,
        began_at: step.newest.map(|it| it.began_at),
        ended_at: step.newest.and_then(|it| it.ended_at),
        kind: step.kind,
        reason: step.reason,
    }
}
