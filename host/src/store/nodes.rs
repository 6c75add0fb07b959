//! `nodes` and `node_sequences`: enrolled machines.
//!
//! **Invariant:** a node always has its sequence. What a hello changes, `queue::hello` writes; what ends a life of a node and
//! what becomes of its commands then, `queue::life`.

use std::collections::BTreeMap;

use bc_proto::id::{NodeId, TenantId};
use bc_proto::manifest::Role;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Error, code};

/// A machine to enrol.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// Its id.
    pub id: NodeId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name, unique among the tenant's nodes.
    pub name: String,
    /// Labels to select it by.
    pub labels: BTreeMap<String, String>,
    /// The role that it joins with.
    pub role: Role,
}

/// Enrols a machine, in its first life. Errors when the name is taken.
pub async fn create(db: &mut PgConnection, node: NewNode, now: OffsetDateTime) -> Result<(), Error> {
    sqlx::query!(
        "with created as (
            insert into nodes (id, tenant_id, name, labels, role, created_at)
            values ($1, $2, $3, $4, $5::text::role, $6) returning id
         )
         insert into node_sequences (node_id) select id from created",
        node.id.uuid(),
        node.tenant.uuid(),
        node.name,
        serde_json::to_value(&node.labels).expect("text is JSON"),
        code::role(node.role),
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}
