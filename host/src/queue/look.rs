//! Looking at sessions: what a wake-up that was lost would have said.
//!
//! **Invariant:** looking changes nothing. Whatever a signal tells a gateway can be found here, so no signal has to arrive.

use bc_proto::id::{CommandId, NodeId};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use crate::store::{Error, signed};

/// What is to be done for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The node.
    pub node: NodeId,
    /// Whether this is no longer the node's session: there is a newer one, or the node was deleted or replaced.
    pub is_over: bool,
    /// Whether something waits that may be sent now.
    pub has_work: bool,
    /// What the node has and is to stop.
    pub cancelled: Vec<CommandId>,
}

/// Looks at sessions, each a node and its epoch; answers those for which there is something to do.
pub async fn look(db: &mut PgConnection, sessions: &[(NodeId, u64)], now: OffsetDateTime) -> Result<Vec<Look>, Error> {
    let nodes: Vec<Uuid> = sessions.iter().map(|(node, _)| node.uuid()).collect();
    let epochs: Vec<i64> = sessions.iter().map(|&(_, epoch)| signed(epoch)).collect();
    let rows = sqlx::query!(
        r#"select * from (
            select a.node_id as "node_id!",
                   (n.id is null) as "is_over!",
                   exists (
                       select from ready r
                       where r.node_id = a.node_id and r.not_before <= $3 and r.not_after > $3
                         and (r.only_incarnation is null or r.only_incarnation = n.incarnation)
                   ) as "has_work!",
                   array(
                       select c.id from in_flight f
                       cross join lateral (
                           select id from commands where commands.node_id = f.node_id and commands.seq = f.seq limit 1
                       ) c
                       where f.node_id = a.node_id and f.cancel_requested_at is not null
                   ) as "cancelled!"
            from unnest($1::uuid[], $2::bigint[]) as a (node_id, epoch)
            left join nodes n on n.id = a.node_id and n.session_epoch = a.epoch and n.deleted_at is null
        ) looked where "is_over!" or "has_work!" or "cancelled!" <> '{}'"#,
        &nodes,
        &epochs,
        now,
    )
    .fetch_all(db)
    .await?;
    let looks = rows.into_iter().map(|row| Look {
        node: NodeId::from_uuid(row.node_id),
        is_over: row.is_over,
        has_work: row.has_work,
        cancelled: row.cancelled.into_iter().map(CommandId::from_uuid).collect(),
    });
    Ok(looks.collect())
}
