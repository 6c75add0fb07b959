//! `commands.run`, `get` and `cancel`.
//!
//! **Invariant:** a command is queued only after the component that the node will run has found its payload right; what is
//! answered was read from the database after that was durable.

use axum::Json;
use axum::extract::State;
use bc_proto::canonical;
use bc_proto::id::{BatchId, CommandId, NodeId, TenantId};
use bc_proto::manifest::{Role, Trait};
use bc_proto::schema::Problem;
use bc_runtime::Kind;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgConnection};
use time::Duration;

use super::App;
use super::auth::{Caller, NODES_EXEC, NODES_READ};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, Code, CommandRef, RunCommand};
use crate::batches;
use crate::bundles::support_bundle_key;
use crate::bus::Signal;
use crate::faults::crash_at;
use crate::queue::cancel::Cancellation;
use crate::queue::enqueue::{NewCommand, Outcome};
use crate::store::commands::{self, Prospect};
use crate::store::kinds::Digest;
use crate::store::{quarantines, specs};
use crate::{attestation, queue, registry};

/// How long a command waits for its node if nothing is said, seconds.
const DEFAULT_NOT_AFTER: u32 = 600;

/// Queue a command for a node.
///
/// The payload is checked by the kind's own component, the one that the node will run. The same key with the same kind and
/// payload again answers the command as it stands.
#[utoipa::path(post, path = "/v1/commands.run", operation_id = "commands.run", tag = "commands",
    request_body = RunCommand, responses((status = 200, description = "The command", body = types::Command), Errors))]
pub(super) async fn run(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RunCommand>,
) -> Result<Json<types::Command>, Failure> {
    let asked = Asked::check(&app, &caller, ask)?;
    let Asked { tenant, node, .. } = asked;
    caller.tenant(tenant)?;
    let prospect = {
        let mut db = app.db().await?;
        commands::prospect(&mut db, tenant, node, &asked.key, &asked.kind).await?
    };
    let prospect = prospect.ok_or_else(|| Failure::not_found("node", node))?;
    caller.on_node(NODES_EXEC, node)?;
    // Before anything is asked of the kind: a retry finds its command though the kind was retired meanwhile.
    if let Some(existing) = &prospect.existing {
        let is_same = existing.kind == asked.kind && existing.payload_hash == asked.payload_hash;
        if !is_same || existing.batch != asked.batch {
            return Err(conflict(existing.id));
        }
        return answer(&app, tenant, existing.id).await;
    }
    let digest = admit(&asked, &prospect)?;
    let kind = app.registry.kind(&app.pool, digest).await?;
    suits(&asked, &kind, prospect.role)?;
    validate(&kind, &asked.payload).await?;
    let now = app.now();
    let upload = app.bundles.as_ref().and_then(|store| store.destination(node, &asked.key, kind.manifest()));
    let mut command = NewCommand {
        id: CommandId::from_uuid(app.world.uuid()),
        node,
        idempotency_key: asked.key,
        kind_digest: digest,
        payload: asked.payload,
        min_generation: asked.min_generation,
        not_after: now + asked.not_after,
        is_held: false,
        batch: asked.batch,
        requested_by: caller.holder.name.clone(),
        upload,
    };
    tracing::Span::current().record("command", tracing::field::display(command.id));
    let settings = &app.config.pki;
    let mut db = app.db().await?;
    let is_destructive = kind.manifest().is(Trait::Destructive);
    let outcome = if command.batch.is_some() || is_destructive {
        let mut tx = db.begin().await?;
        // Whoever sets the node apart comes before or after this, and then waits for its end.
        if is_destructive
            && specs::lock(&mut tx, tenant, node).await?
            && let Some(quarantine) = quarantines::find(&mut tx, node).await?
        {
            return Err(super::quarantines::set_apart(node, &quarantine));
        }
        let outcomes = batches::enqueue(&mut tx, settings, &app.signer, vec![command], now).await?;
        crash_at("enqueue.before-write");
        tx.commit().await?;
        outcomes.into_iter().next().expect("one command has one outcome")
    } else {
        batches::admit(&mut db, settings, std::slice::from_mut(&mut command), now).await?;
        // One statement is one transaction: the node's counter is locked no longer than it takes.
        crash_at("enqueue.before-write");
        queue::enqueue(&mut db, &app.signer, command, now).await?
    };
    drop(db);
    crash_at("enqueue.after-write");
    match outcome {
        Outcome::Queued(queued) => {
            app.bus.tell(Signal::Work { node });
            app.bus.tell(Signal::Events);
            answer(&app, tenant, queued.id).await
        }
        Outcome::Existing(queued) => answer(&app, tenant, queued.id).await,
        Outcome::Conflict(queued) => Err(conflict(queued.id)),
        Outcome::UnknownNode => Err(Failure::not_found("node", node)),
        Outcome::UnknownKind => Err(unsupported(&asked.kind)),
    }
}

