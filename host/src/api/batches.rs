//! `commandBatches.create`, `get`, `list`, `approve` and `reject`.
//!
//! **Invariant:** an approval arrives signed; no key comes here. What is shown of a batch is what was signed, to the byte.

use std::collections::{BTreeSet, HashSet};

use axum::Json;
use axum::extract::State;
use bc_proto::batch::{Approval, Leaf, MAX_LEAVES};
use bc_proto::id::{BatchId, NodeId, TenantId};
use bc_proto::rules::approval::Void;
use serde_json::json;
use time::Duration;

use super::auth::{BATCHES_APPROVE, BATCHES_CREATE, BATCHES_READ, Caller, NODES_READ};
use super::error::Failure;
use super::extract::{Body, LargeBody, Rules};
use super::openapi::Errors;
use super::types::{
    self, ApproveBatch, BatchApproval, BatchLeaf, BatchRef, Code, CreateBatch, ListBatches, Page, RejectBatch,
};
use super::{App, commands, cursor};
use crate::batches::{self, Created, NotApproved, NotRejected, Proposal, Refused};
use crate::bus::Signal;
use crate::registry::quorum;
use crate::store;
use crate::store::batches::{Batch, Received, State as Stands};
use crate::store::unix_ms;

/// How long a batch is good if nothing is said, seconds.
const DEFAULT_EXPIRY: u32 = 86_400;

/// The longest that one may be good, seconds.
const MAX_EXPIRY: u32 = 7 * 86_400;

/// The longest reason, characters.
const MAX_REASON: usize = 1_000;

/// The most problems that one answer names: a scope can have ten thousand.
const MAX_PROBLEMS: usize = 100;

/// Propose a batch of destructive commands.
///
/// The same key with the same content again answers the batch as it stands.
#[utoipa::path(post, path = "/v1/commandBatches.create", operation_id = "commandBatches.create", tag = "commandBatches",
    request_body = CreateBatch, responses((status = 200, description = "The batch", body = types::Batch), Errors))]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    LargeBody(ask): LargeBody<CreateBatch>,
) -> Result<Json<types::Batch>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    rules.text("reason", &ask.reason, 1, MAX_REASON);
    rules.text("idempotencyKey", &ask.idempotency_key, 1, 200);
    let lasts = rules.number("expiresInSeconds", ask.expires_in_seconds, 60, MAX_EXPIRY, DEFAULT_EXPIRY);
    let nodes = leaves(&mut rules, &ask.scope);
    rules.check()?;
    caller.on_tenant(BATCHES_CREATE, tenant)?;
    let named: Vec<NodeId> = nodes.iter().flatten().copied().collect();
    let kinds: Vec<String> =
        ask.scope.iter().map(|leaf| leaf.kind.clone()).collect::<BTreeSet<_>>().into_iter().collect();
    let proposal = Proposal {
        id: BatchId::from_uuid(app.world.uuid()),
        tenant,
        requested_by: caller.holder.name.clone(),
        idempotency_key: commands::queue_key(tenant, &caller, &ask.idempotency_key),
        reason: ask.reason,
        scope: ask.scope.into_iter().map(leaf).collect(),
        lasts: Duration::seconds(i64::from(lasts)),
    };
    let mut tx = app.pool.begin().await?;
    // A retry finds its batch though a node was deleted meanwhile.
    if store::batches::find_by_key(&mut tx, tenant, &proposal.idempotency_key).await?.is_none() {
        let (known_nodes, known_kinds) = store::batches::known(&mut tx, tenant, &named, &kinds).await?;
        let mut rules = Rules::default();
        for (at, (leaf, node)) in proposal.scope.iter().zip(&nodes).enumerate() {
            // What it does is not for a node, and the component may be registered later.
            let Some(node) = node else { continue };
            let is_seen = known_nodes.contains(node) && caller.may(NODES_READ, &format!("compute-node/{node}"));
            rules.rule(is_seen, &format!("scope[{at}].subject"), "must be a node of the tenant");
            rules.rule(known_kinds.contains(&leaf.kind), &format!("scope[{at}].kind"), "must be a registered kind");
        }
        rules.at_most(MAX_PROBLEMS).check()?;
    }
    let now = app.now();
    let created = batches::create(&mut tx, &proposal, now).await?;
    tx.commit().await?;
    let batch = match created {
        Created::New(batch) => {
            app.bus.tell(Signal::Events);
            batch
        }
        Created::Existing(batch) => batch,
        Created::Conflict(id) => {
            let message = format!("idempotencyKey: means {id} already, which says something else");
            return Err(Failure::new(Code::Conflict, message).with(json!({ "batchId": id.to_string() })));
        }
    };
    answer(&app, batch).await
}

