//! Settling: from wherever a command stands to `settled`, with its event.
//!
//! **Invariant:** a terminal state never changes: the first settlement deletes the row that every later one would need.

use std::collections::HashSet;

use bc_proto::id::{CommandId, NodeId};
use bc_proto::rules::state::{Event, State};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use crate::metrics;
use crate::store::node_certificates::Fingerprint;
use crate::store::{Error, signed};

/// How often a report is tried that finds its command nowhere: it may be on the move between two tables, of which a statement
/// sees neither when the move commits after it began. The next statement sees it, unless it moved yet again.
const ATTEMPTS: u32 = 3;

/// What a node reports of a command's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The node that reports.
    pub node: NodeId,
    /// The session that it came on.
    pub epoch: u64,
    /// The command.
    pub command: CommandId,
    /// The end: an event after which nothing follows.
    pub event: Event,
    /// Why, as a stable code; empty for success.
    pub reason: String,
    /// The result exactly as the node stored it; empty for none.
    pub result: Vec<u8>,
    /// The node's own time of it; `None` for a decision of the control plane about what it sent on this session.
    pub at: Option<OffsetDateTime>,
    /// The node's signature, as it came; empty for none.
    pub node_sig: Vec<u8>,
    /// The certificate that it was verified with, by [`attest::judge`](super::attest::judge). Without it the signature is not kept.
    pub attested_by: Option<Fingerprint>,
}

/// What became of reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Settled by these reports.
    pub now: Vec<CommandId>,
    /// Over before: acknowledge them as well, so that the node stops reporting.
    pub before: Vec<CommandId>,
    /// Neither: reported on a session that is not the node's newest, or no command of that node.
    pub dropped: Vec<CommandId>,
}

/// Settles reports, in one statement. A report lands wherever its command stands: the mark that it was sent may be lost, and
/// a command put back can be reported by the node that had it. Of two reports of one command the first counts.
pub async fn settle(db: &mut PgConnection, reports: &[Report], now: OffsetDateTime) -> Result<Settled, Error> {
    let mut seen = HashSet::new();
    let mut open: Vec<Settlement> = Vec::new();
    for report in reports {
        // Every state that a command can be in takes a report to the same end.
        if let Ok(state) = State::Dispatched.on(report.event)
            && state.is_terminal()
            && seen.insert(report.command.uuid())
        {
            open.push(Settlement {
                node: report.node.uuid(),
                command: report.command.uuid(),
                epoch: Some(report.epoch),
                from: None,
                state,
                reason: report.reason.clone(),
                result: report.result.clone(),
                reported_at: report.at,
                attestation: report.attested_by.map(|by| (report.node_sig.clone(), by)),
            });
        }
    }
    let mut settled = Settled::default();
    for _ in 0..ATTEMPTS {
        if open.is_empty() {
            return Ok(settled);
        }
        let done: HashSet<Uuid> = write(db, &open, now).await?.into_iter().collect();
        settled.now.extend(done.iter().copied().map(CommandId::from_uuid));
        open.retain(|report| !done.contains(&report.command));
        if open.is_empty() {
            return Ok(settled);
        }
        let over: HashSet<Uuid> = over(db, &open).await?.into_iter().collect();
        settled.before.extend(over.iter().copied().map(CommandId::from_uuid));
        open.retain(|report| !over.contains(&report.command));
    }
    settled.dropped.extend(open.iter().map(|report| CommandId::from_uuid(report.command)));
    Ok(settled)
}

/// Where a command has to stand for a settlement to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// In `ready`.
    Ready,
    /// In `in_flight`.
    InFlight,
}

/// A decision to settle.
#[derive(Debug, Clone)]
pub(super) struct Settlement {
    pub(super) node: Uuid,
    pub(super) command: Uuid,
    /// Only while this is the node's session; `None` for decisions of the control plane.
    pub(super) epoch: Option<u64>,
    /// Only while it stands there; `None` for anywhere.
    pub(super) from: Option<From>,
    pub(super) state: State,
    pub(super) reason: String,
    pub(super) result: Vec<u8>,
    pub(super) reported_at: Option<OffsetDateTime>,
    /// The node's signature, and the certificate that it was verified with.
    pub(super) attestation: Option<(Vec<u8>, Fingerprint)>,
}

impl Settlement {
    /// A decision of the control plane about a command that stands in a state.
    pub(super) fn decided(node: Uuid, command: Uuid, before: State, event: Event, reason: &str) -> Option<Self> {
        let state = before.on(event).ok().filter(|state| state.is_terminal() && !before.is_terminal())?;
        Some(Self {
            node,
            command,
            epoch: None,
            from: Some(if before.is_in_flight() { From::InFlight } else { From::Ready }),
            state,
            reason: reason.to_owned(),
            result: Vec::new(),
            reported_at: None,
            attestation: None,
        })
    }
}

