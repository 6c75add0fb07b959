//! Looking at sessions: what a wake-up that was lost would have said.
//!
//! **Invariant:** looking changes nothing. Whatever a signal tells a gateway can be found here, so no signal has to arrive.

use bc_proto::id::{CommandId, NodeId};
use bc_proto::sign::WorkerSignature;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use crate::store::worker_keys::stored;
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
    pub cancelled: Vec<Cancelled>,
}

/// A command that is called off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled {
    /// The command.
    pub command: CommandId,
    /// The control plane's signature; `None` where nothing is signed.
    pub signature: Option<WorkerSignature>,
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
                   coalesce(x.ids, '{}') as "cancelled!", x.ats as "ats: Vec<OffsetDateTime>",
                   x.signatures as "signatures: Vec<Option<Vec<u8>>>", x.workers as "workers: Vec<Option<Vec<u8>>>"
            from unnest($1::uuid[], $2::bigint[]) as a (node_id, epoch)
            left join nodes n on n.id = a.node_id and n.session_epoch = a.epoch and n.deleted_at is null
            cross join lateral (
                select array_agg(c.id) as ids, array_agg(f.cancel_requested_at) as ats,
                       array_agg(f.cancel_signature) as signatures,
                       array_agg((select certificate from worker_keys w where w.id = f.cancel_worker_key)) as workers
                from in_flight f
                cross join lateral (
                    select id from commands where commands.node_id = f.node_id and commands.seq = f.seq limit 1
                ) c
                where f.node_id = a.node_id and f.cancel_requested_at is not null
            ) x
        ) looked where "is_over!" or "has_work!" or "cancelled!" <> '{}'"#,
        &nodes,
        &epochs,
        now,
    )
    .fetch_all(db)
    .await?;
    let looks = rows.into_iter().map(|row| {
        let (ats, signatures) = (row.ats.unwrap_or_default(), row.signatures.unwrap_or_default());
        let signed = ats.into_iter().zip(signatures).zip(row.workers.unwrap_or_default());
        let cancelled = row.cancelled.into_iter().zip(signed).map(|(id, ((at, signature), worker))| {
            let signature = stored("in_flight", CommandId::from_uuid(id), signature, worker, Some(at))?;
            Ok(Cancelled { command: CommandId::from_uuid(id), signature })
        });
        Ok(Look {
            node: NodeId::from_uuid(row.node_id),
            is_over: row.is_over,
            has_work: row.has_work,
            cancelled: cancelled.collect::<Result<_, Error>>()?,
        })
    });
    looks.collect()
}
