//! How much waits, and how long already: what the page of metrics shows of the database.
//!
//! **Invariant:** each statement reads what waits once at most, and never what is over; nothing of it runs but for a page that is asked for.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::Error;

/// What waits.
#[derive(Debug, Default)]
pub struct Backlog {
    /// What could be sent, by lane; a lane in which nothing waits is absent.
    pub pending: Vec<Waiting>,
    /// What nodes have, by lane; `oldest_s` counts from when it was sent.
    pub in_flight: Vec<Waiting>,
    /// For how long something has been past its time.
    pub sweep_lag_s: f64,
    /// Batches that wait for approvals.
    pub batches: i64,
    /// Since when the oldest of them does.
    pub oldest_batch_s: f64,
    /// For how long an open transaction has held back events that were written.
    pub outbox_held_back_s: f64,
}

/// One lane.
#[derive(Debug)]
pub struct Waiting {
    /// Its name.
    pub lane: String,
    /// How many commands.
    pub commands: i64,
    /// The oldest one's age, seconds.
    pub oldest_s: f64,
}

/// Reads it.
pub async fn read(db: &mut PgConnection, now: OffsetDateTime) -> Result<Backlog, Error> {
    // One walk along the key; of each node and lane only the first command, its oldest, is looked up. `limit` keeps that a
    // look-up: a join could be planned as a walk through all commands that there ever were.
    let pending = sqlx::query_as!(
        Waiting,
        r#"with heads as (
               select node_id, lane, count(*) as commands, min(seq) as seq from ready
               where not_before <= $1 group by node_id, lane
           )
           select h.lane::text as "lane!", sum(h.commands)::bigint as "commands!",
                  max(extract(epoch from $1 - c.created_at))::float8 as "oldest_s!"
           from heads h cross join lateral (
               select created_at from commands c where c.node_id = h.node_id and c.seq = h.seq limit 1
           ) c
           group by h.lane"#,
        now,
    )
    .fetch_all(&mut *db)
    .await?;
    // At most as many rows as nodes have workers.
    let in_flight = sqlx::query_as!(
        Waiting,
        r#"select lane::text as "lane!", count(*) as "commands!",
                  max(extract(epoch from $1 - dispatched_at))::float8 as "oldest_s!"
           from in_flight group by lane"#,
        now,
    )
    .fetch_all(&mut *db)
    .await?;
    let rest = sqlx::query!(
        r#"select greatest(0, extract(epoch from $1 - least(
                      (select min(not_after) from ready where not_after <= $1),
                      (select min(due_at) from in_flight where due_at <= $1))))::float8 as "sweep_lag_s",
                  (select count(*) from batches where closed_at is null and state = 'open') as "batches!",
                  (select extract(epoch from $1 - min(created_at)) from batches
                   where closed_at is null and state = 'open')::float8 as "oldest_batch_s",
                  (select extract(epoch from $1 - min(at)) from events
                   where xid >= pg_snapshot_xmin(pg_current_snapshot()))::float8 as "outbox_held_back_s""#,
        now,
    )
    .fetch_one(db)
    .await?;
    Ok(Backlog {
        pending,
        in_flight,
        sweep_lag_s: rest.sweep_lag_s.unwrap_or(0.0),
        batches: rest.batches,
        oldest_batch_s: rest.oldest_batch_s.unwrap_or(0.0),
        outbox_held_back_s: rest.outbox_held_back_s.unwrap_or(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue;
    use crate::testing::{Fleet, at, command, greeting};
    use crate::trust::Signer;
    use bc_proto::manifest::Lane;

    async fn read_at(fleet: &Fleet, seconds: i64) -> Backlog {
        read(&mut *fleet.db().await, at(seconds)).await.expect("a database")
    }

    #[tokio::test]
    async fn what_waits_is_counted_by_lane_with_the_age_of_the_oldest_and_what_is_held_back_does_not_wait() {
        let fleet = Fleet::new().await;
        let nothing = read_at(&fleet, 100).await;
        assert!(nothing.pending.is_empty() && nothing.in_flight.is_empty());
        assert_eq!((nothing.sweep_lag_s.to_bits(), nothing.batches), (0, 0));

        let (one, other) = (fleet.node().await, fleet.node().await);
        let (control, bulk) = (fleet.kind(Lane::Control, &[]).await, fleet.kind(Lane::Bulk, &[]).await);
        let epoch = fleet.hello(&greeting(&one), at(0)).await.epoch;
        fleet.enqueue(&one, control).await;
        fleet.claim(&one, epoch, at(5)).await;
        for (node, kind) in [(&one, bulk), (&other, bulk), (&other, bulk)] {
            fleet.enqueue(node, kind).await;
        }
        let held = queue::enqueue::NewCommand { is_held: true, ..command(&one, control) };
        queue::enqueue(&mut *fleet.db().await, &Signer::none(), held, at(0)).await.expect("a database");

        let seen = read_at(&fleet, 30).await;
        let show = |of: &[Waiting]| -> Vec<String> {
            of.iter().map(|it| format!("{} {} {:.1}", it.lane, it.commands, it.oldest_s)).collect()
        };
        assert_eq!(show(&seen.pending), ["bulk 3 30.0"]);
        assert_eq!(show(&seen.in_flight), ["control 1 25.0"]);
        assert_eq!(seen.sweep_lag_s.to_bits(), 0, "nothing is past its time");
        // Commands may wait for 600 s; one that a node has gets the kind's minute as well.
        let late = read_at(&fleet, 640).await;
        assert_eq!(format!("{:.1}", late.sweep_lag_s), "40.0");
    }
}