/// Checks the leaves' form; answers their nodes, in their order. One that activates a kind has none.
fn leaves(rules: &mut Rules, scope: &[BatchLeaf]) -> Vec<Option<NodeId>> {
    let holds = (1..=MAX_LEAVES).contains(&scope.len());
    rules.rule(holds, "scope", format!("must have 1 to {MAX_LEAVES} leaves, but has {}", scope.len()));
    let mut nodes = Vec::new();
    if !holds {
        return nodes;
    }
    let mut within = Rules::default();
    let mut seen = HashSet::new();
    for (at, leaf) in scope.iter().enumerate() {
        let is_name = |name: &str| (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        if leaf.kind == quorum::ACTIVATE {
            nodes.push(None);
            within.rule(
                is_name(&leaf.subject),
                &format!("scope[{at}].subject"),
                "must be the name of the kind to activate",
            );
            let names_one = leaf.payload_sha256.is_some();
            within.rule(
                names_one,
                &format!("scope[{at}].payloadSha256"),
                "must be the digest of the component to activate",
            );
        } else {
            nodes.push(Some(within.id(&format!("scope[{at}].subject"), &leaf.subject)));
        }
        within.rule(is_name(&leaf.kind), &format!("scope[{at}].kind"), "must be a kind's name, such as node.reboot");
        let is_hash =
            |text: &String| text.len() == 64 && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        let is_hash = leaf.payload_sha256.as_ref().is_none_or(is_hash);
        within.rule(is_hash, &format!("scope[{at}].payloadSha256"), "must be 64 hexadecimal digits, in lower case");
        let is_first = seen.insert((&leaf.subject, &leaf.kind, &leaf.payload_sha256));
        within.rule(is_first, &format!("scope[{at}]"), "stands in the scope twice");
    }
    rules.extend(within.at_most(MAX_PROBLEMS));
    nodes
}

fn leaf(leaf: BatchLeaf) -> Leaf {
    Leaf { subject: leaf.subject, kind: leaf.kind, payload_sha256: leaf.payload_sha256 }
}

/// Show a batch, with its whole scope.
#[utoipa::path(post, path = "/v1/commandBatches.get", operation_id = "commandBatches.get", tag = "commandBatches",
    request_body = BatchRef, responses((status = 200, description = "The batch", body = types::Batch), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<BatchRef>,
) -> Result<Json<types::Batch>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let id = rules.id("batchId", &ask.batch_id);
    rules.check()?;
    caller.on_tenant(BATCHES_READ, tenant)?;
    let found = store::batches::find(&mut *app.db().await?, tenant, id).await?;
    answer(&app, found.ok_or_else(|| Failure::not_found("batch", id))?).await
}

