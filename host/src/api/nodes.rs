//! `nodes.list`, `get`, `label`, `delete` and `createJoinToken`.
//!
//! **Invariant:** a list holds only nodes that its caller may read, and a page is short only when there are no more.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use bc_proto::id::{NodeId, TenantId};
use time::Duration;

use super::auth::{Caller, NODES_JOIN, NODES_READ, NODES_WRITE};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, CreateJoinToken, JoinToken, LabelNode, ListNodes, NodeRef, Page};
use super::{App, cursor};
use crate::bus::Signal;
use crate::queue::life;
use crate::store::join_tokens::{self, NewJoinToken};
use crate::store::nodes::{self, Node};
use crate::store::{code, conditions, quarantines, remediations};

/// The most labels of a node.
const MAX_LABELS: usize = 64;

/// The longest name and the longest value of a label, characters.
const MAX_LABEL: usize = 63;

/// The most kinds that a restricted identity is allowed.
const MAX_ALLOWED_KINDS: usize = 100;

/// How long a join token is good if nothing is said, seconds.
const DEFAULT_JOIN: u32 = 3600;

/// List the tenant's nodes by name.
#[utoipa::path(post, path = "/v1/nodes.list", operation_id = "nodes.list", tag = "nodes",
    request_body = ListNodes,
    responses((status = 200, description = "A page of them", body = Page<types::Node>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListNodes>,
) -> Result<Json<Page<types::Node>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    for (name, value) in &ask.labels {
        label(&mut rules, name, Some(value));
    }
    rules.rule(ask.labels.len() <= MAX_LABELS, "labels", format!("must have at most {MAX_LABELS} items"));
    let limit = rules.number("limit", ask.limit, 1, nodes::MAX_PAGE, super::DEFAULT_PAGE) as usize;
    let after = ask.cursor.as_deref().map(cursor::open::<String>);
    let is_text = after.as_ref().is_none_or(|it| it.as_ref().is_some_and(|it| !it.contains('\0')));
    rules.rule(is_text, "cursor", cursor::RULE);
    rules.check()?;
    caller.tenant(tenant)?;
    let mut db = app.db().await?;
    let mut after = after.flatten();
    let mut seen: Vec<Node> = Vec::new();
    // Callers see all nodes or few: those that may not be read are passed over a full page at a time.
    loop {
        let page = nodes::list(&mut db, tenant, &ask.labels, nodes::MAX_PAGE, after.as_deref()).await?;
        let is_last = page.len() < nodes::MAX_PAGE as usize;
        after = page.last().map(|last| last.name.clone());
        seen.extend(page.into_iter().filter(|node| caller.may(NODES_READ, &format!("compute-node/{}", node.id))));
        if is_last || seen.len() > limit {
            break;
        }
    }
    let has_more = seen.len() > limit;
    seen.truncate(limit);
    let next_cursor = seen.last().filter(|_| has_more).map(|last| cursor::seal(&last.name));
    let ids: Vec<NodeId> = seen.iter().map(|node| node.id).collect();
    let mut apart = quarantines::of_many(&mut db, &ids).await?;
    let shown = seen.into_iter().map(|node| {
        let quarantine = apart.remove(&node.id).map(super::quarantines::document);
        types::Node { quarantine, ..document(node) }
    });
    Ok(Json(Page { items: shown.collect(), next_cursor }))
}

/// Show a node.
#[utoipa::path(post, path = "/v1/nodes.get", operation_id = "nodes.get", tag = "nodes",
    request_body = NodeRef, responses((status = 200, description = "The node", body = types::Node), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<NodeRef>,
) -> Result<Json<types::Node>, Failure> {
    let (tenant, node) = named(&caller, NODES_READ, &ask)?;
    answer(&app, tenant, node).await
}

fn named(caller: &Caller, permission: &str, ask: &NodeRef) -> Result<(TenantId, NodeId), Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(permission, node)?;
    Ok((tenant, node))
}

pub(super) async fn answer(app: &App, tenant: TenantId, node: NodeId) -> Result<Json<types::Node>, Failure> {
    let mut db = app.db().await?;
    let found = nodes::find(&mut db, tenant, node).await?.ok_or_else(|| Failure::not_found("node", node))?;
    let conditions = conditions::of(&mut db, node).await?.into_iter().map(|it| types::Condition {
        kind: it.kind,
        subject: it.subject,
        message: it.message,
        since: it.since,
    });
    let remediation_hold =
        remediations::holds(&mut db, tenant, Some(node), 1).await?.pop().map(super::remediations::hold);
    let quarantine = quarantines::find(&mut db, node).await?.map(super::quarantines::document);
    Ok(Json(types::Node { conditions: conditions.collect(), remediation_hold, quarantine, ..document(found) }))
}

/// Set labels of a node; `null` takes one away, and those that are not named stay.
#[utoipa::path(post, path = "/v1/nodes.label", operation_id = "nodes.label", tag = "nodes",
    request_body = LabelNode, responses((status = 200, description = "The node", body = types::Node), Errors))]