/// A request whose fields keep their rules.
struct Asked {
    tenant: TenantId,
    node: NodeId,
    kind: String,
    payload: Value,
    payload_hash: Vec<u8>,
    key: String,
    not_after: Duration,
    batch: Option<BatchId>,
    min_generation: Option<u64>,
}

impl Asked {
    fn check(app: &App, caller: &Caller, ask: RunCommand) -> Result<Self, Failure> {
        let mut rules = Rules::default();
        let tenant = rules.tenant(&ask.tenant_id);
        let node = rules.id("nodeId", &ask.node_id);
        let is_name = (1..=64).contains(&ask.kind.len()) && ask.kind.bytes().all(|byte| byte.is_ascii_graphic());
        rules.rule(is_name, "kind", "must be a kind's name, such as diag.nvml");
        rules.text("idempotencyKey", &ask.idempotency_key, 1, 200);
        let not_after = rules.number("notAfterSeconds", ask.not_after_seconds, 10, 3600, DEFAULT_NOT_AFTER);
        let batch = ask.batch_id.as_deref().map(|text| rules.id("batchId", text));
        let is_generation = ask.min_generation.is_none_or(|it| (1..=super::specs::MAX_GENERATION).contains(&it));
        rules.rule(is_generation, "minGeneration", super::specs::GENERATION_RULE);
        let payload = canonical::to_vec(&ask.payload).expect("a JSON value has canonical bytes");
        rules.check()?;
        let limit = app.config.max_payload_bytes;
        if payload.len() > limit {
            let message = format!("payload: must have at most {limit} bytes, but has {}", payload.len());
            return Err(Failure::new(Code::TooLarge, message).with(json!({ "limit": limit, "bytes": payload.len() })));
        }
        Ok(Self {
            key: queue_key(tenant, caller, &ask.idempotency_key),
            payload_hash: Sha256::digest(&payload).to_vec(),
            not_after: Duration::seconds(i64::from(not_after)),
            min_generation: ask.min_generation,
            kind: ask.kind,
            payload: ask.payload,
            batch,
            tenant,
            node,
        })
    }
}

/// The queue's key: the caller's own, scoped to tenant and caller, and short.
pub(super) fn queue_key(tenant: TenantId, caller: &Caller, key: &str) -> String {
    let mut hash = Sha256::new();
    for part in [&tenant.uuid().as_bytes()[..], &caller.holder.identity.as_bytes()[..], key.as_bytes()] {
        hash.update(part);
    }
    // 128 bits: nobody finds two keys that share them.
    format!("api:{}", hex::encode(&hash.finalize()[..16]))
}