/// Writes settlements of different commands; returns the commands that were where they had to be.
pub(super) async fn write(
    db: &mut PgConnection,
    settlements: &[Settlement],
    now: OffsetDateTime,
) -> Result<Vec<Uuid>, Error> {
    if settlements.is_empty() {
        return Ok(Vec::new());
    }
    let nodes: Vec<Uuid> = settlements.iter().map(|it| it.node).collect();
    let commands: Vec<Uuid> = settlements.iter().map(|it| it.command).collect();
    let epochs: Vec<Option<i64>> = settlements.iter().map(|it| it.epoch.map(signed)).collect();
    let from_ready: Vec<bool> = settlements.iter().map(|it| it.from != Some(From::InFlight)).collect();
    let from_in_flight: Vec<bool> = settlements.iter().map(|it| it.from != Some(From::Ready)).collect();
    let states: Vec<String> = settlements.iter().map(|it| it.state.to_string()).collect();
    let reasons: Vec<String> = settlements.iter().map(|it| it.reason.clone()).collect();
    let results: Vec<Vec<u8>> = settlements.iter().map(|it| it.result.clone()).collect();
    let reported: Vec<Option<OffsetDateTime>> = settlements.iter().map(|it| it.reported_at).collect();
    let signatures = settlements.iter().map(|it| it.attestation.as_ref().map(|(sig, _)| sig.clone()));
    let signatures: Vec<Option<Vec<u8>>> = signatures.collect();
    let certificates = settlements.iter().map(|it| it.attestation.as_ref().map(|(_, by)| by.to_vec()));
    let certificates: Vec<Option<Vec<u8>>> = certificates.collect();
    let done = sqlx::query!(
        r#"
        with asked as materialized (
            select a.*, c.seq, c.lane, c.tenant_id, c.kind
            from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bool[], $5::bool[], $6::text[], $7::text[],
                        $8::bytea[], $9::timestamptz[], $11::bytea[], $12::bytea[])
                as a (node_id, id, epoch, from_ready, from_in_flight, state, reason, result, reported_at, node_sig,
                      attested_by)
            -- By its id alone: with a plain `=` the planner may walk through all commands that the node ever had.
            join commands c on c.id = a.id and c.node_id is not distinct from a.node_id
            join nodes n on n.id = a.node_id and (a.epoch is null or a.epoch = n.session_epoch)
        ), landed as (
            delete from in_flight f using asked a
            where a.from_in_flight and f.node_id = a.node_id and f.seq = a.seq
            returning a.*, f.dispatched_at, f.cancel_requested_at
        ), unsent as (
            delete from ready r using asked a
            where a.from_ready and a.id not in (select id from landed)
              and r.node_id = a.node_id and r.lane = a.lane and r.seq = a.seq
            returning a.*, null::timestamptz, null::timestamptz
        ), gone as materialized (
            -- Whole rows travel along, since a join of two of these would be a nested loop: quadratic in the batch.
            select * from landed union all select * from unsent
        ), kept as (
            insert into settled (node_id, seq, state, reason, result, settled_at, reported_at, dispatched_at,
                                 cancel_requested_at, node_sig, attested_by)
            select node_id, seq, state::terminal_state, reason, result, $10, reported_at, dispatched_at,
                   cancel_requested_at, node_sig, attested_by
            from gone
        ), said as (
            insert into events (tenant_id, node_id, command_id, topic, body, at)
            select tenant_id, node_id, id, 'command.settled',
                   jsonb_build_object('kind', kind, 'state', state, 'reason', reason), $10
            from gone
        )
        select id as "id!", kind as "kind!", state as "state!", reason as "reason!" from gone"#,
        &nodes,
        &commands,
        &epochs as &[Option<i64>],
        &from_ready,
        &from_in_flight,
        &states,
        &reasons,
        &results,
        &reported as &[Option<OffsetDateTime>],
        now,
        &signatures as &[Option<Vec<u8>>],
        &certificates as &[Option<Vec<u8>>],
    )
    .fetch_all(db)
    .await?;
    for row in &done {
        metrics::settled(&row.kind, &row.state, &row.reason);
    }
    Ok(done.into_iter().map(|row| row.id).collect())
}

/// Which of them are over.
async fn over(db: &mut PgConnection, settlements: &[Settlement]) -> Result<Vec<Uuid>, Error> {
    let nodes: Vec<Uuid> = settlements.iter().map(|it| it.node).collect();
    let commands: Vec<Uuid> = settlements.iter().map(|it| it.command).collect();
    let epochs: Vec<i64> = settlements.iter().map(|it| signed(it.epoch.unwrap_or(0))).collect();
    let rows = sqlx::query_scalar!(
        "select c.id from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as a (node_id, id, epoch)
         join nodes n on n.id = a.node_id and n.session_epoch = a.epoch
         join commands c on c.id = a.id and c.node_id is not distinct from a.node_id
         where exists (select from settled s where s.node_id = c.node_id and s.seq = c.seq)",
        &nodes,
        &commands,
        &epochs,
    );
    Ok(rows.fetch_all(db).await?)
}
