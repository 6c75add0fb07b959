//! `remediations.list` and `remediations.clear`.
//!
//! **Invariant:** clearing gives no attempt back: it says that somebody has looked, and the budget counts on.

use axum::Json;
use axum::extract::State;
use bc_proto::id::{CommandId, NodeId};

use super::auth::{Caller, NODES_READ, NODES_WRITE};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, ClearRemediations, Cleared, ListRemediations, RemediationHold, Remediations};
use super::{App, cursor};
use crate::bus::Signal;
use crate::store::nodes;
use crate::store::remediations::{self, Attempt, Held};

/// The most nodes that are left alone in one answer.
const MAX_HOLDS: u32 = 1_000;

/// List what was tried to mend nodes, newest first, and which nodes are left alone now, and why.
#[utoipa::path(post, path = "/v1/remediations.list", operation_id = "remediations.list", tag = "remediations",
    request_body = ListRemediations,
    responses((status = 200, description = "A page of them", body = Remediations), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListRemediations>,
) -> Result<Json<Remediations>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: Option<NodeId> = ask.node_id.as_deref().map(|text| rules.id("nodeId", text));
    let limit = rules.number("limit", ask.limit, 1, remediations::MAX_PAGE, super::DEFAULT_PAGE) as usize;
    let below = ask.cursor.as_deref().map(|text| cursor::open::<String>(text)?.parse::<CommandId>().ok());
    rules.rule(below != Some(None), "cursor", cursor::RULE);
    rules.check()?;
    caller.tenant(tenant)?;
    let mut db = app.db().await?;
    if let Some(node) = node {
        caller.on_node(NODES_READ, node)?;
        nodes::find(&mut db, tenant, node).await?.ok_or_else(|| Failure::not_found("node", node))?;
    }
    let may_read = |node: NodeId| caller.may(NODES_READ, &format!("compute-node/{node}"));
    let mut below = below.flatten();
    let holds = match below {
        Some(_) => Vec::new(),
        None => remediations::holds(&mut db, tenant, node, MAX_HOLDS).await?,
    };
    let mut seen: Vec<Attempt> = Vec::new();
    // Callers see all nodes or few: what may not be read is passed over a full page at a time.
    loop {
        let page = remediations::list(&mut db, tenant, node, below, remediations::MAX_PAGE).await?;
        let is_last = page.len() < remediations::MAX_PAGE as usize;
        below = page.last().map(|last| last.command);
        seen.extend(page.into_iter().filter(|attempt| may_read(attempt.node)));
        if is_last || seen.len() > limit {
            break;
        }
    }
    let has_more = seen.len() > limit;
    seen.truncate(limit);
    let next_cursor = seen.last().filter(|_| has_more).map(|last| cursor::seal(&last.command.to_string()));
    Ok(Json(Remediations {
        items: seen.into_iter().map(document).collect(),
        next_cursor,
        holds: holds.into_iter().filter(|held| may_read(held.node)).map(hold).collect(),
    }))
}

/// Let a node go on after attempts of which nobody could tell how they ended: somebody has looked at it.
///
/// What was tried counts on. A node without such attempts stays as it is.
#[utoipa::path(post, path = "/v1/remediations.clear", operation_id = "remediations.clear", tag = "remediations",
    request_body = ClearRemediations,
    responses((status = 200, description = "How many attempts were cleared", body = Cleared), Errors))]
pub(super) async fn clear(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ClearRemediations>,
) -> Result<Json<Cleared>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_WRITE, node)?;
    let mut db = app.db().await?;
    nodes::find(&mut db, tenant, node).await?.ok_or_else(|| Failure::not_found("node", node))?;
    let cleared = remediations::clear(&mut db, (tenant, node), &caller.holder.name, app.now()).await?;
    if cleared > 0 {
        // The module is woken by what happens.
        app.bus.tell(Signal::Events);
    }
    Ok(Json(Cleared { cleared }))
}

fn document(attempt: Attempt) -> types::Remediation {
    let (cleared_at, cleared_by) = attempt.cleared.unzip();
    types::Remediation {
        node_id: attempt.node.to_string(),
        ailment: attempt.ailment.to_string(),
        attempt: attempt.number,
        gpus: attempt.gpus,
        command_id: attempt.command.to_string(),
        batch_id: attempt.batch.to_string(),
        outcome: attempt.standing.to_string(),
        reason: attempt.reason,
        started_at: attempt.started_at,
        ended_at: attempt.ended_at,
        cleared_at,
        cleared_by,
    }
}

/// Why a node is left alone, as it is shown.
pub(super) fn hold(held: Held) -> RemediationHold {
    RemediationHold {
        node_id: held.node.to_string(),
        ailment: held.ailment.to_string(),
        why: held.why,
        since: held.since,
    }
}
