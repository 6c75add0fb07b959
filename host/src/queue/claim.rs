//! Claiming: from `ready` to `in_flight`, for all nodes with something to send, in one statement.
//!
//! **Invariant:** a session claims only while it is its node's newest. The node's row is locked against a new session until the
//! claim is committed, so a hello sees either the command in flight or the command ready, and never loses one that was
//! claimed for a session which is gone. Nothing is sent before its claim is durable: a command that counts as pending after
//! the node got it could be cancelled and start all the same, or be sent once more to a node that lost its journal.

use bc_proto::id::{BatchId, CommandId, NodeId};
use bc_proto::manifest::Lane;
use bc_proto::rules::sweep::UNREGISTERED_TIMEOUT_MS;
use bc_proto::sign::WorkerSignature;
use bc_proto::wire::{Deliver, PresignedUrl, Upload};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::held;
use super::look::Cancelled;
use crate::store::worker_keys::stored;
use crate::store::{Error, code, corrupt, signed, unix_ms, unsigned};

/// What one session can take in one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The node.
    pub node: NodeId,
    /// Its session.
    pub epoch: u64,
    /// The lane.
    pub lane: Lane,
    /// At most as many.
    pub credits: u32,
    /// Only seqs above this one: everything up to it was claimed before. It spares the claim the dead rows that a long
    /// snapshot keeps. Start from 0 now and then, and after each requeue: what was put back lies below.
    pub above_seq: u64,
}

/// A command to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The message. Its incarnation is the node's present one.
    pub deliver: Deliver,
    /// Its lane.
    pub lane: Lane,
    /// Whether it is already called off: send the cancel with it.
    pub is_cancelled: bool,
    /// The control plane's signature under the cancel; `None` where nothing is signed.
    pub cancel_signature: Option<WorkerSignature>,
}

impl Delivery {
    /// The cancel to send with it.
    pub fn cancelled(&self) -> Option<Cancelled> {
        let cancelled = Cancelled { command: self.deliver.command, signature: self.cancel_signature };
        self.is_cancelled.then_some(cancelled)
    }
}

/// Claims what the rooms take, in seq order per node and lane. Send the deliveries once it is committed, and durably: unlike
/// marks, claims must not be forgotten by a crash of the database.
pub async fn claim(db: &mut PgConnection, rooms: &[Room], now: OffsetDateTime) -> Result<Vec<Delivery>, Error> {
    let nodes: Vec<Uuid> = rooms.iter().map(|room| room.node.uuid()).collect();
    let epochs: Vec<i64> = rooms.iter().map(|room| signed(room.epoch)).collect();
    let lanes: Vec<String> = rooms.iter().map(|room| code::lane(room.lane).to_owned()).collect();
    let credits: Vec<i64> = rooms.iter().map(|room| i64::from(room.credits)).collect();
    let above: Vec<i64> = rooms.iter().map(|room| signed(room.above_seq)).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"
        with asked as materialized (
            select a.node_id, a.epoch, a.lane::lane as lane, a.credits, a.above
            from unnest($1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[])
                as a (node_id, epoch, lane, credits, above)
        ), fenced as materialized (
            select n.id, n.session_epoch, n.incarnation, n.journal_id, n.boot_id, n.role
            from (select distinct node_id, epoch from asked) a
            join nodes n on n.id = a.node_id and n.session_epoch = a.epoch
            where n.deleted_at is null and n.journal_id is not null
            order by n.id
            for share of n
        ), picked as materialized (
            select r.place
            from asked a
            join fenced f on f.id = a.node_id and f.session_epoch = a.epoch
            cross join lateral (
                select ready.ctid as place from ready
                where ready.node_id = a.node_id and ready.lane = a.lane and ready.seq > a.above
                  and ready.not_before <= $6 and ready.not_after > $6
                  and (ready.only_incarnation is null or ready.only_incarnation = f.incarnation)
                order by ready.seq
                limit a.credits
                for update skip locked
            ) r
        ), taken as (
            delete from ready where ctid = any(array(select place from picked))
            returning node_id, seq, lane, attempt
        ), sent as materialized (
            select t.*, c.id, c.kind, c.kind_digest, c.payload, c.min_generation, c.not_after,
                   c.signature, c.worker_key, c.batch_id, c.created_at, c.upload_object, c.upload_max_bytes,
                   case when k.status = 'withdrawn' then $7::bigint else k.timeout_ms end as timeout_ms,
                   f.session_epoch, f.incarnation, f.journal_id, f.boot_id, f.role
            from taken t
            join commands c on c.node_id = t.node_id and c.seq = t.seq
            join kinds k on k.digest = c.kind_digest
            join fenced f on f.id = t.node_id
        ), moved as (
            insert into in_flight (node_id, seq, state, lane, epoch, journal_id, boot_id, role, attempt, due_at,
                                   dispatched_at)
            select node_id, seq, 'dispatched', lane, session_epoch, journal_id, boot_id, role, attempt,
                   not_after + timeout_ms * interval '1 millisecond', $6
            from sent
        )
        select id as "id!", seq as "seq!", node_id as "node_id!", incarnation as "incarnation!", kind as "kind!",
               kind_digest as "kind_digest!", payload::text as "payload!", not_after as "not_after!",
               timeout_ms as "timeout_ms!", min_generation, lane::text as "lane!", false as "is_cancelled!",
               signature, (select certificate from worker_keys w where w.id = sent.worker_key) as worker, batch_id,
               created_at as "created_at!", null::timestamptz as cancelled_at, null::bytea as cancel_signature,
               null::bytea as cancel_worker, upload_object, upload_max_bytes
        from sent order by node_id, seq"#,
        &nodes,
        &epochs,
        &lanes,
        &credits,
        &above,
        now,
        signed(UNREGISTERED_TIMEOUT_MS),
    )
    .fetch_all(&mut *db)
    .await?;
    held::attach(db, rows.into_iter().map(Delivery::try_from).collect::<Result<_, _>>()?, now).await
}

