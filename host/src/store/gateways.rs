//! `gateways`: the replicas that hold sessions, and whether they live.
//!
//! **Invariant:** a replica is alive by the database's clock alone, so no difference between the replicas' clocks matters.

use bc_proto::id::NodeId;
use sqlx::PgConnection;
use sqlx::types::Uuid;

use super::{Error, signed};

/// How often a replica says that it lives.
pub const PERIOD: std::time::Duration = std::time::Duration::from_secs(5);

/// Says that a replica lives.
pub async fn see(db: &mut PgConnection, name: &str) -> Result<(), Error> {
    sqlx::query!(
        "insert into gateways (name, seen_at) values ($1, now()) on conflict (name) do update set seen_at = now()",
        name,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Closes every session of a replica: of one that begins, those that it died with under the same name.
pub async fn close_all(db: &mut PgConnection, name: &str) -> Result<(), Error> {
    sqlx::query!("update nodes set session_closed_at = now() where gateway = $1 and session_closed_at is null", name)
        .execute(db)
        .await?;
    Ok(())
}

/// Notes the end of sessions, each a node and its epoch. One that is no longer its node's newest changes nothing.
pub async fn close(db: &mut PgConnection, sessions: &[(NodeId, u64)]) -> Result<(), Error> {
    let nodes: Vec<Uuid> = sessions.iter().map(|(node, _)| node.uuid()).collect();
    let epochs: Vec<i64> = sessions.iter().map(|&(_, epoch)| signed(epoch)).collect();
    sqlx::query!(
        "with ended as materialized (
            select n.id from unnest($1::uuid[], $2::bigint[]) as a (id, epoch)
            join nodes n on n.id = a.id and n.session_epoch = a.epoch
            order by n.id
            for no key update of n
         )
         update nodes n set session_closed_at = now() from ended e where n.id = e.id and n.session_closed_at is null",
        &nodes,
        &epochs,
    )
    .execute(db)
    .await?;
    Ok(())
}