/// Whether the node may get a command of this kind at all; answers the kind's component.
fn admit(asked: &Asked, prospect: &Prospect) -> Result<Digest, Failure> {
    let (kind, node) = (&asked.kind, asked.node);
    let Some((digest, _)) = prospect.kind.filter(|&(_, exposed)| registry::accepts(kind, exposed)) else {
        return Err(unsupported(kind));
    };
    if let Some(allowed) = prospect.allowed_kinds.as_ref().filter(|allowed| !allowed.contains(kind)) {
        let message = format!("node {node} runs a restricted identity that does not accept {kind}");
        let details = json!({ "reason": "restricted-identity", "kind": kind, "allowedKinds": allowed });
        return Err(Failure::new(Code::InvalidState, message).with(details));
    }
    Ok(digest)
}

fn suits(asked: &Asked, kind: &Kind, role: Role) -> Result<(), Failure> {
    let roles = &kind.manifest().roles;
    if roles.contains(&role) {
        return Ok(());
    }
    let words = roles.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (node, name) = (asked.node, &asked.kind);
    let message = format!("{name} is for the roles {}, node {node} is a {role}", words.join(", "));
    let details = json!({ "reason": "wrong-role", "kind": name, "role": role.to_string(), "roles": words });
    Err(Failure::new(Code::InvalidState, message).with(details))
}

async fn validate(kind: &Kind, payload: &Value) -> Result<(), Failure> {
    let name = &kind.manifest().name;
    match kind.validate(payload).await {
        Ok(problems) if problems.is_empty() => Ok(()),
        Ok(problems) => Err(refused(name, &problems)),
        Err(outcome) => {
            let message = format!("{name} could not check the payload: `validate` {outcome}");
            Err(Failure::new(Code::InvalidState, message)
                .with(json!({ "reason": "validate-failed", "kind": name, "digest": kind.digest() })))
        }
    }
}

fn refused(kind: &str, problems: &[Problem]) -> Failure {
    let listed: Vec<_> = problems.iter().map(|it| json!({ "pointer": it.pointer, "rule": it.message })).collect();
    let first = problems.first().map_or(String::new(), ToString::to_string);
    let more = if problems.len() > 1 { format!(" (and {} more)", problems.len() - 1) } else { String::new() };
    Failure::new(Code::InvalidInput, format!("{kind} does not take this payload: {first}{more}"))
        .with(json!({ "problems": listed }))
}

fn unsupported(kind: &str) -> Failure {
    Failure::new(Code::Unsupported, format!("{kind} is not a kind that commands.run accepts on this server"))
        .with(json!({ "kind": kind }))
}

fn conflict(id: CommandId) -> Failure {
    let message =
        format!("idempotencyKey: means {id} already, which is of another kind or batch or has another payload");
    Failure::new(Code::Conflict, message).with(json!({ "commandId": id.to_string() }))
}

async fn answer(app: &App, tenant: TenantId, id: CommandId) -> Result<Json<types::Command>, Failure> {
    tracing::Span::current().record("command", tracing::field::display(id));
    let mut db = app.db().await?;
    let found = commands::find(&mut db, tenant, id).await?.ok_or_else(|| Failure::not_found("command", id))?;
    one(&mut db, found).await
}

/// Show a command.
#[utoipa::path(post, path = "/v1/commands.get", operation_id = "commands.get", tag = "commands",
    request_body = CommandRef, responses((status = 200, description = "The command", body = types::Command), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<CommandRef>,
) -> Result<Json<types::Command>, Failure> {
    let (tenant, node, id) = named(&caller, NODES_READ, &ask)?;
    let mut db = app.db().await?;
    let found = commands::find(&mut db, tenant, id).await?.filter(|found| found.node == node);
    one(&mut db, found.ok_or_else(|| Failure::not_found("command", id))?).await
}

fn named(caller: &Caller, permission: &str, ask: &CommandRef) -> Result<(TenantId, NodeId, CommandId), Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    let id = rules.id("commandId", &ask.command_id);
    rules.check()?;
    tracing::Span::current().record("command", tracing::field::display(id));
    caller.tenant(tenant)?;
    caller.on_node(permission, node)?;
    Ok((tenant, node, id))
}

