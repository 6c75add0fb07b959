//! `nodes` and `node_sequences`: enrolled machines.
//!
//! **Invariant:** a node always has its sequence. What a hello changes, `queue::hello` writes; what ends a life of a node and
//! what becomes of its commands then, `queue::life`.

use std::collections::BTreeMap;

use bc_proto::id::{NodeId, TenantId};
use bc_proto::manifest::Role;
use bc_proto::wire::LoadedKind;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::{Error, code, corrupt, unsigned};

/// The most nodes on one page.
pub const MAX_PAGE: u32 = 200;

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

/// An enrolled machine, and what its last hello said.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name, unique among the tenant's nodes.
    pub name: String,
    /// Labels to select it by.
    pub labels: BTreeMap<String, String>,
    /// Its role now.
    pub role: Role,
    /// Which life of the machine this is.
    pub incarnation: u64,
    /// Whether its session is open, at a gateway that lives.
    pub connected: bool,
    /// The epoch of its last session; 0 before the first.
    pub session_epoch: u64,
    /// The daemon's version; `None` before the first hello.
    pub bcd_version: Option<String>,
    /// The host ABI that it provides; `None` before the first hello.
    pub host_abi: Option<String>,
    /// The kinds that it has loaded.
    pub kinds: Vec<LoadedKind>,
    /// When it was enrolled.
    pub created_at: OffsetDateTime,
    /// When its last session began.
    pub last_hello_at: Option<OffsetDateTime>,
}

/// The node of a tenant with an id, unless it was deleted.
pub async fn find(db: &mut PgConnection, tenant: TenantId, id: NodeId) -> Result<Option<Node>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select n.id, n.tenant_id, n.name, n.labels, n.role::text as "role!", n.incarnation,
                  n.session_closed_at is null
                    and coalesce(g.seen_at > now() - interval '15 seconds', false) as "connected!",
                  n.session_epoch, n.bcd_version, n.host_abi, n.kinds, n.created_at, n.last_hello_at
           from nodes n left join gateways g on g.name = n.gateway
           where n.tenant_id = $1 and n.id = $2 and n.deleted_at is null"#,
        tenant.uuid(),
        id.uuid(),
    )
    .fetch_optional(db)
    .await?;
    row.map(Node::try_from).transpose()
}

/// The names of nodes of a tenant, deleted ones as well.
pub async fn names(db: &mut PgConnection, tenant: TenantId, ids: &[NodeId]) -> Result<BTreeMap<NodeId, String>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(NodeId::uuid).collect();
    let rows = sqlx::query!("select id, name from nodes where tenant_id = $1 and id = any($2)", tenant.uuid(), &ids);
    Ok(rows.fetch_all(db).await?.into_iter().map(|row| (NodeId::from_uuid(row.id), row.name)).collect())
}

/// The node of a tenant with a name, unless it was deleted.
pub async fn named(db: &mut PgConnection, tenant: TenantId, name: &str) -> Result<Option<NodeId>, Error> {
    let id = sqlx::query_scalar!(
        "select id from nodes where tenant_id = $1 and name = $2 and deleted_at is null",
        tenant.uuid(),
        name,
    );
    Ok(id.fetch_optional(db).await?.map(NodeId::from_uuid))
}

/// A page of a tenant's nodes by name: those that have all of these labels, with a name after `cursor` (all for `None`). The next
/// page is after the last name of this one.
pub async fn list(
    db: &mut PgConnection,
    tenant: TenantId,
    labels: &BTreeMap<String, String>,
    limit: u32,
    cursor: Option<&str>,
) -> Result<Vec<Node>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select n.id, n.tenant_id, n.name, n.labels, n.role::text as "role!", n.incarnation,
                  n.session_closed_at is null
                    and coalesce(g.seen_at > now() - interval '15 seconds', false) as "connected!",
                  n.session_epoch, n.bcd_version, n.host_abi, n.kinds, n.created_at, n.last_hello_at
           from nodes n left join gateways g on g.name = n.gateway
           where n.tenant_id = $1 and n.deleted_at is null and n.name > $2 and n.labels @> $3
           order by n.name limit $4"#,
        tenant.uuid(),
        cursor.unwrap_or(""),
        serde_json::to_value(labels).expect("text is JSON"),
        i64::from(limit.min(MAX_PAGE)),
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Node::try_from).collect()
}

/// Sets labels of a node; `None` takes one away, and those that are not named stay. Returns whether the tenant has the node.
pub async fn set_labels(
    db: &mut PgConnection,
    tenant: TenantId,
    id: NodeId,
    labels: &BTreeMap<String, Option<String>>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "update nodes set labels = jsonb_strip_nulls(labels || $3)
         where tenant_id = $1 and id = $2 and deleted_at is null",
        tenant.uuid(),
        id.uuid(),
        serde_json::to_value(labels).expect("text is JSON"),
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() > 0)
}

struct Row {
    id: Uuid,
    tenant_id: Uuid,
    name: String,
    labels: Value,
    role: String,
    incarnation: i64,
    connected: bool,
    session_epoch: i64,
    bcd_version: Option<String>,
    host_abi: Option<String>,
    kinds: Value,
    created_at: OffsetDateTime,
    last_hello_at: Option<OffsetDateTime>,
}

impl TryFrom<Row> for Node {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let id = NodeId::from_uuid(row.id);
        let bad = |column| corrupt("nodes", column, id);
        Ok(Self {
            tenant: TenantId::from_uuid(row.tenant_id),
            name: row.name,
            labels: serde_json::from_value(row.labels).map_err(|_| bad("labels"))?,
            role: code::parse_role(&row.role).ok_or_else(|| bad("role"))?,
            incarnation: unsigned("nodes", "incarnation", id, row.incarnation)?,
            connected: row.connected,
            session_epoch: unsigned("nodes", "session_epoch", id, row.session_epoch)?,
            bcd_version: row.bcd_version,
            host_abi: row.host_abi,
            kinds: serde_json::from_value(row.kinds).map_err(|_| bad("kinds"))?,
            created_at: row.created_at,
            last_hello_at: row.last_hello_at,
            id,
        })
    }
}