/// A delivery as the statements of claim and hello return it.
pub(super) struct Row {
    pub(super) id: Uuid,
    pub(super) seq: i64,
    pub(super) node_id: Uuid,
    pub(super) incarnation: i64,
    pub(super) kind: String,
    pub(super) kind_digest: Vec<u8>,
    pub(super) payload: String,
    pub(super) not_after: OffsetDateTime,
    pub(super) timeout_ms: i64,
    pub(super) min_generation: Option<i64>,
    pub(super) lane: String,
    pub(super) is_cancelled: bool,
    pub(super) signature: Option<Vec<u8>>,
    pub(super) worker: Option<Vec<u8>>,
    pub(super) batch_id: Option<Uuid>,
    pub(super) created_at: OffsetDateTime,
    pub(super) cancelled_at: Option<OffsetDateTime>,
    pub(super) cancel_signature: Option<Vec<u8>>,
    pub(super) cancel_worker: Option<Vec<u8>>,
    pub(super) upload_object: Option<String>,
    pub(super) upload_max_bytes: Option<i64>,
}

impl TryFrom<Row> for Delivery {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let id = CommandId::from_uuid(row.id);
        let number = |column, value| unsigned("commands", column, id, value);
        let upload = match (row.upload_object, row.upload_max_bytes) {
            // The object alone is a URL that allows nothing: the gateway makes one that does when it sends the command.
            (Some(object), Some(max_bytes)) => Some(Upload {
                url: PresignedUrl::new(&object),
                url_expires_ms: 0,
                max_bytes: number("upload_max_bytes", max_bytes)?,
                object,
            }),
            _ => None,
        };
        let deliver = Deliver {
            command: id,
            seq: number("seq", row.seq)?,
            node: NodeId::from_uuid(row.node_id),
            incarnation: number("incarnation", row.incarnation)?,
            kind: row.kind,
            kind_digest: hex::encode(row.kind_digest),
            payload: serde_json::from_str(&row.payload).map_err(|_| corrupt("commands", "payload", id))?,
            not_after_ms: unix_ms(row.not_after),
            timeout_ms: number("timeout_ms", row.timeout_ms)?,
            min_generation: row.min_generation.map(|value| number("min_generation", value)).transpose()?,
            signature: stored("commands", id, row.signature, row.worker, Some(row.created_at))?,
            batch: row.batch_id.map(BatchId::from_uuid),
            approved: None,
            upload,
        };
        let lane = code::parse_lane(&row.lane).ok_or_else(|| corrupt("commands", "lane", id))?;
        let cancel_signature = stored("in_flight", id, row.cancel_signature, row.cancel_worker, row.cancelled_at)?;
        Ok(Self { deliver, lane, is_cancelled: row.is_cancelled, cancel_signature })
    }
}
