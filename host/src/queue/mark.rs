//! Marks of progress, and putting back what a node had no worker for.
//!
//! **Invariant:** marks only ever go forward, and none is needed for a result to land. They commit asynchronously: one that is
//! lost costs a redelivery, which the journal answers.

use std::collections::HashMap;

use bc_proto::id::{CommandId, NodeId};
use bc_proto::rules::backoff;
use bc_proto::rules::state::{Event, State};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::settle::{self, Settlement};
use crate::store::{Error, signed};

/// How far a node says that it got with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The node.
    pub node: NodeId,
    /// The session that it came on.
    pub epoch: u64,
    /// The command.
    pub command: CommandId,
    /// [`Event::Acked`] or [`Event::Started`]; others are no marks and change nothing.
    pub event: Event,
}

/// Records marks, in one statement; returns how many commands got further. In a transaction of the caller's the whole of it
/// commits asynchronously.
pub async fn mark(db: &mut PgConnection, marks: &[Mark]) -> Result<u64, Error> {
    // The furthest of each command: one statement changes a row once.
    let mut furthest: HashMap<Uuid, (&Mark, State)> = HashMap::new();
    for mark in marks {
        let before = furthest.get(&mark.command.uuid()).map_or(State::Dispatched, |(_, state)| *state);
        if let Ok(after @ (State::Acked | State::Running)) = before.on(mark.event) {
            furthest.insert(mark.command.uuid(), (mark, after));
        }
    }
    let nodes: Vec<Uuid> = furthest.values().map(|(mark, _)| mark.node.uuid()).collect();
    let epochs: Vec<i64> = furthest.values().map(|(mark, _)| signed(mark.epoch)).collect();
    let commands: Vec<Uuid> = furthest.keys().copied().collect();
    let states: Vec<String> = furthest.values().map(|(_, state)| state.to_string()).collect();
    let done = sqlx::query!(
        "with relaxed as materialized (
            select set_config('synchronous_commit', 'off', true) as mode
         )
         update in_flight f set state = a.state::in_flight_state
         from relaxed,
              unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::text[]) as a (node_id, epoch, id, state)
         join nodes n on n.id = a.node_id and n.session_epoch = a.epoch
         -- By its id alone: with a plain `=` the planner may walk through all commands that the node ever had.
         join commands c on c.id = a.id and c.node_id is not distinct from a.node_id
         where relaxed.mode = 'off'
           and f.node_id = c.node_id and f.seq = c.seq and f.state < a.state::in_flight_state",
        &nodes,
        &epochs,
        &commands,
        &states,
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// A command that a node had no worker for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    /// The node.
    pub node: NodeId,
    /// The session that it came on.
    pub epoch: u64,
    /// The command.
    pub command: CommandId,
}

/// A command that was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requeued {
    /// Its node.
    pub node: NodeId,
    /// When it may be sent again.
    pub not_before: OffsetDateTime,
}

/// Puts commands back to `ready`, each with a wait that grows with its attempts; one that was called off meanwhile is
/// cancelled instead. `random` draws from 0..1. Returns what was put back; claim its lanes from seq 0 again.
pub async fn requeue(
    db: &mut PgConnection,
    busy: &[Busy],
    now: OffsetDateTime,
    mut random: impl FnMut() -> f64,
) -> Result<Vec<Requeued>, Error> {
    let nodes: Vec<Uuid> = busy.iter().map(|it| it.node.uuid()).collect();
    let epochs: Vec<i64> = busy.iter().map(|it| signed(it.epoch)).collect();
    let commands: Vec<Uuid> = busy.iter().map(|it| it.command.uuid()).collect();
    let rows = sqlx::query!(
        r#"select f.node_id, f.seq, f.attempt, f.cancel_requested_at is not null as "is_cancelled!", c.id
           from unnest($1::uuid[], $2::bigint[], $3::uuid[]) as a (node_id, epoch, id)
           join nodes n on n.id = a.node_id and n.session_epoch = a.epoch
           join commands c on c.id = a.id and c.node_id is not distinct from a.node_id
           join in_flight f on f.node_id = c.node_id and f.seq = c.seq and f.state = 'dispatched'"#,
        &nodes,
        &epochs,
        &commands,
    )
    .fetch_all(&mut *db)
    .await?;
    let mut cancelled = Vec::new();
    let (mut nodes, mut seqs, mut attempts, mut not_befores) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if row.is_cancelled {
            // The node does not have it, so it is pending, and pending commands are cancelled at once.
            let decided = Settlement::decided(row.node_id, row.id, State::Pending, Event::CancelRequested, "cancelled");
            cancelled.extend(decided.map(|decided| Settlement { from: Some(settle::From::InFlight), ..decided }));
        } else {
            nodes.push(row.node_id);
            seqs.push(row.seq);
            attempts.push(row.attempt);
            not_befores.push(now + backoff::BUSY.wait(u32::try_from(row.attempt).unwrap_or(0), random()));
        }
    }
    settle::write(db, &cancelled, now).await?;
    if seqs.is_empty() {
        return Ok(Vec::new());
    }
    let back = sqlx::query!(
        r#"with asked as (
            select * from unnest($1::uuid[], $2::bigint[], $3::int[], $4::timestamptz[])
                as a (node_id, seq, attempt, not_before)
         ), back as (
            delete from in_flight f using asked a
            where f.node_id = a.node_id and f.seq = a.seq and f.attempt = a.attempt and f.state = 'dispatched'
              and f.cancel_requested_at is null
            returning f.node_id, f.seq, f.lane, f.attempt, a.not_before
         ), moved as (
            insert into ready (node_id, lane, seq, not_before, not_after, only_incarnation, attempt)
            select b.node_id, b.lane, b.seq, b.not_before, c.not_after,
                   case when 'destructive' = any(k.traits) then c.incarnation end, b.attempt + 1
            from back b
            join commands c on c.node_id = b.node_id and c.seq = b.seq
            join kinds k on k.digest = c.kind_digest
         )
         select node_id, not_before as "not_before!" from back"#,
        &nodes,
        &seqs,
        &attempts,
        &not_befores,
    )
    .fetch_all(db)
    .await?;
    Ok(back
        .into_iter()
        .map(|row| Requeued { node: NodeId::from_uuid(row.node_id), not_before: row.not_before })
        .collect())
}
