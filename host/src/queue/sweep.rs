//! Deadlines: nothing stays in progress for ever.
//!
//! **Invariant:** one sweeper works at a time, over all replicas, and in bounded batches.

use bc_proto::rules::state::{Event, State};
use bc_proto::rules::sweep as rules;
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::lease;
use super::settle::{self, Settlement};
use crate::store::{Error, code, corrupt, unix_ms};

/// The key of the advisory lock that makes the sweeper a singleton; any number that nothing else here uses.
const LOCK: i64 = 0x73_7765_6570;

/// Ends what is past its time, at most `limit` commands of each table; returns how many. As many as `limit`: there may be
/// more, sweep again. `None`: another replica sweeps. The lock goes with the transaction.
pub async fn sweep(db: &mut PgTransaction<'_>, now: OffsetDateTime, limit: u32) -> Result<Option<usize>, Error> {
    let is_ours = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "is_ours!""#, LOCK);
    if !is_ours.fetch_one(&mut **db).await? {
        return Ok(None);
    }
    let waiting = waiting(db, now, limit).await?;
    let flying = flying(db, now, limit).await?;
    let swept = settle::write(db, &waiting, now).await?.len() + settle::write(db, &flying, now).await?.len();
    let leases = lease::take_back(db, now, limit).await?;
    Ok(Some(swept + leases))
}

async fn waiting(db: &mut PgConnection, now: OffsetDateTime, limit: u32) -> Result<Vec<Settlement>, Error> {
    let rows = sqlx::query!(
        r#"select c.id, c.node_id, r.not_after,
                  coalesce(r.only_incarnation <> n.incarnation, false) as "is_replaced!"
           from (select * from ready where not_after <= $1 limit $2 for update skip locked) r
           join commands c on c.node_id = r.node_id and c.seq = r.seq
           join nodes n on n.id = r.node_id"#,
        now,
        i64::from(limit),
    )
    .fetch_all(db)
    .await?;
    let due = rows.into_iter().filter_map(|row| {
        let (event, reason) = if row.is_replaced {
            (Event::NodeReplaced, "node-replaced")
        } else {
            (Event::DeadlinePassed, rules::reason(State::Pending))
        };
        is_due(State::Pending, row.not_after, 0, now)
            .then(|| Settlement::decided(row.node_id, row.id, State::Pending, event, reason))?
    });
    Ok(due.collect())
}

async fn flying(db: &mut PgConnection, now: OffsetDateTime, limit: u32) -> Result<Vec<Settlement>, Error> {
    let rows = sqlx::query!(
        r#"select c.id, c.node_id, c.not_after, f.state::text as "state!",
                  (extract(epoch from f.due_at - c.not_after) * 1000)::bigint as "timeout_ms!"
           from (select * from in_flight where due_at <= $1 limit $2 for update skip locked) f
           join commands c on c.node_id = f.node_id and c.seq = f.seq"#,
        now,
        i64::from(limit),
    )
    .fetch_all(db)
    .await?;
    let mut due = Vec::new();
    for row in rows {
        let id: Uuid = row.id;
        let state = code::parse_state(&row.state).ok_or_else(|| corrupt("in_flight", "state", id))?;
        if is_due(state, row.not_after, row.timeout_ms, now) {
            due.extend(Settlement::decided(row.node_id, id, state, Event::DeadlinePassed, rules::reason(state)));
        }
    }
    Ok(due)
}

fn is_due(state: State, not_after: OffsetDateTime, timeout_ms: i64, now: OffsetDateTime) -> bool {
    let timeout_ms = u64::try_from(timeout_ms).unwrap_or(0);
    rules::due_ms(state, unix_ms(not_after), Some(timeout_ms)).is_some_and(|due| due <= unix_ms(now))
}
