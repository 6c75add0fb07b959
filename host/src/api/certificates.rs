//! `nodes.certificates` and `nodes.revokeCertificate`.
//!
//! **Invariant:** once a revocation is answered, nothing that is said on a session of before it has an effect, on any replica.

use axum::Json;
use axum::extract::State;
use bc_proto::id::{NodeId, TenantId};
use sqlx::PgConnection;

use super::App;
use super::auth::{Caller, NODES_READ, NODES_WRITE};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, NodeCertificates, NodeRef, RevokeCertificate};
use crate::bus::Signal;
use crate::store::node_certificates::{self, Fingerprint, Listed};
use crate::store::nodes;

/// List a node's certificates, the newest first.
#[utoipa::path(post, path = "/v1/nodes.certificates", operation_id = "nodes.certificates", tag = "nodes",
    request_body = NodeRef,
    responses((status = 200, description = "Its certificates", body = NodeCertificates), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<NodeRef>,
) -> Result<Json<NodeCertificates>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_READ, node)?;
    let mut db = app.db().await?;
    known(&mut db, tenant, node).await?;
    answer(&mut db, node).await
}

/// Revoke a certificate of a node, or all that it has.
///
/// Its session ends at once, on whichever replica it is, and what is reported on it from now on has no effect. Without another
/// certificate the machine has to join again. Revoking what is revoked changes nothing.
#[utoipa::path(post, path = "/v1/nodes.revokeCertificate", operation_id = "nodes.revokeCertificate", tag = "nodes",
    request_body = RevokeCertificate,
    responses((status = 200, description = "The node's certificates", body = NodeCertificates), Errors))]
pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<RevokeCertificate>,
) -> Result<Json<NodeCertificates>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: NodeId = rules.id("nodeId", &ask.node_id);
    let fingerprint = ask.fingerprint.as_deref().map(|text| {
        let mut bytes = Fingerprint::default();
        let is_hex = hex::decode_to_slice(text, &mut bytes).is_ok();
        rules.rule(is_hex, "fingerprint", "must be 64 hexadecimal digits: SHA-256 of the certificate");
        bytes
    });
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_WRITE, node)?;
    let mut tx = app.pool.begin().await?;
    known(&mut tx, tenant, node).await?;
    let present = node_certificates::list(&mut tx, node).await?;
    if let Some(fingerprint) = fingerprint
        && !present.iter().any(|it| it.fingerprint == fingerprint)
    {
        return Err(Failure::not_found("certificate", hex::encode(fingerprint)));
    }
    let counts = |it: &Listed| it.revoked_at.is_none() && fingerprint.is_none_or(|wanted| wanted == it.fingerprint);
    if present.iter().any(counts) {
        node_certificates::revoke(&mut tx, node, fingerprint, app.now()).await?;
        tx.commit().await?;
        app.bus.tell(Signal::Cancel { node });
    }
    answer(&mut *app.db().await?, node).await
}

async fn known(db: &mut PgConnection, tenant: TenantId, node: NodeId) -> Result<(), Failure> {
    let found = nodes::find(db, tenant, node).await?;
    found.map(drop).ok_or_else(|| Failure::not_found("node", node))
}

async fn answer(db: &mut PgConnection, node: NodeId) -> Result<Json<NodeCertificates>, Failure> {
    let items = node_certificates::list(db, node).await?.into_iter().map(document).collect();
    Ok(Json(NodeCertificates { items }))
}

fn document(it: Listed) -> types::NodeCertificate {
    types::NodeCertificate {
        fingerprint: hex::encode(it.fingerprint),
        incarnation: it.incarnation,
        key: it.key.map(hex::encode),
        allowed_kinds: it.allowed_kinds,
        not_before: it.not_before,
        not_after: it.not_after,
        revoked_at: it.revoked_at,
    }
}
