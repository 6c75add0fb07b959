//! Gateways whose commands runners lease, and which users of the database act for them.
//!
//! **Invariant:** a node is run by sessions or by runners, never by both: with a slug its sessions are fenced off, and no other
//! opens.

use bc_proto::id::{CommandId, NodeId, TenantId};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::Error;

/// Has a gateway's commands leased under a slug from now on. Returns whether there is such a node, of the role `gateway`.
/// Errors when the slug is another's, or is none.
pub async fn assign(db: &mut PgConnection, node: NodeId, slug: &str) -> Result<bool, Error> {
    let done = sqlx::query!(
        "update nodes set runner_slug = $2, session_epoch = session_epoch + 1
         where id = $1 and role = 'gateway' and deleted_at is null",
        node.uuid(),
        slug,
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Lets a user of the database act for a gateway. The user is made by an administrator of the server, as a member of
/// `better_compute_runner`.
pub async fn allow(db: &mut PgConnection, login: &str, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "insert into runner_logins (login, node_id) values ($1::text::name, $2) on conflict do nothing",
        login,
        node.uuid(),
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Takes that back. Returns whether it was so.
pub async fn disallow(db: &mut PgConnection, login: &str, node: NodeId) -> Result<bool, Error> {
    let done =
        sqlx::query!("delete from runner_logins where login = $1::text::name and node_id = $2", login, node.uuid(),)
            .execute(db)
            .await?;
    Ok(done.rows_affected() > 0)
}

/// The tenant's gateway of a slug.
pub async fn find(db: &mut PgConnection, tenant: TenantId, slug: &str) -> Result<Option<NodeId>, Error> {
    let found = sqlx::query_scalar!(
        "select id from nodes where tenant_id = $1 and runner_slug = $2 and deleted_at is null",
        tenant.uuid(),
        slug,
    );
    Ok(found.fetch_optional(db).await?.map(NodeId::from_uuid))
}

/// A command as its runner and whoever asked for it see it: a row of `agent_commands`.
#[derive(Debug, Clone, PartialEq)]
pub struct Leased {
    /// The command.
    pub id: Uuid,
    /// Its gateway's slug.
    pub gateway: String,
    /// What was asked for.
    pub action: String,
    /// `pending`, `leased`, `running`, `done` or `failed`.
    pub status: String,
    /// What the runner's program said, for people; `None` before the end.
    pub stdout: Option<String>,
    /// What it complained about.
    pub stderr: Option<String>,
    /// How it ended.
    pub exit_code: Option<i32>,
    /// Why it failed.
    pub error: Option<String>,
    /// When it was queued.
    pub created_at: OffsetDateTime,
    /// When its last lease began.
    pub leased_at: Option<OffsetDateTime>,
    /// When its runner began.
    pub started_at: Option<OffsetDateTime>,
    /// When it was over.
    pub finished_at: Option<OffsetDateTime>,
    /// Who asked for it.
    pub requested_by: Option<String>,
    /// Who had its last lease.
    pub leased_by: Option<String>,
}

/// The commands with these ids, in their order, less those whose gateway is gone.
pub async fn leased(db: &mut PgConnection, ids: &[CommandId]) -> Result<Vec<Leased>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(CommandId::uuid).collect();
    let rows = sqlx::query_as!(
        Leased,
        r#"select a.id as "id!", gateway_slug as "gateway!", action as "action!", status as "status!", stdout, stderr, exit_code,
             error, created_at as "created_at!", leased_at, started_at, finished_at, a.leased_by,
             coalesce(a.requested_by, (select c.requested_by from commands c where c.id = a.id)) as requested_by
           from unnest($1::uuid[]) with ordinality wanted (id, place)
           cross join lateral (select * from agent_commands v where v.id = wanted.id offset 0) a
           order by wanted.place"#,
        &ids,
    );
    Ok(rows.fetch_all(db).await?)
}
