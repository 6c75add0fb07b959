//! Leases that ran out. Runners lease, start and settle by functions of the schema (`0012_runner.sql`), since they have a
//! database's connection and nothing else.
//!
//! **Invariant:** a lease that is renewed at the same moment is left alone: its row is locked, and looked at again, before
//! anything is decided.

use std::collections::BTreeSet;

use bc_proto::manifest::Trait;
use bc_proto::rules::lease::{self as rules, RunOut};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::settle::{self, From, Settlement};
use crate::store::{Error, code, corrupt};

/// Takes back what runners have lost, at most `limit` commands; returns how many leases ended. They are timed by the
/// database's clock, which is the one that runners are told.
pub(super) async fn take_back(db: &mut PgConnection, now: OffsetDateTime, limit: u32) -> Result<usize, Error> {
    let forgotten = forget(db, limit).await?;
    // Both rows are locked: a renewal changes the lease's alone, and only a changed row that is locked is looked at again.
    let rows = sqlx::query!(
        r#"select l.node_id, l.seq, l.token, f.state = 'running' as "is_started!",
                  f.cancel_requested_at is not null as "is_cancelled!", c.id, k.traits
           from runner_leases l
           join in_flight f on f.node_id = l.node_id and f.seq = l.seq and f.epoch = l.token
           join commands c on c.node_id = l.node_id and c.seq = l.seq
           join kinds k on k.digest = c.kind_digest
           where l.ended_at is null and l.expires_at <= now()
           order by l.expires_at limit $1
           for update of f, l skip locked"#,
        i64::from(limit),
    )
    .fetch_all(&mut *db)
    .await?;
    let (mut back, mut lost) = (Leases::default(), Leases::default());
    let mut settlements = Vec::new();
    for row in rows {
        let traits =
            row.traits.iter().map(|word| code::parse_trait(word).ok_or_else(|| corrupt("kinds", "traits", row.id)));
        let traits = traits.collect::<Result<BTreeSet<Trait>, Error>>()?;
        let decided = match rules::run_out(&traits, row.is_started, row.is_cancelled) {
            RunOut::Back => None,
            RunOut::Settle(state, event, reason) => Settlement::decided(row.node_id, row.id, state, event, reason),
        };
        let leases = if decided.is_some() { &mut lost } else { &mut back };
        leases.add(row.node_id, row.seq, row.token);
        // Wherever the rule has it, its row is in flight.
        settlements.extend(decided.map(|decided| Settlement { from: Some(From::InFlight), ..decided }));
    }
    settle::write(db, &settlements, now).await?;
    lost.end(db, "lost").await?;
    put_back(db, &back).await?;
    Ok(forgotten + back.seqs.len() + lost.seqs.len())
}

/// Ends leases of commands that something else ended: a deadline, for one.
async fn forget(db: &mut PgConnection, limit: u32) -> Result<usize, Error> {
    let done = sqlx::query!(
        "with gone as (
            select l.node_id, l.seq, l.token from runner_leases l
            where l.ended_at is null and l.expires_at <= now()
              and not exists (
                select from in_flight f where f.node_id = l.node_id and f.seq = l.seq and f.epoch = l.token)
            order by l.expires_at limit $1
            for update skip locked
         )
         update runner_leases l set ended_at = now(), ending = 'overtaken'
         from gone g where l.node_id = g.node_id and l.seq = g.seq and l.token = g.token and l.ended_at is null",
        i64::from(limit),
    )
    .execute(db)
    .await?;
    Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
}

/// Leases, column by column.
#[derive(Default)]
struct Leases {
    nodes: Vec<Uuid>,
    seqs: Vec<i64>,
    tokens: Vec<i64>,
}

impl Leases {
    fn add(&mut self, node: Uuid, seq: i64, token: i64) {
        self.nodes.push(node);
        self.seqs.push(seq);
        self.tokens.push(token);
    }

    async fn end(&self, db: &mut PgConnection, ending: &str) -> Result<(), Error> {
        if self.seqs.is_empty() {
            return Ok(());
        }
        sqlx::query!(
            "update runner_leases l set ended_at = now(), ending = $4::text::lease_ending
             from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as a (node_id, seq, token)
             where l.node_id = a.node_id and l.seq = a.seq and l.token = a.token",
            &self.nodes,
            &self.seqs,
            &self.tokens,
            ending,
        )
        .execute(db)
        .await?;
        Ok(())
    }
}

/// Makes commands pending again, and wakes their gateways' runners.
async fn put_back(db: &mut PgConnection, back: &Leases) -> Result<(), Error> {
    if back.seqs.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "with back as (
            delete from in_flight f
            using unnest($1::uuid[], $2::bigint[], $3::bigint[]) as a (node_id, seq, token)
            where f.node_id = a.node_id and f.seq = a.seq and f.epoch = a.token
            returning f.node_id, f.seq, f.lane, f.attempt
         )
         insert into ready (node_id, lane, seq, not_before, not_after, only_incarnation, attempt)
         select b.node_id, b.lane, b.seq, '-infinity', c.not_after,
                case when 'destructive' = any(k.traits) then c.incarnation end, b.attempt + 1
         from back b
         join commands c on c.node_id = b.node_id and c.seq = b.seq
         join kinds k on k.digest = c.kind_digest",
        &back.nodes,
        &back.seqs,
        &back.tokens,
    )
    .execute(&mut *db)
    .await?;
    back.end(&mut *db, "returned").await?;
    sqlx::query!(
        r#"select pg_notify($1, n.runner_slug)::text as "told" from nodes n
           where n.id = any($2) and n.runner_slug is not null"#,
        rules::CHANNEL,
        &back.nodes,
    )
    .fetch_all(db)
    .await?;
    Ok(())
}
