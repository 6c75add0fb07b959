//! `nodes.setSpec` and `nodes.getSpec`.
//!
//! **Invariant:** what a caller sets never touches what is held: holds come from reservations alone.

use axum::Json;
use axum::extract::State;
use bc_proto::sign::WorkerSignature;
use bc_proto::spec::{HostSettings, Instance};
use bc_proto::wire::v1;
use prost::Message as _;
use serde_json::json;

use super::App;
use super::auth::{Caller, NODES_READ, SPECS_WRITE};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, Code, NodeRef, SetSpec};
use crate::bus::Signal;
use crate::desired::{self, Author, Change};
use crate::store::specs;

/// The highest generation that is taken: what both JSON and Postgres count exactly.
pub(super) const MAX_GENERATION: u64 = (1 << 53) - 1;

/// What a generation has to be.
pub(super) const GENERATION_RULE: &str = "must be a generation: a whole number from 1";

/// The most virtual machines of a node.
const MAX_INSTANCES: usize = 64;

/// The most GPUs that are passed through to one.
const MAX_PASS_THROUGH: usize = 64;

/// Set what a node should be.
///
/// It makes the next generation of the node's spec, signed where signing is configured. Holds are not set: they come from
/// reservations.
#[utoipa::path(post, path = "/v1/nodes.setSpec", operation_id = "nodes.setSpec", tag = "nodes",
    request_body = SetSpec, responses((status = 200, description = "The new spec", body = types::Spec), Errors))]
pub(super) async fn set(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<SetSpec>,
) -> Result<Json<types::Spec>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    check(&mut rules, &ask);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(SPECS_WRITE, node)?;
    let instances = ask.instances.into_iter().map(|it| Instance { id: it.id, pass_through: it.pass_through }).collect();
    let types::HostSettings { huge_pages_1g, isolated_cpus, iommu } = ask.host;
    let host = HostSettings { huge_pages_1g, isolated_cpus, iommu };
    let author = Author { signer: &app.signer, name: &caller.holder.name, now: app.now() };
    let mut tx = app.pool.begin().await?;
    let change = desired::set(&mut tx, author, (tenant, node), ask.expected_generation, (instances, host)).await?;
    match change {
        Change::Made(spec) => {
            let applied = specs::find_applied(&mut tx, tenant, node).await?.unwrap_or(0);
            tx.commit().await?;
            app.bus.tell(Signal::Spec { node });
            app.bus.tell(Signal::Events);
            document(node.to_string(), Some(spec), applied)
        }
        Change::Conflict(generation) => {
            let message =
                format!("expectedGeneration: the newest spec is of generation {generation}; read it, and set again");
            Err(Failure::new(Code::Conflict, message).with(json!({ "generation": generation })))
        }
        Change::UnknownNode => Err(Failure::not_found("node", node)),
    }
}

fn check(rules: &mut Rules, ask: &SetSpec) {
    let is_generation = ask.expected_generation.is_none_or(|it| it <= MAX_GENERATION);
    rules.rule(is_generation, "expectedGeneration", "must be a generation, or 0 before the first");
    rules.rule(ask.instances.len() <= MAX_INSTANCES, "instances", format!("must have at most {MAX_INSTANCES} items"));
    let mut passed = Vec::new();
    for (at, instance) in ask.instances.iter().take(MAX_INSTANCES).enumerate() {
        rules.text(&format!("instances[{at}].id"), &instance.id, 1, 64);
        let is_new = ask.instances[..at].iter().all(|it| it.id != instance.id);
        rules.rule(is_new, &format!("instances[{at}].id"), "must be another one for each instance");
        let field = format!("instances[{at}].passThrough");
        let rule = format!("must have at most {MAX_PASS_THROUGH} items");
        rules.rule(instance.pass_through.len() <= MAX_PASS_THROUGH, &field, rule);
        for gpu in instance.pass_through.iter().take(MAX_PASS_THROUGH) {
            self::gpu(rules, &field, gpu);
            rules.rule(!passed.contains(&gpu), &field, format!("must name {gpu} once, in one instance"));
            passed.push(gpu);
        }
    }
    let is_list = |list: &String| bc_proto::rules::cpus::parse(list).is_some();
    let isolated = &ask.host.isolated_cpus;
    rules.rule(isolated.as_ref().is_none_or(is_list), "host.isolatedCpus", "must be processors, such as 2-5,8");
    let is_some = ask.host.huge_pages_1g.is_none_or(|pages| pages <= 65_536);
    rules.rule(is_some, "host.hugePages1g", "must be between 0 and 65536");
}

/// The UUID of a GPU or of a MIG instance, as NVIDIA writes them.
pub(super) fn gpu(rules: &mut Rules, field: &str, text: &str) {
    let uuid = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"));
    let is_uuid = uuid.is_some_and(|uuid| {
        (1..=90).contains(&uuid.len()) && uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-/".contains(&byte))
    });
    rules.rule(is_uuid, field, "must be the UUID of a GPU or of a MIG instance, GPU-… or MIG-…");
}

/// Show what a node should be, and how far it is.
#[utoipa::path(post, path = "/v1/nodes.getSpec", operation_id = "nodes.getSpec", tag = "nodes",
    request_body = NodeRef, responses((status = 200, description = "The newest spec", body = types::Spec), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<NodeRef>,
) -> Result<Json<types::Spec>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_READ, node)?;
    let mut db = app.db().await?;
    let applied = specs::find_applied(&mut db, tenant, node).await?;
    let applied = applied.ok_or_else(|| Failure::not_found("node", node))?;
    document(node.to_string(), specs::newest(&mut db, node).await?, applied)
}

fn document(node_id: String, spec: Option<specs::Spec>, applied_generation: u64) -> Result<Json<types::Spec>, Failure> {
    let Some(spec) = spec else {
        return Ok(Json(types::Spec {
            node_id,
            generation: 0,
            applied_generation,
            document: None,
            signed_by: None,
            created_at: None,
            created_by: None,
        }));
    };
    let document = desired::parse(&spec)?;
    let signature = spec.signature.as_deref().and_then(|bytes| v1::WorkerSignature::decode(bytes).ok());
    let signed_by = signature.and_then(|it| WorkerSignature::try_from(it).ok()).map(|it| types::SignedBy {
        key: it.worker.key.to_string(),
        root: it.worker.root.to_string(),
        issued_at_ms: it.issued_at_ms,
    });
    Ok(Json(types::Spec {
        node_id,
        generation: spec.generation,
        applied_generation,
        document: Some(serde_json::to_value(document).expect("specs are text and whole numbers")),
        signed_by,
        created_at: Some(spec.created_at),
        created_by: Some(spec.created_by),
    }))
}
