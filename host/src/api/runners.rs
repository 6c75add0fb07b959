//! `runners.history`: every command that gateways' runners ever had, as they see it.
//!
//! **Invariant:** it is the same commands as `commands.list` shows, in the words of `agent_commands`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use bc_proto::id::{CommandId, NodeId};

use super::App;
use super::auth::{Caller, NODES_READ};
use super::command_list::gateway;
use super::cursor;
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{ListRunnerCommands, Page, RunnerCommand};
use crate::store::command_lists::{self, Filter, Within};
use crate::store::{commands, runners};

/// List the commands of gateways whose runners lease them, newest first, with their output.
#[utoipa::path(post, path = "/v1/runners.history", operation_id = "runners.history", tag = "commands",
    request_body = ListRunnerCommands,
    responses((status = 200, description = "A page of them", body = Page<RunnerCommand>), Errors))]
pub(super) async fn history(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListRunnerCommands>,
) -> Result<Json<Page<RunnerCommand>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    if let Some(gateway) = &ask.gateway {
        rules.text("gateway", gateway, 1, 63);
    }
    let limit = rules.number("limit", ask.limit, 1, commands::MAX_PAGE, super::DEFAULT_PAGE);
    let below = ask.cursor.as_deref().map(cursor::open::<String>);
    let below = below.map(|text| text.and_then(|text| text.parse::<CommandId>().ok()));
    rules.rule(below != Some(None), "cursor", cursor::RULE);
    rules.check()?;
    caller.tenant(tenant)?;
    let mut db = app.db().await?;
    let within = match &ask.gateway {
        Some(slug) => Within::Node(gateway(&mut db, &caller, tenant, slug).await?),
        None => Within::Tenant,
    };
    let filter = Filter { is_leased: ask.gateway.is_none(), ..Filter::default() };
    let piece = command_lists::page(&mut db, tenant, within, &filter, below.flatten(), limit).await?;
    let nodes: BTreeMap<CommandId, NodeId> = piece
        .commands
        .iter()
        .filter(|command| caller.may(NODES_READ, &format!("compute-node/{}", command.node)))
        .map(|command| (command.id, command.node))
        .collect();
    let ids: Vec<CommandId> = piece.commands.iter().map(|it| it.id).filter(|id| nodes.contains_key(id)).collect();
    let rows = runners::leased(&mut db, &ids).await?;
    let items = rows.into_iter().filter_map(|row| {
        let id = CommandId::from_uuid(row.id);
        Some(RunnerCommand {
            id: id.to_string(),
            node_id: nodes.get(&id)?.to_string(),
            gateway: row.gateway,
            action: row.action,
            status: row.status,
            stdout: row.stdout,
            stderr: row.stderr,
            exit_code: row.exit_code,
            error: row.error,
            created_at: row.created_at,
            leased_at: row.leased_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            requested_by: row.requested_by,
            leased_by: row.leased_by,
        })
    });
    Ok(Json(Page { items: items.collect(), next_cursor: piece.next.map(|id| cursor::seal(&id.to_string())) }))
}
