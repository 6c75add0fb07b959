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

/// Gives a gateway back to sessions. Returns whether runners leased for it.
pub async fn unassign(db: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    let done = sqlx::query!(
        "update nodes set runner_slug = null, session_epoch = session_epoch + 1
         where id = $1 and runner_slug is not null and deleted_at is null",
        node.uuid(),
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Whether a slug is another gateway's, of whichever tenant.
pub async fn is_taken(db: &mut PgConnection, node: NodeId, slug: &str) -> Result<bool, Error> {
    let taken = sqlx::query_scalar!(
        r#"select exists (select from nodes where runner_slug = $2 and deleted_at is null and id <> $1) as "taken!""#,
        node.uuid(),
        slug,
    );
    Ok(taken.fetch_one(db).await?)
}

/// Whether the database has a user of that name who may do what runners do.
pub async fn is_member(db: &mut PgConnection, login: &str) -> Result<bool, Error> {
    let is_member = sqlx::query_scalar!(
        r#"select exists (
             select from pg_roles r
             where r.rolname = $1 and r.rolcanlogin and pg_has_role(r.oid, 'better_compute_runner', 'member')
           ) as "member!""#,
        login,
    );
    Ok(is_member.fetch_one(db).await?)
}

/// A gateway whose runners lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Under which name.
    pub slug: String,
    /// The users of the database that act for it, by name.
    pub logins: Vec<String>,
    /// How many of its commands wait to be leased, held ones not counted.
    pub pending: u64,
    /// When the one of them was queued that waits longest.
    pub oldest_pending_at: Option<OffsetDateTime>,
}

/// The gateway; `None` where no runner leases for the node.
pub async fn gateway(db: &mut PgConnection, node: NodeId) -> Result<Option<Gateway>, Error> {
    let row = sqlx::query!(
        r#"select n.runner_slug as "slug!",
             array(select l.login::text from runner_logins l where l.node_id = n.id order by 1) as "logins!",
             (select count(*) from ready r where r.node_id = n.id and r.not_before < 'infinity') as "pending!",
             (select min(c.created_at) from ready r join commands c on c.node_id = r.node_id and c.seq = r.seq
              where r.node_id = n.id and r.not_before < 'infinity') as oldest_pending_at
           from nodes n where n.id = $1 and n.runner_slug is not null and n.deleted_at is null"#,
        node.uuid(),
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| Gateway {
        slug: row.slug,
        logins: row.logins,
        pending: u64::try_from(row.pending).unwrap_or(0),
        oldest_pending_at: row.oldest_pending_at,
    }))
}

/// A lease that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The command.
    pub command: CommandId,
    /// Its runner's user in the database, and the runner's name where it has one.
    pub leased_by: String,
    /// When it began.
    pub leased_at: OffsetDateTime,
    /// When it runs out, unless it is renewed.
    pub expires_at: OffsetDateTime,
    /// When the runner started the command; `None` before.
    pub started_at: Option<OffsetDateTime>,
    /// How many leases the command had before.
    pub earlier: u64,
}

/// The leases of a gateway that count, the oldest first.
pub async fn leases(db: &mut PgConnection, node: NodeId) -> Result<Vec<Lease>, Error> {
    let rows = sqlx::query!(
        r#"select c.id, l.leased_by, l.leased_at, l.expires_at, l.started_at,
             (select count(*) from runner_leases b where b.node_id = l.node_id and b.seq = l.seq and b.token < l.token)
               as "earlier!"
           from in_flight f
           join runner_leases l on l.node_id = f.node_id and l.seq = f.seq and l.token = f.epoch and l.ended_at is null
           join commands c on c.node_id = f.node_id and c.seq = f.seq
           where f.node_id = $1 order by l.leased_at, l.token"#,
        node.uuid(),
    );
    let rows = rows.fetch_all(db).await?.into_iter().map(|row| Lease {
        command: CommandId::from_uuid(row.id),
        leased_by: row.leased_by,
        leased_at: row.leased_at,
        expires_at: row.expires_at,
        started_at: row.started_at,
        earlier: u64::try_from(row.earlier).unwrap_or(0),
    });
    Ok(rows.collect())
}
