//! `audit.head`, `entries`, `inclusion`, `consistency` and `receipt`.
//!
//! **Invariant:** of another tenant's entries nothing is shown but their hashes, which everybody needs to check the tree.

use axum::Json;
use axum::extract::State;
use bc_proto::id::{CommandId, TenantId};
use sqlx::PgConnection;

use super::App;
use super::auth::{AUDIT_READ, Caller};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{
    Consistency, Inclusion, InclusionOf, ListLogEntries, LogEntries, LogEntry, LogHead, MakeReceipt, ProveConsistency,
    ProveInclusion, ShowLogHead,
};
use crate::audit;
use crate::store::transparency;

/// The most entries on one page.
const MAX_PAGE: u32 = 500;

/// Show the head of the transparency log.
#[utoipa::path(post, path = "/v1/audit.head", operation_id = "audit.head", tag = "audit",
    request_body = ShowLogHead, responses((status = 200, description = "The newest head", body = LogHead), Errors))]
pub(super) async fn head(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ShowLogHead>,
) -> Result<Json<LogHead>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    rules.check()?;
    caller.on_tenant(AUDIT_READ, tenant)?;
    let head = audit::head(&mut *app.db().await?).await?;
    let signature = head.signature.map(|it| serde_json::to_value(it).expect("a signature is JSON"));
    Ok(Json(LogHead { size: head.size, root: head.root, signature }))
}

/// List entries of the transparency log, in its order.
///
/// All of the log: entries of other tenants show their hashes alone.
#[utoipa::path(post, path = "/v1/audit.entries", operation_id = "audit.entries", tag = "audit",
    request_body = ListLogEntries, responses((status = 200, description = "A page of them", body = LogEntries), Errors))]
pub(super) async fn entries(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListLogEntries>,
) -> Result<Json<LogEntries>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let limit = rules.number("limit", ask.limit, 1, MAX_PAGE, super::DEFAULT_PAGE);
    rules.check()?;
    caller.on_tenant(AUDIT_READ, tenant)?;
    let mut found = transparency::entries(&mut *app.db().await?, ask.from.unwrap_or(0), limit + 1).await?;
    let next = (found.len() > limit as usize).then(|| found.pop()).flatten().map(|it| it.index);
    let document = |it: transparency::Kept| LogEntry {
        index: it.index,
        leaf_hash: hex::encode(&it.leaf_hash),
        body: (it.tenant == tenant).then(|| audit::text(&it.body)),
    };
    Ok(Json(LogEntries { items: found.into_iter().map(document).collect(), next }))
}

/// Prove that entries stand in the transparency log.
#[utoipa::path(post, path = "/v1/audit.inclusion", operation_id = "audit.inclusion", tag = "audit",
    request_body = ProveInclusion, responses((status = 200, description = "The proofs", body = Inclusion), Errors))]
pub(super) async fn inclusion(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ProveInclusion>,
) -> Result<Json<Inclusion>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let command: Option<CommandId> = ask.command_id.as_deref().map(|text| rules.id("commandId", text));
    let is_one = command.is_some() != ask.index.is_some();
    rules.rule(is_one, "commandId", "either this or index must be given, and not both");
    rules.check()?;
    caller.on_tenant(AUDIT_READ, tenant)?;
    let mut db = app.db().await?;
    let size = size(&mut db, "size", ask.size, 1).await?;
    let indices = match command {
        Some(command) => of_command(&mut db, tenant, command, size).await?,
        None => ask.index.into_iter().collect(),
    };
    if let Some(index) = indices.iter().find(|index| **index >= size) {
        return Err(Failure::field("index", format!("must be below the tree's size, {size}, but is {index}")));
    }
    let (root, proofs) = audit::inclusion(&mut db, size, &indices).await?;
    let items = indices.into_iter().zip(proofs).map(|(index, it)| InclusionOf { index, proof: hex::encode(it) });
    Ok(Json(Inclusion { size, root: hex::encode(root), items: items.collect() }))
}

async fn of_command(
    db: &mut PgConnection,
    tenant: TenantId,
    command: CommandId,
    size: u64,
) -> Result<Vec<u64>, Failure> {
    let found = transparency::about(db, tenant, command, size, false).await?;
    if found.is_empty() { Err(not_logged(command)) } else { Ok(found.into_iter().map(|it| it.index).collect()) }
}

fn not_logged(command: CommandId) -> Failure {
    Failure::not_found("entry about", format!("{command}; destructive commands alone are logged, within a moment"))
}

/// The size that is asked for, which the log must have reached.
async fn size(db: &mut PgConnection, field: &str, asked: Option<u64>, min: u64) -> Result<u64, Failure> {
    let newest = audit::head(db).await?.size;
    match asked.unwrap_or(newest) {
        size if (min..=newest).contains(&size) => Ok(size),
        size => Err(Failure::field(field, format!("must be {min} to {newest}, the log's size, but is {size}"))),
    }
}

/// Prove that the transparency log only grew between two sizes.
#[utoipa::path(post, path = "/v1/audit.consistency", operation_id = "audit.consistency", tag = "audit",
    request_body = ProveConsistency, responses((status = 200, description = "The proof", body = Consistency), Errors))]
pub(super) async fn consistency(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ProveConsistency>,
) -> Result<Json<Consistency>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    rules.check()?;
    caller.on_tenant(AUDIT_READ, tenant)?;
    let mut db = app.db().await?;
    let to = size(&mut db, "to", ask.to, 0).await?;
    let from = ask.from;
    if from > to {
        return Err(Failure::field("from", format!("must be 0 to {to}, but is {from}")));
    }
    let (from_root, to_root, proof) = audit::consistency(&mut db, from, to).await?;
    let (from_root, to_root) = (hex::encode(from_root), hex::encode(to_root));
    Ok(Json(Consistency { from, from_root, to, to_root, proof: hex::encode(proof) }))
}

/// Make the receipt of a destructive command: one document that proves, without the server, what became of it.
#[utoipa::path(post, path = "/v1/audit.receipt", operation_id = "audit.receipt", tag = "audit",
    request_body = MakeReceipt, responses((status = 200, description = "The receipt", body = serde_json::Value), Errors))]
pub(super) async fn receipt(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<MakeReceipt>,
) -> Result<Json<bc_proto::receipt::Receipt>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let command: CommandId = rules.id("commandId", &ask.command_id);
    rules.check()?;
    caller.on_tenant(AUDIT_READ, tenant)?;
    let receipt = audit::receipt(&mut *app.db().await?, tenant, command).await?;
    receipt.map(Json).ok_or_else(|| not_logged(command))
}
