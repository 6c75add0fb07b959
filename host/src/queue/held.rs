//! Commands of a batch: let go when it is approved, called off when it is over, and sent with what proves that it was approved.
//!
//! **Invariant:** whoever calls holds the batch's row, so that no command joins it meanwhile: of those that wait, none is missed.

use std::collections::HashMap;

use bc_proto::batch::Approved;
use bc_proto::id::{BatchId, NodeId};
use bc_proto::rules::state::{Event, State};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::claim::Delivery;
use super::settle::{self, Settlement};
use crate::store::{Error, batches, corrupt, signed, unix_ms, unsigned};

/// How many commands one statement calls off.
const CHUNK: i64 = 1_000;

/// Lets a batch's held commands go; returns their nodes. They may lie below what their sessions have claimed already, so have
/// the sessions looked at.
pub async fn release(db: &mut PgConnection, batch: BatchId, now: OffsetDateTime) -> Result<Vec<NodeId>, Error> {
    let nodes = sqlx::query_scalar!(
        r#"with held as materialized (
             select r.node_id, r.lane, r.seq
             from commands c
             cross join lateral (
               select node_id, lane, seq from ready
               where ready.node_id = c.node_id and ready.lane = c.lane and ready.seq = c.seq and not_before = 'infinity'
               for update
             ) r
             where c.batch_id = $1
           ), released as (
             update ready r set not_before = $2 from held h
             where r.node_id = h.node_id and r.lane = h.lane and r.seq = h.seq
             returning r.node_id
           )
           select distinct node_id as "node_id!" from released"#,
        batch.uuid(),
        now,
    );
    Ok(nodes.fetch_all(db).await?.into_iter().map(NodeId::from_uuid).collect())
}

/// Calls off what of a batch was not sent yet, held or not; returns how many commands.
pub async fn cancel(db: &mut PgConnection, batch: BatchId, reason: &str, now: OffsetDateTime) -> Result<usize, Error> {
    let mut cancelled = 0;
    loop {
        let rows = sqlx::query!(
            r#"select c.id, c.node_id
               from commands c
               cross join lateral (
                 select seq from ready
                 where ready.node_id = c.node_id and ready.lane = c.lane and ready.seq = c.seq
                 for update skip locked
               ) r
               where c.batch_id = $1
               limit $2"#,
            batch.uuid(),
            CHUNK,
        );
        let rows = rows.fetch_all(&mut *db).await?;
        let decided = |node, id| Settlement::decided(node, id, State::Pending, Event::CancelRequested, reason);
        let settlements: Vec<_> = rows.iter().filter_map(|row| decided(row.node_id, row.id)).collect();
        let written = settle::write(db, &settlements, now).await?.len();
        if written == 0 {
            return Ok(cancelled);
        }
        cancelled += written;
    }
}

/// Adds to deliveries of batches what proves that they were approved: the document, the leaf's proof, and those approvals
/// that have not expired. Nothing is asked where no delivery has a batch.
pub(super) async fn attach(
    db: &mut PgConnection,
    mut deliveries: Vec<Delivery>,
    now: OffsetDateTime,
) -> Result<Vec<Delivery>, Error> {
    let batched: Vec<Uuid> =
        deliveries.iter().filter(|it| it.deliver.batch.is_some()).map(|it| it.deliver.command.uuid()).collect();
    if batched.is_empty() {
        return Ok(deliveries);
    }
    let subjects: Vec<String> =
        deliveries.iter().filter(|it| it.deliver.batch.is_some()).map(|it| it.deliver.node.to_string()).collect();
    let rows = sqlx::query!(
        r#"select c.id, b.id as batch_id, b.document, l.index, l.payload_sha256 is not null as "binds_payload!", l.proof,
             array(select approver from batch_approvals p where p.batch_id = b.id and p.expires_at_ms > $3
                   order by approver) as "approvers!",
             array(select approved_at_ms from batch_approvals p where p.batch_id = b.id and p.expires_at_ms > $3
                   order by approver) as "approved!",
             array(select expires_at_ms from batch_approvals p where p.batch_id = b.id and p.expires_at_ms > $3
                   order by approver) as "expire!",
             array(select signature from batch_approvals p where p.batch_id = b.id and p.expires_at_ms > $3
                   order by approver) as "signatures!"
           from unnest($1::uuid[], $2::text[]) as a (id, subject)
           join commands c on c.id = a.id
           join batches b on b.id = c.batch_id
           cross join lateral (
             select index, payload_sha256, proof from batch_leaves
             where batch_id = b.id and subject = a.subject and kind = c.kind
               and (payload_sha256 is null or payload_sha256 = c.payload_hash)
             order by index limit 1
           ) l"#,
        &batched,
        &subjects,
        signed(unix_ms(now)),
    )
    .fetch_all(db)
    .await?;
    let mut proofs: HashMap<Uuid, Approved> = HashMap::new();
    for row in rows {
        let id = BatchId::from_uuid(row.batch_id);
        let columns = row.approvers.iter().zip(&row.signatures).zip(row.approved.iter().zip(&row.expire));
        let approvals = columns
            .map(|((approver, signature), (&approved, &expires))| {
                batches::approval(id, approver, approved, expires, signature)
            })
            .collect::<Result<_, Error>>()?;
        let document = serde_json::from_slice(&row.document).map_err(|_| corrupt("batches", "document", id))?;
        let index = unsigned("batch_leaves", "index", id, i64::from(row.index))?;
        let (binds_payload, proof) = (row.binds_payload, row.proof);
        proofs.insert(row.id, Approved { document, index, binds_payload, proof, approvals });
    }
    for delivery in &mut deliveries {
        delivery.deliver.approved = proofs.remove(&delivery.deliver.command.uuid()).map(Box::new);
    }
    Ok(deliveries)
}