/// Call a command off.
///
/// One that waits is cancelled at once; one that its node has keeps its state until the node says what became of it; one that is
/// over stays as it is.
#[utoipa::path(post, path = "/v1/commands.cancel", operation_id = "commands.cancel", tag = "commands",
    request_body = CommandRef, responses((status = 200, description = "The command", body = types::Command), Errors))]
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<CommandRef>,
) -> Result<Json<types::Command>, Failure> {
    let (tenant, node, id) = named(&caller, NODES_EXEC, &ask)?;
    let unknown = || Failure::not_found("command", id);
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    commands::find(&mut tx, tenant, id).await?.filter(|found| found.node == node).ok_or_else(unknown)?;
    let cancellation = queue::cancel(&mut tx, &app.signer, tenant, id, app.now()).await?.ok_or_else(unknown)?;
    let found = commands::find(&mut tx, tenant, id).await?.ok_or_else(unknown)?;
    crash_at("cancel.before-write");
    tx.commit().await?;
    crash_at("cancel.after-write");
    match cancellation {
        Cancellation::Over(_) => {}
        Cancellation::Cancelled => app.bus.tell(Signal::Events),
        Cancellation::Requested { node, .. } => {
            app.bus.tell(Signal::Cancel { node });
            app.bus.tell(Signal::Events);
        }
    }
    one(&mut db, found).await
}

async fn one(db: &mut PgConnection, found: commands::Command) -> Result<Json<types::Command>, Failure> {
    let mut document = document(found);
    attest(db, std::slice::from_mut(&mut document)).await?;
    Ok(Json(document))
}

pub(super) fn document(found: commands::Command) -> types::Command {
    let is = |word: &str| found.traits.iter().any(|it| it == word);
    let (retry_safe, destructive, is_attested) = (is("retry-safe"), is("destructive"), is("attested"));
    types::Command {
        id: found.id.to_string(),
        tenant_id: found.tenant.to_string(),
        node_id: found.node.to_string(),
        batch_id: found.batch.map(|id| id.to_string()),
        awaiting_approval: found.is_held,
        requested_by: found.requested_by,
        seq: found.seq,
        kind: found.kind,
        kind_digest: hex::encode(found.kind_digest),
        lane: found.lane,
        state: found.state.to_string(),
        reason: found.reason,
        payload: found.payload,
        support_bundle: found.has_upload,
        bundle_key: found.has_upload.then(|| support_bundle_key(found.node, &found.idempotency_key)),
        idempotency_key: found.idempotency_key,
        retry_safe,
        destructive,
        not_after: found.not_after,
        created_at: found.created_at,
        not_before: found.not_before,
        dispatched_at: found.dispatched_at,
        settled_at: found.settled_at,
        reported_at: found.reported_at,
        cancel_requested_at: found.cancel_requested_at,
        // Until `attest` has looked: it may be.
        attested: is_attested && found.reported_at.is_some(),
        attested_by: None,
        result: found.result.as_deref().and_then(shown),
    }
}

/// Checks what may be attested.
pub(super) async fn attest(db: &mut PgConnection, documents: &mut [types::Command]) -> Result<(), Failure> {
    let candidates: Vec<CommandId> =
        documents.iter().filter(|it| it.attested).filter_map(|it| it.id.parse().ok()).collect();
    let attested = attestation::of_many(db, &candidates).await?;
    for document in documents {
        let by = document.id.parse().ok().and_then(|id: CommandId| attested.get(&id));
        document.attested = by.is_some();
        document.attested_by = by.map(hex::encode);
    }
    Ok(())
}

/// A result as the node stored it. Nodes store JSON; whatever else there is, is shown as text rather than hidden.
fn shown(result: &[u8]) -> Option<Value> {
    if result.is_empty() {
        return None;
    }
    Some(serde_json::from_slice(result).unwrap_or_else(|_| String::from_utf8_lossy(result).into()))
}
