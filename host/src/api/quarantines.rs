//! `nodes.quarantine` and `nodes.release`.
//!
//! **Invariant:** a node that a running workflow has set apart is let go by that workflow's end alone.

use axum::Json;
use axum::extract::State;
use bc_proto::id::NodeId;
use serde_json::json;

use super::App;
use super::auth::{Caller, NODES_WRITE};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, Code, NodeRef, QuarantineNode};
use crate::bus::Signal;
use crate::store::quarantines::{self, Quarantine};
use crate::store::{specs, workflows};

/// The longest reason, characters.
pub(super) const MAX_REASON: usize = 500;

/// Set a node apart: no GPU of it is reserved, it is not mended by itself, and `commands.run` takes nothing destructive for it.
///
/// One that is so already stays as it is. What is reserved stays reserved.
#[utoipa::path(post, path = "/v1/nodes.quarantine", operation_id = "nodes.quarantine", tag = "nodes",
    request_body = QuarantineNode, responses((status = 200, description = "The node", body = types::Node), Errors))]
pub(super) async fn quarantine(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<QuarantineNode>,
) -> Result<Json<types::Node>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: NodeId = rules.id("nodeId", &ask.node_id);
    rules.text("reason", &ask.reason, 1, MAX_REASON);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_WRITE, node)?;
    let mut tx = app.pool.begin().await?;
    if !specs::lock(&mut tx, tenant, node).await? {
        return Err(Failure::not_found("node", node));
    }
    let (reason, by) = (ask.reason, caller.holder.name.clone());
    let quarantine = Quarantine { workflow: None, reason, by, since: app.now() };
    let is_new = quarantines::set(&mut tx, (tenant, node), &quarantine).await?;
    tx.commit().await?;
    if is_new {
        app.bus.tell(Signal::Events);
    }
    super::nodes::answer(&app, tenant, node).await
}

/// Let a node go that is set apart. One that is not stays as it is.
#[utoipa::path(post, path = "/v1/nodes.release", operation_id = "nodes.release", tag = "nodes",
    request_body = NodeRef, responses((status = 200, description = "The node", body = types::Node), Errors))]
pub(super) async fn release(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<NodeRef>,
) -> Result<Json<types::Node>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: NodeId = rules.id("nodeId", &ask.node_id);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_WRITE, node)?;
    let mut tx = app.pool.begin().await?;
    if !specs::lock(&mut tx, tenant, node).await? {
        return Err(Failure::not_found("node", node));
    }
    if let Some(id) = workflows::running(&mut tx, node).await? {
        let message = format!("{id} runs on {node} and needs it set apart; wait for its end, or cancel it");
        let details = json!({ "reason": "workflow-running", "workflowId": id.to_string() });
        return Err(Failure::new(Code::InvalidState, message).with(details));
    }
    let was = quarantines::release(&mut tx, (tenant, node), None, &caller.holder.name, app.now()).await?;
    tx.commit().await?;
    if was {
        app.bus.tell(Signal::Events);
    }
    super::nodes::answer(&app, tenant, node).await
}

/// That something is not done with a node because it is set apart.
pub(super) fn set_apart(node: NodeId, quarantine: &Quarantine) -> Failure {
    let message = format!(
        "{node} is set apart ({}); nodes.release lets it go, once nothing speaks against it",
        quarantine.reason
    );
    let workflow = quarantine.workflow.map(|id| id.to_string());
    let details = json!({ "reason": "node-quarantined", "workflowId": workflow });
    Failure::new(Code::InvalidState, message).with(details)
}

/// As it is shown.
pub(super) fn document(quarantine: Quarantine) -> types::Quarantine {
    types::Quarantine {
        reason: quarantine.reason,
        by: quarantine.by,
        workflow_id: quarantine.workflow.map(|id| id.to_string()),
        since: quarantine.since,
    }
}
