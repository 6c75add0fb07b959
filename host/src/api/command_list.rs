//! `commands.list`: a node's commands, or the tenant's.
//!
//! **Invariant:** a page costs the same however many commands there are; what the caller may not read is not on it.

use axum::Json;
use axum::extract::State;
use bc_proto::id::{BatchId, CommandId, NodeId, TenantId};
use bc_proto::rules::state;
use sqlx::PgConnection;

use super::App;
use super::auth::{Caller, NODES_READ};
use super::commands::{attest, document};
use super::cursor;
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, ListCommands, Page};
use crate::store::command_lists::{self, Filter, Within};
use crate::store::{commands, runners};

/// List commands, newest first: a node's, or those of all nodes that the caller may read.
#[utoipa::path(post, path = "/v1/commands.list", operation_id = "commands.list", tag = "commands",
    request_body = ListCommands,
    responses((status = 200, description = "A page of them", body = Page<types::Command>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListCommands>,
) -> Result<Json<Page<types::Command>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: Option<NodeId> = ask.node_id.as_deref().map(|text| rules.id("nodeId", text));
    let batch: Option<BatchId> = ask.batch_id.as_deref().map(|text| rules.id("batchId", text));
    if let Some(gateway) = &ask.gateway {
        rules.text("gateway", gateway, 1, 63);
        rules.rule(node.is_none(), "gateway", "goes without nodeId: it names a node itself");
    }
    if let Some(kind) = &ask.kind {
        rules.text("kind", kind, 1, 64);
    }
    let state = ask.state.as_deref().map(|word| state::State::ALL.into_iter().find(|it| it.to_string() == word));
    let words = state::State::ALL.map(|state| state.to_string()).join(", ");
    rules.rule(state != Some(None), "state", format!("must be one of {words}"));
    let limit = rules.number("limit", ask.limit, 1, commands::MAX_PAGE, super::DEFAULT_PAGE);
    // A node's own list goes by seq, all others by id.
    let is_plain = node.is_some() && batch.is_none() && ask.kind.is_none();
    let below_seq = ask.cursor.as_deref().filter(|_| is_plain).map(cursor::open::<u64>);
    let below = ask.cursor.as_deref().filter(|_| !is_plain).map(cursor::open::<String>);
    let below = below.map(|text| text.and_then(|text| text.parse::<CommandId>().ok()));
    rules.rule(below_seq != Some(None) && below != Some(None), "cursor", cursor::RULE);
    rules.check()?;
    caller.tenant(tenant)?;
    let state = state.flatten();
    if let Some(node) = node {
        caller.on_node(NODES_READ, node)?;
        if is_plain {
            return of_node(&app, tenant, node, state, below_seq.flatten(), limit).await;
        }
    }
    let mut db = app.db().await?;
    let node = match &ask.gateway {
        Some(slug) => Some(gateway(&mut db, &caller, tenant, slug).await?),
        None => node,
    };
    let within = match (batch, node) {
        (Some(batch), _) => Within::Batch(batch),
        (None, Some(node)) => Within::Node(node),
        (None, None) => Within::Tenant,
    };
    let filter = Filter { kind: ask.kind, state, is_leased: false };
    let piece = command_lists::page(&mut db, tenant, within, &filter, below.flatten(), limit).await?;
    if let (Some(node), true) = (node, piece.commands.is_empty())
        && !commands::had_node(&mut db, tenant, node).await?
    {
        return Err(Failure::not_found("node", node));
    }
    let is_seen = |command: &commands::Command| {
        node.is_none_or(|node| node == command.node)
            && caller.may(NODES_READ, &format!("compute-node/{}", command.node))
    };
    let mut items: Vec<_> = piece.commands.into_iter().filter(is_seen).map(document).collect();
    attest(&mut db, &mut items).await?;
    Ok(Json(Page { items, next_cursor: piece.next.map(|id| cursor::seal(&id.to_string())) }))
}

/// The node of a slug, if the caller may read it.
pub(super) async fn gateway(
    db: &mut PgConnection,
    caller: &Caller,
    tenant: TenantId,
    slug: &str,
) -> Result<NodeId, Failure> {
    let found = runners::find(db, tenant, slug).await?;
    let seen = found.filter(|node| caller.may(NODES_READ, &format!("compute-node/{node}")));
    seen.ok_or_else(|| Failure::not_found("gateway", slug))
}

async fn of_node(
    app: &App,
    tenant: TenantId,
    node: NodeId,
    state: Option<state::State>,
    below: Option<u64>,
    limit: u32,
) -> Result<Json<Page<types::Command>>, Failure> {
    let mut db = app.db().await?;
    // One more than asked says whether there is another page.
    let mut found = commands::list(&mut db, tenant, node, state, below, limit + 1).await?;
    if found.is_empty() && !commands::had_node(&mut db, tenant, node).await? {
        return Err(Failure::not_found("node", node));
    }
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next_cursor = found.last().filter(|_| has_more).map(|last| cursor::seal(&last.seq));
    let mut items: Vec<_> = found.into_iter().map(document).collect();
    attest(&mut db, &mut items).await?;
    Ok(Json(Page { items, next_cursor }))
}
