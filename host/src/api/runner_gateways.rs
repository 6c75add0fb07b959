//! `runners.set`, `get`, `allow` and `disallow`: which gateways hold no session, and who leases their commands.
//!
//! **Invariant:** a gateway changes hands only while nobody has anything of it: a lease that counts belongs to its slug.

use axum::Json;
use axum::extract::State;
use bc_proto::id::{NodeId, TenantId};
use serde_json::json;
use sqlx::PgConnection;

use super::App;
use super::auth::{Caller, NODES_READ, NODES_WRITE};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{Code, NodeRef, RunnerGateway, RunnerLease, RunnerLogin, SetRunner};
use crate::store::{nodes, runners};

/// The longest name that Postgres keeps whole, bytes.
const MAX_LOGIN: usize = 63;

/// Have a gateway's commands leased by runners under a slug, or, without one, sent over its sessions again.
///
/// Open sessions of the node end. It needs the role `gateway`, and no lease that counts.
#[utoipa::path(post, path = "/v1/runners.set", operation_id = "runners.set", tag = "nodes",
    request_body = SetRunner, responses((status = 200, description = "The gateway", body = RunnerGateway), Errors))]
pub(super) async fn set(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<SetRunner>,
) -> Result<Json<RunnerGateway>, Failure> {
    let mut rules = Rules::default();
    let (tenant, node) = (rules.tenant(&ask.tenant_id), rules.id("nodeId", &ask.node_id));
    let is_slug = |slug: &str| {
        let fits = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        (1..=63).contains(&slug.len()) && slug.bytes().all(fits) && !slug.starts_with('-')
    };
    let rule = "must have 1 to 63 of a-z, 0-9 and dashes, and not begin with a dash";
    rules.rule(ask.slug.as_deref().is_none_or(is_slug), "slug", rule);
    rules.check()?;
    let mut tx = app.pool.begin().await?;
    let found = writable(&mut tx, &caller, tenant, node).await?;
    let now = runners::gateway(&mut tx, node).await?.map(|it| it.slug);
    if now != ask.slug {
        if found.role != bc_proto::manifest::Role::Gateway {
            return Err(Failure::state(
                "wrong-role",
                format!("{} is no gateway: runners lease for those alone", found.name),
            ));
        }
        let leases = runners::leases(&mut tx, node).await?;
        if !leases.is_empty() {
            let message = "runners have commands of it; call them off, or wait until their leases end";
            return Err(Failure::state("leased", message).with(json!({ "reason": "leased", "leases": leases.len() })));
        }
        match &ask.slug {
            Some(slug) if runners::is_taken(&mut tx, node, slug).await? => {
                return Err(Failure::new(Code::Conflict, format!("the slug {slug} is another gateway's")));
            }
            Some(slug) => drop(runners::assign(&mut tx, node, slug).await?),
            None => drop(runners::unassign(&mut tx, node).await?),
        }
    }
    let gateway = document(&mut tx, node).await?;
    tx.commit().await?;
    Ok(Json(gateway))
}

/// Get a gateway's slug, who acts for it, what waits and what is leased.
#[utoipa::path(post, path = "/v1/runners.get", operation_id = "runners.get", tag = "nodes",
    request_body = NodeRef, responses((status = 200, description = "The gateway", body = RunnerGateway), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<NodeRef>,
) -> Result<Json<RunnerGateway>, Failure> {
    let mut rules = Rules::default();
    let (tenant, node) = (rules.tenant(&ask.tenant_id), rules.id("nodeId", &ask.node_id));
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_READ, node)?;
    let mut db = app.db().await?;
    nodes::find(&mut db, tenant, node).await?.ok_or_else(|| Failure::not_found("node", node))?;
    Ok(Json(document(&mut db, node).await?))
}

/// Let a user of the database act for a gateway.
///
/// An administrator of the database server makes the user; what it may do there is the role `better_compute_runner`'s.
#[utoipa::path(post, path = "/v1/runners.allow", operation_id = "runners.allow", tag = "nodes",
    request_body = RunnerLogin, responses((status = 200, description = "The gateway", body = RunnerGateway), Errors))]
pub(super) async fn allow(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RunnerLogin>,
) -> Result<Json<RunnerGateway>, Failure> {
    let (tenant, node) = named(&ask)?;
    let mut tx = app.pool.begin().await?;
    writable(&mut tx, &caller, tenant, node).await?;
    if !runners::is_member(&mut tx, &ask.login).await? {
        let quoted = ask.login.replace('"', "\"\"");
        let rule = format!(
            "must be a user of the database that is a member of better_compute_runner; as its administrator: \
             create role \"{quoted}\" login password '…'; grant better_compute_runner to \"{quoted}\""
        );
        return Err(Failure::field("login", rule));
    }
    runners::allow(&mut tx, &ask.login, node).await?;
    let gateway = document(&mut tx, node).await?;
    tx.commit().await?;
    Ok(Json(gateway))
}

/// Take that back. What the user has leased stays its own until the lease ends.
#[utoipa::path(post, path = "/v1/runners.disallow", operation_id = "runners.disallow", tag = "nodes",
    request_body = RunnerLogin, responses((status = 200, description = "The gateway", body = RunnerGateway), Errors))]
pub(super) async fn disallow(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RunnerLogin>,
) -> Result<Json<RunnerGateway>, Failure> {
    let (tenant, node) = named(&ask)?;
    let mut tx = app.pool.begin().await?;
    writable(&mut tx, &caller, tenant, node).await?;
    runners::disallow(&mut tx, &ask.login, node).await?;
    let gateway = document(&mut tx, node).await?;
    tx.commit().await?;
    Ok(Json(gateway))
}

fn named(ask: &RunnerLogin) -> Result<(TenantId, NodeId), Failure> {
    let mut rules = Rules::default();
    let (tenant, node) = (rules.tenant(&ask.tenant_id), rules.id("nodeId", &ask.node_id));
    rules.rule((1..=MAX_LOGIN).contains(&ask.login.len()), "login", format!("must have 1 to {MAX_LOGIN} bytes"));
    rules.check()?;
    Ok((tenant, node))
}

/// The node, where the caller may change it.
async fn writable(
    db: &mut PgConnection,
    caller: &Caller,
    tenant: TenantId,
    node: NodeId,
) -> Result<nodes::Node, Failure> {
    caller.tenant(tenant)?;
    caller.on_node(NODES_WRITE, node)?;
    nodes::find(db, tenant, node).await?.ok_or_else(|| Failure::not_found("node", node))
}

async fn document(db: &mut PgConnection, node: NodeId) -> Result<RunnerGateway, Failure> {
    let found = runners::gateway(db, node).await?;
    let leases = runners::leases(db, node).await?.into_iter().map(lease).collect();
    let node_id = node.to_string();
    Ok(match found {
        Some(runners::Gateway { slug, logins, pending, oldest_pending_at }) => {
            RunnerGateway { node_id, slug: Some(slug), logins, pending, oldest_pending_at, leases }
        }
        None => RunnerGateway { node_id, slug: None, logins: Vec::new(), pending: 0, oldest_pending_at: None, leases },
    })
}

fn lease(found: runners::Lease) -> RunnerLease {
    RunnerLease {
        command_id: found.command.to_string(),
        leased_by: found.leased_by,
        leased_at: found.leased_at,
        expires_at: found.expires_at,
        started_at: found.started_at,
        earlier_leases: found.earlier,
    }
}
