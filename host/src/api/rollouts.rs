//! `rollouts.start`, `list`, `get`, `pause`, `resume` and `cancel`.
//!
//! **Invariant:** who starts or changes a rollout may run commands on every one of its nodes.

use axum::Json;
use axum::extract::State;
use bc_proto::id::RolloutId;
use bc_proto::rules::rollout::{self as rules, Limits, MAX_NODES};
use sqlx::Connection as _;

use super::App;
use super::auth::{Caller, KINDS_READ, NODES_EXEC, NODES_READ};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::releases::{KIND, digest};
use super::types::{self, ListRollouts, Page, RolloutNode, RolloutRef, StartRollout};
use crate::bus::Signal;
use crate::store::nodes::{self, MAX_PAGE};
use crate::store::releases;
use crate::store::rollouts::{self, Member, Rollout, State as Standing};

/// The most rollouts in one answer.
const MAX_LIST: u32 = 200;

/// The most labels of a selection.
const MAX_LABELS: usize = 32;

/// Bring a release to nodes, few at a time.
///
/// The nodes are those that have the labels now. The same key again answers the rollout as it stands.
#[utoipa::path(post, path = "/v1/rollouts.start", operation_id = "rollouts.start", tag = "rollouts",
    request_body = StartRollout, responses((status = 200, description = "The rollout", body = types::Rollout), Errors))]
pub(super) async fn start(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<StartRollout>,
) -> Result<Json<types::Rollout>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let sha256 = digest("sha256", &ask.sha256, &mut rules);
    let max_nodes = u32::try_from(MAX_NODES).unwrap_or(u32::MAX);
    let max_unavailable = rules.number("maxUnavailable", ask.max_unavailable, 1, max_nodes, 1);
    let max_failures = rules.number("maxFailures", ask.max_failures, 0, max_nodes, 0);
    rules.rule(rules::are_percents(&ask.waves), "waves", "must be at most 10 rising percents from 1 to 99");
    rules.rule(ask.labels.len() <= MAX_LABELS, "labels", format!("must be at most {MAX_LABELS}"));
    rules.text("idempotencyKey", &ask.idempotency_key, 1, 200);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_kind(KINDS_READ, KIND)?;
    let mut db = app.db().await?;
    if let Some(known) = rollouts::of_key(&mut db, tenant, &ask.idempotency_key).await? {
        if known.sha256 != sha256 {
            return Err(Failure::state(
                "key-taken",
                format!("idempotencyKey: it means {}, which is another rollout", known.id),
            ));
        }
        return Ok(Json(document(known.clone(), rollouts::members(&mut db, known.id).await?)));
    }
    let release = releases::find(&mut db, sha256).await?;
    let release = release.ok_or_else(|| Failure::not_found("release", &ask.sha256))?;
    let mut chosen = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = nodes::list(&mut db, tenant, &ask.labels, MAX_PAGE, after.as_deref()).await?;
        let is_last = page.len() < MAX_PAGE as usize;
        after = page.last().map(|node| node.name.clone());
        chosen.extend(page.into_iter().map(|node| node.id));
        if chosen.len() > MAX_NODES {
            return Err(Failure::field("labels", format!("more than {MAX_NODES} nodes have them")));
        }
        if is_last {
            break;
        }
    }
    chosen.retain(|node| caller.may(NODES_READ, &format!("compute-node/{node}")));
    if chosen.is_empty() {
        return Err(Failure::field("labels", "no node has them"));
    }
    for node in &chosen {
        caller.on_node(NODES_EXEC, *node)?;
    }
    let waves = rules::waves(chosen.len(), &ask.waves);
    let chosen: Vec<_> = chosen.into_iter().zip(waves).collect();
    let rollout = Rollout {
        id: RolloutId::from_uuid(app.world.uuid()),
        tenant,
        sha256,
        version: release.version,
        limits: Limits { max_unavailable, max_failures, forgiven: 0 },
        allow_downgrade: ask.allow_downgrade,
        state: Standing::Running,
        reason: String::new(),
        requested_by: caller.holder.name.clone(),
        created_at: app.now(),
        ended_at: None,
    };
    let mut tx = db.begin().await?;
    if !rollouts::insert(&mut tx, &rollout, &ask.idempotency_key, &chosen).await? {
        return Err(Failure::state("key-taken", "idempotencyKey: it was used this moment; try again"));
    }
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    let members = rollouts::members(&mut db, rollout.id).await?;
    Ok(Json(document(rollout, members)))
}

