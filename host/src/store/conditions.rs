//! `node_conditions`: what is the matter with nodes, by their own word.
//!
//! **Invariant:** a node's conditions are replaced as a whole, by the session that counts alone.

use bc_proto::id::NodeId;
use bc_proto::wire;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::{Duration, OffsetDateTime};

use super::{Error, signed};

/// All that is the matter with a node now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The node.
    pub node: NodeId,
    /// The session that it came on.
    pub epoch: u64,
    /// The conditions, each type and subject once.
    pub conditions: Vec<wire::Condition>,
}

/// A condition of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `RowRemapPending`, `RebootRequired`, …
    pub kind: String,
    /// What has it: a GPU's UUID; empty for the node.
    pub subject: String,
    /// Why, in words.
    pub message: String,
    /// Since when.
    pub since: OffsetDateTime,
}

/// Replaces the conditions of nodes, each once among these, in one statement; what appeared or went leaves an event. What did not
/// change is not written. Returns how many appeared or went.
pub async fn replace(db: &mut PgConnection, reports: &[Report], now: OffsetDateTime) -> Result<u64, Error> {
    let nodes: Vec<Uuid> = reports.iter().map(|it| it.node.uuid()).collect();
    let epochs: Vec<i64> = reports.iter().map(|it| signed(it.epoch)).collect();
    let (mut owners, mut kinds, mut subjects) = (Vec::new(), Vec::new(), Vec::new());
    let (mut messages, mut sinces) = (Vec::new(), Vec::new());
    for (report, condition) in reports.iter().flat_map(|it| it.conditions.iter().map(move |condition| (it, condition)))
    {
        owners.push(report.node.uuid());
        kinds.push(condition.kind.clone());
        subjects.push(condition.subject.clone());
        messages.push(condition.message.clone());
        // A node's clock cannot say that something is the matter since tomorrow.
        sinces.push(at(condition.since_ms).min(now));
    }
    let done = sqlx::query!(
        "with said as materialized (
            select n.id as node_id, n.tenant_id
            from unnest($1::uuid[], $2::bigint[]) as a (node_id, epoch)
            join nodes n on n.id = a.node_id and n.session_epoch = a.epoch and n.deleted_at is null
         ), present as materialized (
            select c.*, s.tenant_id
            from unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
                as c (node_id, type, subject, message, since)
            join said s on s.node_id = c.node_id
         ), gone as (
            delete from node_conditions c using said s
            where c.node_id = s.node_id and not exists (
                select from present p where p.node_id = c.node_id and p.type = c.type and p.subject = c.subject
            )
            returning c.node_id, s.tenant_id, c.type, c.subject, c.message
         ), kept as (
            insert into node_conditions as c (node_id, type, subject, message, since, reported_at)
            select node_id, type, subject, message, since, $8 from present
            on conflict (node_id, type, subject) do update
                set message = excluded.message, reported_at = excluded.reported_at
                where c.message <> excluded.message
         ), changed as (
            select node_id, tenant_id, type, subject, message, 'removed' as change from gone
            union all
            -- As it was before this statement.
            select node_id, tenant_id, type, subject, message, 'added' from present p
            where not exists (
                select from node_conditions c
                where c.node_id = p.node_id and c.type = p.type and c.subject = p.subject
            )
         )
         insert into events (tenant_id, node_id, topic, body, at)
         select tenant_id, node_id, 'node.condition-changed',
                jsonb_build_object('change', change, 'type', type, 'subject', subject, 'message', message), $8
         from changed",
        &nodes,
        &epochs,
        &owners,
        &kinds,
        &subjects,
        &messages,
        &sinces,
        now,
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// The conditions of a node, by type and subject.
pub async fn of(db: &mut PgConnection, node: NodeId) -> Result<Vec<Condition>, Error> {
    let rows = sqlx::query_as!(
        Condition,
        "select type as kind, subject, message, since from node_conditions where node_id = $1 order by type, subject",
        node.uuid(),
    );
    Ok(rows.fetch_all(db).await?)
}

fn at(ms: u64) -> OffsetDateTime {
    let span = i64::try_from(ms).ok().map(Duration::milliseconds);
    span.and_then(|span| OffsetDateTime::UNIX_EPOCH.checked_add(span)).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