pub(super) async fn label_node(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<LabelNode>,
) -> Result<Json<types::Node>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    for (name, value) in &ask.labels {
        label(&mut rules, name, value.as_ref());
    }
    rules.rule((1..=MAX_LABELS).contains(&ask.labels.len()), "labels", format!("must have 1 to {MAX_LABELS} items"));
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_WRITE, node)?;
    let found = nodes::find(&mut *app.db().await?, tenant, node).await?;
    let found = found.ok_or_else(|| Failure::not_found("node", node))?;
    let mut labels: BTreeMap<_, _> = found.labels.into_iter().map(|(name, value)| (name, Some(value))).collect();
    labels.extend(ask.labels.clone());
    if labels.values().flatten().count() > MAX_LABELS {
        return Err(Failure::field("labels", format!("a node has at most {MAX_LABELS}")));
    }
    nodes::set_labels(&mut *app.db().await?, tenant, node, &ask.labels).await?;
    answer(&app, tenant, node).await
}

fn label(rules: &mut Rules, name: &str, value: Option<&String>) {
    let holds = |text: &str| text.chars().count() <= MAX_LABEL && !text.contains(char::is_control);
    let rule = format!("names have 1 to {MAX_LABEL} printable characters, values at most {MAX_LABEL}");
    rules.rule(!name.is_empty() && holds(name) && value.is_none_or(|value| holds(value)), "labels", rule);
}

/// Delete a node: its pending commands are cancelled, those that it has end by their deadlines, and its sessions end.
#[utoipa::path(post, path = "/v1/nodes.delete", operation_id = "nodes.delete", tag = "nodes",
    request_body = NodeRef, responses((status = 200, description = "The node, as it was", body = types::Node), Errors))]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<NodeRef>,
) -> Result<Json<types::Node>, Failure> {
    let (tenant, node) = named(&caller, NODES_WRITE, &ask)?;
    let unknown = || Failure::not_found("node", node);
    let mut tx = app.pool.begin().await?;
    let found = nodes::find(&mut tx, tenant, node).await?.ok_or_else(unknown)?;
    if !life::delete(&mut tx, node, app.now()).await? {
        return Err(unknown());
    }
    tx.commit().await?;
    app.bus.tell(Signal::Cancel { node });
    app.bus.tell(Signal::Events);
    Ok(Json(document(found)))
}

/// Make a one-time token with which a machine joins. It is shown once.
#[utoipa::path(post, path = "/v1/nodes.createJoinToken", operation_id = "nodes.createJoinToken", tag = "nodes",
    request_body = CreateJoinToken, responses((status = 200, description = "The token", body = JoinToken), Errors))]
pub(super) async fn create_join_token(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<CreateJoinToken>,
) -> Result<Json<JoinToken>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: Option<NodeId> = ask.node_id.as_deref().map(|text| rules.id("nodeId", text));
    let life = rules.number("expiresInSeconds", ask.expires_in_seconds, 60, 86_400, DEFAULT_JOIN);
    if let Some(kinds) = &ask.allowed_kinds {
        let rule = format!("must have 1 to {MAX_ALLOWED_KINDS} items");
        rules.rule((1..=MAX_ALLOWED_KINDS).contains(&kinds.len()), "allowedKinds", rule);
        for (at, kind) in kinds.iter().take(MAX_ALLOWED_KINDS).enumerate() {
            rules.text(&format!("allowedKinds[{at}]"), kind, 1, 64);
        }
    }
    rules.check()?;
    caller.on_tenant(NODES_JOIN, tenant)?;
    let now = app.now();
    let mut db = app.db().await?;
    if let Some(node) = node {
        // Enrolling a node again ends its life: that takes more than making new nodes.
        caller.on_node(NODES_WRITE, node)?;
        let found = nodes::find(&mut db, tenant, node).await?;
        found.ok_or_else(|| Failure::not_found("node", node))?;
    }
    let secret = hex::encode(app.world.bytes::<32>());
    let expires_at = now + Duration::seconds(i64::from(life));
    let hash = join_tokens::hash(&secret);
    let new = NewJoinToken { hash, tenant, node, allowed_kinds: ask.allowed_kinds, expires_at };
    join_tokens::create(&mut db, new, now).await?;
    Ok(Json(JoinToken {
        token: join_tokens::text(&secret, &app.authority_sha256),
        gateway_url: app.config.gateway_url.clone(),
        expires_at,
    }))
}

fn document(node: Node) -> types::Node {
    types::Node {
        id: node.id.to_string(),
        tenant_id: node.tenant.to_string(),
        name: node.name,
        labels: node.labels,
        role: code::role(node.role).to_owned(),
        incarnation: node.incarnation,
        connected: node.connected,
        session_epoch: node.session_epoch,
        bcd_version: node.bcd_version,
        kinds: node
            .kinds
            .into_iter()
            .map(|kind| types::LoadedKind { name: kind.name, version: kind.version.to_string(), digest: kind.digest })
            .collect(),
        conditions: Vec::new(),
        remediation_hold: None,
        quarantine: None,
        created_at: node.created_at,
        last_hello_at: node.last_hello_at,
    }
}
