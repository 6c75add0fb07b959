//! `quarantines`: nodes that are set apart.
//!
//! **Invariant:** whoever writes here has the node's lock, [`super::specs::lock`]: whoever reserves a GPU of the node, or queues a
//! destructive command for it, comes before or after it, and not at the same time.

use std::collections::BTreeMap;

use bc_proto::id::{NodeId, TenantId, WorkflowId};
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::Error;

/// A node that is set apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The workflow that did; `None` where a person did.
    pub workflow: Option<WorkflowId>,
    /// Why, in words.
    pub reason: String,
    /// Who that was.
    pub by: String,
    /// Since when.
    pub since: OffsetDateTime,
}

/// Whether a node is set apart, and why.
pub async fn find(db: &mut PgConnection, node: NodeId) -> Result<Option<Quarantine>, Error> {
    Ok(of_many(db, &[node]).await?.remove(&node))
}

/// Sets a node apart, with its event. One that is so already stays as it is, but that a workflow takes over what another
/// workflow left. Returns whether it is new.
pub async fn set(
    db: &mut PgTransaction<'_>,
    (tenant, node): (TenantId, NodeId),
    quarantine: &Quarantine,
) -> Result<bool, Error> {
    let workflow = quarantine.workflow.map(|id| id.uuid());
    let done = sqlx::query!(
        "with fresh as (
           insert into quarantines (node_id, workflow_id, reason, set_by, since) values ($2, $3, $4, $5, $6)
           on conflict (node_id) do nothing
           returning node_id
         )
         insert into events (tenant_id, node_id, topic, body, at)
         select $1, node_id, 'node.quarantined',
                jsonb_strip_nulls(jsonb_build_object('reason', $4::text, 'by', $5::text, 'workflowId', $7::text)), $6
         from fresh",
        tenant.uuid(),
        node.uuid(),
        workflow,
        quarantine.reason,
        quarantine.by,
        quarantine.since,
        quarantine.workflow.map(|id| id.to_string()),
    )
    .execute(&mut **db)
    .await?;
    if done.rows_affected() > 0 {
        return Ok(true);
    }
    sqlx::query!(
        "update quarantines set workflow_id = $2 where node_id = $1 and workflow_id is not null and $2::uuid is not null",
        node.uuid(),
        workflow,
    )
    .execute(&mut **db)
    .await?;
    Ok(false)
}

/// Lets a node go, with its event; only what `workflow` set apart, where it is named. Returns whether it was set apart.
pub async fn release(
    db: &mut PgTransaction<'_>,
    (tenant, node): (TenantId, NodeId),
    workflow: Option<WorkflowId>,
    by: &str,
    now: OffsetDateTime,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "with gone as (
           delete from quarantines where node_id = $2 and ($3::uuid is null or workflow_id = $3) returning node_id
         )
         insert into events (tenant_id, node_id, topic, body, at)
         select $1, node_id, 'node.released', jsonb_build_object('by', $4::text), $5 from gone",
        tenant.uuid(),
        node.uuid(),
        workflow.map(|id| id.uuid()),
        by,
        now,
    )
    .execute(&mut **db)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Which of these nodes are set apart, and why.
pub async fn of_many(db: &mut PgConnection, nodes: &[NodeId]) -> Result<BTreeMap<NodeId, Quarantine>, Error> {
    let ids: Vec<Uuid> = nodes.iter().map(NodeId::uuid).collect();
    let rows = sqlx::query!(
        "select node_id, workflow_id, reason, set_by, since from quarantines where node_id = any($1)",
        &ids,
    )
    .fetch_all(db)
    .await?;
    let found = rows.into_iter().map(|row| {
        let quarantine = Quarantine {
            workflow: row.workflow_id.map(WorkflowId::from_uuid),
            reason: row.reason,
            by: row.set_by,
            since: row.since,
        };
        (NodeId::from_uuid(row.node_id), quarantine)
    });
    Ok(found.collect())
}