/// List rollouts, newest first; at most 200.
#[utoipa::path(post, path = "/v1/rollouts.list", operation_id = "rollouts.list", tag = "rollouts",
    request_body = ListRollouts, responses((status = 200, description = "The rollouts", body = Page<types::Rollout>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListRollouts>,
) -> Result<Json<Page<types::Rollout>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_kind(KINDS_READ, KIND)?;
    let found = rollouts::list(&mut *app.db().await?, tenant, MAX_LIST).await?;
    Ok(Json(Page { items: found.into_iter().map(|it| document(it, Vec::new())).collect(), next_cursor: None }))
}

/// Get a rollout with its nodes, as far as the caller may read them.
#[utoipa::path(post, path = "/v1/rollouts.get", operation_id = "rollouts.get", tag = "rollouts",
    request_body = RolloutRef, responses((status = 200, description = "The rollout", body = types::Rollout), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RolloutRef>,
) -> Result<Json<types::Rollout>, Failure> {
    let mut rules = Rules::default();
    let (tenant, id) = (rules.tenant(&ask.tenant_id), rules.id("rolloutId", &ask.rollout_id));
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_kind(KINDS_READ, KIND)?;
    let mut db = app.db().await?;
    let found = rollouts::find(&mut db, tenant, id).await?.ok_or_else(|| Failure::not_found("rollout", id))?;
    let mut members = rollouts::members(&mut db, id).await?;
    members.retain(|it| caller.may(NODES_READ, &format!("compute-node/{}", it.node)));
    Ok(Json(document(found, members)))
}

/// Begin no more steps for now. What is under way goes on.
#[utoipa::path(post, path = "/v1/rollouts.pause", operation_id = "rollouts.pause", tag = "rollouts",
    request_body = RolloutRef, responses((status = 200, description = "The rollout", body = types::Rollout), Errors))]
pub(super) async fn pause(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RolloutRef>,
) -> Result<Json<types::Rollout>, Failure> {
    change(&app, &caller, &ask, Standing::Paused).await
}

/// Go on. Failures so far count no more.
#[utoipa::path(post, path = "/v1/rollouts.resume", operation_id = "rollouts.resume", tag = "rollouts",
    request_body = RolloutRef, responses((status = 200, description = "The rollout", body = types::Rollout), Errors))]
pub(super) async fn resume(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RolloutRef>,
) -> Result<Json<types::Rollout>, Failure> {
    change(&app, &caller, &ask, Standing::Running).await
}

/// Begin no more steps for good. What is under way goes on, and nothing is taken back.
#[utoipa::path(post, path = "/v1/rollouts.cancel", operation_id = "rollouts.cancel", tag = "rollouts",
    request_body = RolloutRef, responses((status = 200, description = "The rollout", body = types::Rollout), Errors))]
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RolloutRef>,
) -> Result<Json<types::Rollout>, Failure> {
    change(&app, &caller, &ask, Standing::Cancelled).await
}

/// Changes where a rollout stands; what it is already it stays.
async fn change(app: &App, caller: &Caller, ask: &RolloutRef, to: Standing) -> Result<Json<types::Rollout>, Failure> {
    let mut rules = Rules::default();
    let (tenant, id) = (rules.tenant(&ask.tenant_id), rules.id("rolloutId", &ask.rollout_id));
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_kind(KINDS_READ, KIND)?;
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    let found = rollouts::lock(&mut tx, id).await?.filter(|it| it.tenant == tenant);
    let mut rollout = found.ok_or_else(|| Failure::not_found("rollout", id))?;
    let members = rollouts::members(&mut tx, id).await?;
    for member in &members {
        caller.on_node(NODES_EXEC, member.node)?;
    }
    if rollout.state != to {
        if rollout.state.is_over() {
            return Err(Failure::state("over", format!("{id} is {}: start another one", rollout.state)));
        }
        let reason = if to == Standing::Running { "" } else { "asked" };
        rollouts::change(&mut tx, &mut rollout, to, reason, app.now()).await?;
        tx.commit().await?;
        app.bus.tell(Signal::Events);
    }
    Ok(Json(document(rollout, members)))
}

fn document(rollout: Rollout, members: Vec<Member>) -> types::Rollout {
    let node = |it: Member| RolloutNode {
        node_id: it.node.to_string(),
        name: it.name,
        wave: it.wave,
        step: it.step.to_string(),
        reason: it.reason,
        connected: it.is_connected,
        command_id: it.command.map(|id| id.to_string()),
    };
    types::Rollout {
        id: rollout.id.to_string(),
        version: rollout.version,
        sha256: hex::encode(rollout.sha256),
        state: rollout.state.to_string(),
        reason: rollout.reason,
        max_unavailable: rollout.limits.max_unavailable,
        max_failures: rollout.limits.max_failures,
        allow_downgrade: rollout.allow_downgrade,
        requested_by: rollout.requested_by,
        created_at: rollout.created_at,
        ended_at: rollout.ended_at,
        nodes: members.into_iter().map(node).collect(),
    }
}