/// List the tenant's batches, newest first.
#[utoipa::path(post, path = "/v1/commandBatches.list", operation_id = "commandBatches.list", tag = "commandBatches",
    request_body = ListBatches,
    responses((status = 200, description = "A page of them", body = Page<types::Batch>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListBatches>,
) -> Result<Json<Page<types::Batch>>, Failure> {
    let mut rules = Rules::default();
    let tenant: TenantId = rules.tenant(&ask.tenant_id);
    let state = ask.state.as_deref().map(|word| word.parse::<Stands>().ok());
    rules.rule(state != Some(None), "state", "must be one of open, approved, rejected, expired");
    let limit = rules.number("limit", ask.limit, 1, store::batches::MAX_PAGE, super::DEFAULT_PAGE);
    let below = ask.cursor.as_deref().map(|text| cursor::open::<String>(text)?.parse::<BatchId>().ok());
    rules.rule(below != Some(None), "cursor", cursor::RULE);
    rules.check()?;
    caller.on_tenant(BATCHES_READ, tenant)?;
    let mut db = app.db().await?;
    // One more than asked says whether there is another page.
    let mut found = store::batches::list(&mut db, tenant, state.flatten(), below.flatten(), limit + 1).await?;
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let ids: Vec<BatchId> = found.iter().map(|batch| batch.document.batch_id).collect();
    let mut approvals = store::batches::approvals(&mut db, &ids).await?;
    let next_cursor = ids.last().filter(|_| has_more).map(|last| cursor::seal(&last.to_string()));
    let items = found.into_iter().map(|batch| {
        let received = approvals.remove(&batch.document.batch_id).unwrap_or_default();
        document(&app, batch, &received, None)
    });
    Ok(Json(Page { items: items.collect(), next_cursor }))
}

/// Hand in an approval, signed with an approver's own key.
///
/// When the quorum is met with it, the batch's commands are sent. An approval that is there already changes nothing.
#[utoipa::path(post, path = "/v1/commandBatches.approve", operation_id = "commandBatches.approve", tag = "commandBatches",
    request_body = ApproveBatch, responses((status = 200, description = "The batch", body = types::Batch), Errors))]
pub(super) async fn approve(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ApproveBatch>,
) -> Result<Json<types::Batch>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let id = rules.id("batchId", &ask.batch_id);
    rules.check()?;
    caller.on_tenant(BATCHES_APPROVE, tenant)?;
    let mut tx = app.pool.begin().await?;
    let approved = batches::approve(&mut tx, &app.config.pki, tenant, id, &ask.approval, app.now()).await?;
    tx.commit().await?;
    for node in approved.released {
        // What was held lies below what the session has claimed, so that it has to be looked at.
        app.bus.tell(Signal::Cancel { node });
    }
    app.bus.tell(Signal::Events);
    answer(&app, approved.batch).await
}

/// Reject a batch: what of it was not sent yet is cancelled, and nothing joins it any more.
#[utoipa::path(post, path = "/v1/commandBatches.reject", operation_id = "commandBatches.reject", tag = "commandBatches",
    request_body = RejectBatch, responses((status = 200, description = "The batch", body = types::Batch), Errors))]
pub(super) async fn reject(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RejectBatch>,
) -> Result<Json<types::Batch>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let id = rules.id("batchId", &ask.batch_id);
    rules.text("reason", &ask.reason, 1, MAX_REASON);
    rules.check()?;
    caller.on_tenant(BATCHES_APPROVE, tenant)?;
    let mut tx = app.pool.begin().await?;
    let batch = batches::reject(&mut tx, tenant, id, &caller.holder.name, &ask.reason, app.now()).await?;
    tx.commit().await?;
    app.bus.tell(Signal::Events);
    answer(&app, batch).await
}

/// The batch, whole.
async fn answer(app: &App, batch: Batch) -> Result<Json<types::Batch>, Failure> {
    let id = batch.document.batch_id;
    let mut db = app.db().await?;
    let scope = store::batches::scope(&mut db, id).await?;
    let received = store::batches::approvals(&mut db, &[id]).await?.remove(&id).unwrap_or_default();
    Ok(Json(document(app, batch, &received, Some(scope))))
}

