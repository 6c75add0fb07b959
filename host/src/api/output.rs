//! `commands.output`: what a run writes, while it runs.
//!
//! **Invariant:** the caller says what it has seen and gets what follows, so that it goes on anywhere after any interruption. An
//! answer that says that the command is over holds all that there will ever be, or says where to go on.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bc_proto::id::{CommandId, NodeId, TenantId};
use tokio::time::Instant;

use super::App;
use super::auth::{Caller, NODES_READ};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{CommandOutput, OutputPiece, OutputPlace, ReadOutput};
use crate::bus::{Signal, told};
use crate::store::{commands, output};

/// The most bytes of one answer, about.
const PAGE_BYTES: u64 = 256 * 1024;

/// The longest wait, seconds.
const MAX_WAIT: u32 = 30;

/// How often it is looked though nothing was told: a hint can be lost, and the end of a command is told to nobody here.
const LOOK: Duration = Duration::from_secs(1);

/// Read what a command's programs have written.
///
/// Of each stream the first MiB can be followed; the command's result keeps the account of all of it. With `waitSeconds` the answer
/// comes when there is something new.
#[utoipa::path(post, path = "/v1/commands.output", operation_id = "commands.output", tag = "commands",
    request_body = ReadOutput, responses((status = 200, description = "What follows", body = CommandOutput), Errors))]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ReadOutput>,
) -> Result<Json<CommandOutput>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: NodeId = rules.id("nodeId", &ask.node_id);
    let id: CommandId = rules.id("commandId", &ask.command_id);
    let wait = rules.number("waitSeconds", ask.wait_seconds, 0, MAX_WAIT, 0);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_READ, node)?;
    // Before the first look: what is written after it is told.
    let mut signals = app.bus.subscribe();
    let written = Signal::Output { command: id };
    let until = Instant::now() + Duration::from_secs(u64::from(wait));
    loop {
        let found = look(&app, tenant, node, id, ask.after).await?;
        let left = until.saturating_duration_since(Instant::now());
        if !found.pieces.is_empty() || found.is_over || left.is_zero() || app.stop.is_cancelled() {
            return Ok(Json(found));
        }
        tokio::select! {
            () = told(&mut signals, &written, left.min(LOOK)) => {}
            () = app.stop.cancelled() => {}
        }
    }
}

async fn look(
    app: &App,
    tenant: TenantId,
    node: NodeId,
    id: CommandId,
    after: OutputPlace,
) -> Result<CommandOutput, Failure> {
    let mut db = app.db().await?;
    // The command first: what it wrote before its end is there when the end is.
    let found = commands::find(&mut db, tenant, id).await?.filter(|found| found.node == node);
    let command = found.ok_or_else(|| Failure::not_found("command", id))?;
    let mut place = output::Place { attempt: after.attempt, stdout: after.stdout, stderr: after.stderr };
    let kept = output::after(&mut db, node, command.seq, place, PAGE_BYTES).await?;
    let is_page = kept.iter().map(|it| it.bytes.len() as u64).sum::<u64>() >= PAGE_BYTES;
    let pieces = kept.iter().map(|piece| {
        let (offset, bytes) = place.take(piece);
        let (attempt, stream) = (piece.attempt, piece.stream.to_string());
        OutputPiece { attempt, stream, offset, bytes: BASE64_STANDARD.encode(bytes) }
    });
    let pieces = pieces.collect();
    let next = OutputPlace { attempt: place.attempt, stdout: place.stdout, stderr: place.stderr };
    Ok(CommandOutput { pieces, next, is_over: command.state.is_terminal() && !is_page })
}
