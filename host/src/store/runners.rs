//! Gateways whose commands runners lease, and which users of the database act for them.
//!
//! **Invariant:** a node is run by sessions or by runners, never by both: with a slug its sessions are fenced off, and no other
//! opens.

use bc_proto::id::NodeId;
use sqlx::PgConnection;

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