fn document(app: &App, batch: Batch, received: &[Received], scope: Option<Vec<Leaf>>) -> types::Batch {
    let now_ms = unix_ms(app.now());
    let policy = app.config.pki.approvers.as_ref();
    let all: Vec<Approval> = received.iter().map(|it| it.approval).collect();
    let approvals = received.iter().map(|Received { name, approval }| {
        let mut alone = policy.map(|policy| policy.tally(&batch.document, std::slice::from_ref(approval), now_ms));
        let void = alone.as_mut().and_then(|alone| alone.void.pop());
        BatchApproval {
            name: name.clone(),
            approver: approval.approver.to_string(),
            approved_at: store::batches::at_ms(approval.approved_at_ms),
            expires_at: store::batches::at_ms(approval.expires_at_ms),
            counts: alone.is_some() && void.is_none(),
            void: void.map(|void| void.to_string()),
        }
    });
    let (rejected_by, rejection) = batch.rejection.unzip();
    types::Batch {
        batch_id: batch.document.batch_id.to_string(),
        tenant_id: batch.document.tenant_id.to_string(),
        state: batch.state.to_string(),
        reason: batch.document.reason.clone(),
        requested_by: batch.document.requested_by.clone(),
        size: batch.document.size,
        created_at: batch.created_at,
        expires_at: batch.expires_at,
        closed_at: batch.closed_at,
        rejected_by,
        rejection,
        approvals: approvals.collect(),
        missing: policy.map(|policy| policy.tally(&batch.document, &all, now_ms).missing),
        policy: policy.map(|policy| serde_json::to_value(&policy.require).expect("text and numbers are JSON")),
        scope: scope.map(|scope| {
            let shown =
                |leaf: Leaf| BatchLeaf { subject: leaf.subject, kind: leaf.kind, payload_sha256: leaf.payload_sha256 };
            scope.into_iter().map(shown).collect()
        }),
        document: batch.document,
    }
}

fn over(id: BatchId, state: Stands) -> Failure {
    Failure::state(&format!("batch-{state}"), format!("{id} is {state}; propose another batch"))
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::BatchRequired { ref kind } => {
                let message = format!(
                    "{kind} is destructive, and nodes run it only in an approved batch: create one with \
                     commandBatches.create and give its batchId"
                );
                Self::new(Code::InvalidState, message).with(json!({ "reason": "batch-required", "kind": kind }))
            }
            Refused::UnknownBatch(id) => Self::not_found("batch", id),
            Refused::OutOfScope { batch, node, kind } => {
                Self::field("batchId", format!("the scope of {batch} does not have {kind} on {node} with this payload"))
            }
            Refused::Over { batch, state } => over(batch, state),
            Refused::Store(error) => error.into(),
        }
    }
}

impl From<NotApproved> for Failure {
    fn from(error: NotApproved) -> Self {
        match error {
            NotApproved::UnknownBatch(id) => Self::not_found("batch", id),
            NotApproved::NoApprovers => Self::state("no-approvers", error.to_string()),
            NotApproved::Over(id, state) => over(id, state),
            NotApproved::Void(void @ Void::Requester(_)) => Self::state("own-batch", void.to_string()),
            NotApproved::Void(void @ Void::UnknownKey(_)) => Self::field("approval.approver", void.to_string()),
            NotApproved::Void(void @ Void::Early(_)) => Self::field("approval.approvedAtMs", void.to_string()),
            NotApproved::Void(void @ Void::Expired(_)) => Self::field("approval.expiresAtMs", void.to_string()),
            NotApproved::Void(void @ Void::Signature { .. }) => Self::field("approval.signature", void.to_string()),
            NotApproved::Times => Self::field("approval.expiresAtMs", error.to_string()),
            NotApproved::Store(error) => error.into(),
        }
    }
}

impl From<NotRejected> for Failure {
    fn from(error: NotRejected) -> Self {
        match error {
            NotRejected::UnknownBatch(id) => Self::not_found("batch", id),
            NotRejected::Over(id, state) => over(id, state),
            NotRejected::Store(error) => error.into(),
        }
    }
}
