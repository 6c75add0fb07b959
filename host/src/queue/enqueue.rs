//! Queueing, in the caller's transaction.
//!
//! **Invariant:** a node's seqs become visible in their order. The counter's row stays locked until the caller commits, so
//! enqueue last in a transaction, and nodes in the order of their ids where there are several calls.

use std::collections::HashMap;

use bc_proto::canonical;
use bc_proto::id::{BatchId, CommandId, NodeId};
use bc_proto::sign::WorkerKey;
use bc_proto::sign::body::{CommandBody, UploadBody};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use crate::bundles::Destination;
use crate::store::kinds::Digest;
use crate::store::{Error, corrupt, signed, unix_ms, unsigned, worker_keys};
use crate::trust::Signer;

/// How often commands are signed again whose nodes begin another life meanwhile. A node does not do that twice in this time.
const ATTEMPTS: u32 = 5;

/// The life of a command that was not signed where all are: no node has it, so the command is not queued.
const NO_LIFE: i64 = 0;

/// What to queue. Whoever makes one has checked it: the kind is known and allowed, and has validated the payload.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCommand {
    /// Its id, if it is queued.
    pub id: CommandId,
    /// The node that it is for.
    pub node: NodeId,
    /// Unique per node: a second command with it is the first.
    pub idempotency_key: String,
    /// The component that validated the payload.
    pub kind_digest: Digest,
    /// The payload.
    pub payload: Value,
    /// The spec generation that it presupposes.
    pub min_generation: Option<u64>,
    /// Until when it may wait to be accepted.
    pub not_after: OffsetDateTime,
    /// Whether it waits for approvals.
    pub is_held: bool,
    /// The batch that it belongs to. Whoever sets it has asked [`crate::batches::admit`].
    pub batch: Option<BatchId>,
    /// Who asks for it: the identity's name, or `module/<name>`. Not part of what a key means: the first who asks stays.
    pub requested_by: String,
    /// Where its file goes: [`crate::bundles::Store::destination`] decides. Not part of what a key means either.
    pub upload: Option<Destination>,
}

/// A command in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// Its id.
    pub id: CommandId,
    /// Its place among the node's commands.
    pub seq: u64,
}

/// What became of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is queued.
    Queued(Queued),
    /// The key's command was queued earlier; this is it.
    Existing(Queued),
    /// The key's command is of another kind or has another payload.
    Conflict(Queued),
    /// There is no such node, or no longer.
    UnknownNode,
    /// No active kind has this digest.
    UnknownKind,
}

/// Queues one command.
pub async fn enqueue(
    db: &mut PgConnection,
    signer: &Signer,
    command: NewCommand,
    now: OffsetDateTime,
) -> Result<Outcome, Error> {
    let outcomes = enqueue_many(db, signer, std::slice::from_ref(&command), now).await?;
    Ok(outcomes.into_iter().next().expect("one command has one outcome"))
}

/// Queues many, in one statement; where commands are signed, one more reads what is signed of nodes and kinds. The outcomes are
/// in the commands' order. What is refused does not keep the rest from being queued: a caller that wants all or nothing rolls
/// back.
pub async fn enqueue_many(
    db: &mut PgConnection,
    signer: &Signer,
    commands: &[NewCommand],
    now: OffsetDateTime,
) -> Result<Vec<Outcome>, Error> {
    let mut columns = Columns::of(commands);
    let mut outcomes: Vec<Option<Outcome>> = vec![None; commands.len()];
    for _ in 0..ATTEMPTS {
        let is_signed = columns.sign(db, signer, commands, now).await?;
        try_many(db, &columns, commands, now, &mut outcomes).await?;
        if outcomes.iter().all(Option::is_some) {
            break;
        }
        let known = columns.known_nodes(db).await?;
        let mut replaced = false;
        for ((outcome, command), is_signed) in outcomes.iter_mut().zip(commands).zip(&is_signed) {
            if outcome.is_some() {
                continue;
            }
            if !known.contains(&command.node.uuid()) {
                *outcome = Some(Outcome::UnknownNode);
            } else if *is_signed {
                // The node began another life between the signature and the insert.
                replaced = true;
            } else {
                *outcome = Some(Outcome::UnknownKind);
            }
        }
        if !replaced {
            break;
        }
    }
    let refused = outcomes.iter().zip(commands).find(|(outcome, _)| outcome.is_none());
    if let Some((_, command)) = refused {
        return Err(corrupt("nodes", "incarnation", command.node));
    }
    Ok(outcomes.into_iter().flatten().collect())
}

/// Queues those that have no outcome yet, and notes what became of them. Those without one after it found no node, no kind, or
/// another life of the node than was signed.
async fn try_many(
    db: &mut PgConnection,
    columns: &Columns,
    commands: &[NewCommand],
    now: OffsetDateTime,
    outcomes: &mut [Option<Outcome>],
) -> Result<(), Error> {
    let seqs: HashMap<Uuid, i64> = columns.insert(db, now).await?.into_iter().map(|row| (row.id, row.seq)).collect();
    for (outcome, command) in outcomes.iter_mut().zip(commands).filter(|(outcome, _)| outcome.is_none()) {
        if let Some(&seq) = seqs.get(&command.id.uuid()) {
            let id = command.id;
            *outcome = Some(Outcome::Queued(Queued { id, seq: unsigned("commands", "seq", id, seq)? }));
        }
    }
    if outcomes.iter().any(Option::is_none) {
        // Keys that were there, that others inserted at the same time, or that stand twice among these.
        for row in columns.find(db).await? {
            let id = CommandId::from_uuid(row.id);
            let queued = Queued { id, seq: unsigned("commands", "seq", id, row.seq)? };
            let outcome = at(outcomes, row.position)?;
            if outcome.is_none() {
                *outcome = Some(if row.is_same { Outcome::Existing(queued) } else { Outcome::Conflict(queued) });
            }
        }
    }
    Ok(())
}

fn at(outcomes: &mut [Option<Outcome>], position: i64) -> Result<&mut Option<Outcome>, Error> {
    let index = usize::try_from(position - 1).ok();
    index.and_then(|index| outcomes.get_mut(index)).ok_or_else(|| corrupt("asked", "position", position))
}

/// The commands, column by column, as UNNEST takes them.
#[derive(Default)]
struct Columns {
    ids: Vec<Uuid>,
    nodes: Vec<Uuid>,
    keys: Vec<String>,
    digests: Vec<Vec<u8>>,
    payloads: Vec<String>,
    hashes: Vec<Vec<u8>>,
    min_generations: Vec<Option<i64>>,
    not_afters: Vec<OffsetDateTime>,
    held: Vec<Uuid>,
    batches: Vec<Option<Uuid>>,
    requesters: Vec<String>,
    upload_objects: Vec<Option<String>>,
    upload_max_bytes: Vec<Option<i64>>,
    signatures: Vec<Option<Vec<u8>>>,
    /// The life of the node that the signature is for; null for any.
    lives: Vec<Option<i64>>,
    worker: Option<i32>,
}

/// What is signed of a command besides what its caller knows.
struct Signed {
    position: i64,
    name: String,
    is_destructive: bool,
    incarnation: i64,
    /// The id of the key that signs, once it has one.
    worker: Option<i32>,
}

struct Inserted {
    id: Uuid,
    seq: i64,
}

struct Found {
    position: i64,
    id: Uuid,
    seq: i64,
    is_same: bool,
}

impl Columns {
    fn of(commands: &[NewCommand]) -> Self {
        let mut columns = Self::default();
        for command in commands {
            let payload = canonical::to_vec(&command.payload).expect("a JSON value has canonical bytes");
            columns.ids.push(command.id.uuid());
            columns.nodes.push(command.node.uuid());
            columns.keys.push(command.idempotency_key.clone());
            columns.digests.push(command.kind_digest.to_vec());
            columns.hashes.push(Sha256::digest(&payload).to_vec());
            columns.payloads.push(String::from_utf8(payload).expect("JSON is UTF-8"));
            columns.min_generations.push(command.min_generation.map(signed));
            columns.not_afters.push(command.not_after);
            columns.held.extend(command.is_held.then(|| command.id.uuid()));
            columns.batches.push(command.batch.map(|batch| batch.uuid()));
            columns.requesters.push(command.requested_by.clone());
            columns.upload_objects.push(command.upload.as_ref().map(|it| it.object.clone()));
            columns.upload_max_bytes.push(command.upload.as_ref().map(|it| signed(it.max_bytes)));
        }
        columns.signatures = vec![None; commands.len()];
        columns.lives = vec![None; commands.len()];
        columns
    }

    /// Signs, if that is wanted. Answers for each command whether it was signed: without its node or its kind it is not, and
    /// then it is not queued either.
    async fn sign(
        &mut self,
        db: &mut PgConnection,
        signer: &Signer,
        commands: &[NewCommand],
        now: OffsetDateTime,
    ) -> Result<Vec<bool>, Error> {
        let mut is_signed = vec![false; commands.len()];
        let Some(worker) = signer.worker(now) else { return Ok(is_signed) };
        self.lives = vec![Some(NO_LIFE); commands.len()];
        for row in self.what_is_signed(db, worker.key()).await? {
            let index = usize::try_from(row.position - 1).ok().filter(|index| *index < commands.len());
            let index = index.ok_or_else(|| corrupt("asked", "position", row.position))?;
            let command = &commands[index];
            let incarnation = unsigned("nodes", "incarnation", command.node, row.incarnation)?;
            let (kind_digest, payload_sha256) = (hex::encode(command.kind_digest), hex::encode(&self.hashes[index]));
            let body = CommandBody {
                command: command.id,
                node: command.node,
                incarnation: row.is_destructive.then_some(incarnation),
                kind: &row.name,
                kind_digest: &kind_digest,
                payload_sha256: &payload_sha256,
                not_after_ms: unix_ms(command.not_after),
                min_generation: command.min_generation,
                batch: command.batch,
                upload: command.upload.as_ref().map(|it| UploadBody { object: &it.object, max_bytes: it.max_bytes }),
            };
            self.signatures[index] = Some(worker.sign(&body, now).signature.as_bytes().to_vec());
            self.lives[index] = row.is_destructive.then_some(row.incarnation);
            is_signed[index] = true;
            self.worker = row.worker;
        }
        if self.worker.is_none() {
            self.worker = Some(worker_keys::id(db, worker.key(), now).await?);
        }
        Ok(is_signed)
    }

    async fn what_is_signed(&self, db: &mut PgConnection, worker: &WorkerKey) -> Result<Vec<Signed>, Error> {
        let rows = sqlx::query_as!(
            Signed,
            r#"
            select a.position as "position!", k.name, 'destructive' = any(k.traits) as "is_destructive!", n.incarnation,
                   (select id from worker_keys w where w.certificate = $3) as worker
            from unnest($1::uuid[], $2::bytea[]) with ordinality as a (node_id, digest, position)
            join nodes n on n.id = a.node_id and n.deleted_at is null
            join kinds k on k.digest = a.digest and k.status <> 'withdrawn'"#,
            &self.nodes,
            &self.digests,
            worker_keys::certificate(worker),
        )
        .fetch_all(db)
        .await?;
        Ok(rows)
    }

    /// Inserts what has no command yet. The counters are advanced in the order of the nodes' ids, so that two of these do
    /// not wait for each other.
    async fn insert(&self, db: &mut PgConnection, now: OffsetDateTime) -> Result<Vec<Inserted>, Error> {
        if self.ids.len() == 1 {
            return self.insert_one(db, now).await;
        }
        let rows = sqlx::query_as!(
            Inserted,
            r#"
            with asked as (
                select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::bytea[],
                                     $7::bigint[], $8::timestamptz[], $11::uuid[], $12::bytea[], $13::bigint[],
                                     $15::text[], $16::text[], $17::bigint[])
                with ordinality as asked (id, node_id, key, digest, payload, hash, min_generation, not_after, batch,
                                          signature, life, requester, object, max_bytes, position)
            ), fresh as (
                select distinct on (a.node_id, a.key) a.*, n.tenant_id, n.incarnation, k.name, k.lane
                from asked a
                join nodes n on n.id = a.node_id and n.deleted_at is null
                    and (a.life is null or a.life = n.incarnation)
                join kinds k on k.digest = a.digest and k.status <> 'withdrawn'
                where not exists (
                    select from commands c where c.node_id = a.node_id and c.idempotency_key = a.key)
                order by a.node_id, a.key, a.position
            ), counted as (
                -- Each node's commands travel along as arrays, since a join with them would be a nested loop: quadratic in
                -- the batch.
                update node_sequences s set next_cmd_seq = s.next_cmd_seq + f.count
                from (
                    select node_id, tenant_id, incarnation, count(*), array_agg(id) as ids, array_agg(key) as keys,
                           array_agg(name) as names, array_agg(digest) as digests, array_agg(lane) as lanes,
                           array_agg(payload) as payloads, array_agg(hash) as hashes,
                           array_agg(min_generation) as min_generations, array_agg(not_after) as not_afters,
                           array_agg(batch) as batches, array_agg(signature) as signatures,
                           array_agg(requester) as requesters, array_agg(object) as objects,
                           array_agg(max_bytes) as max_bytes
                    from (select * from fresh order by node_id, tenant_id, incarnation, position) ordered
                    group by node_id, tenant_id, incarnation
                    order by node_id
                ) f
                where s.node_id = f.node_id
                returning f.*, s.next_cmd_seq - f.count as first_seq
            ), inserted as (
                insert into commands (node_id, seq, id, tenant_id, idempotency_key, kind, kind_digest, lane, payload,
                                      payload_hash, incarnation, min_generation, not_after, created_at, batch_id,
                                      signature, worker_key, requested_by, upload_object, upload_max_bytes)
                select c.node_id, c.first_seq + p.place - 1, p.id, c.tenant_id, p.key, p.name, p.digest, p.lane,
                       p.payload::json, p.hash, c.incarnation, p.min_generation, p.not_after, $10, p.batch, p.signature,
                       case when p.signature is not null then $14::integer end, p.requester, p.object, p.max_bytes
                from counted c
                cross join lateral unnest(c.ids, c.keys, c.names, c.digests, c.lanes, c.payloads, c.hashes,
                                          c.min_generations, c.not_afters, c.batches, c.signatures, c.requesters,
                                          c.objects, c.max_bytes)
                    with ordinality as p (id, key, name, digest, lane, payload, hash, min_generation, not_after, batch,
                                          signature, requester, object, max_bytes, place)
                on conflict (node_id, idempotency_key) do nothing
                returning id, node_id, seq, tenant_id, kind, kind_digest, lane, incarnation, not_after
            ), queued as (
                insert into ready (node_id, lane, seq, not_before, not_after, only_incarnation)
                select i.node_id, i.lane, i.seq,
                       case when i.id = any($9::uuid[]) then 'infinity'::timestamptz else '-infinity' end,
                       i.not_after, case when 'destructive' = any(k.traits) then i.incarnation end
                from inserted i join kinds k on k.digest = i.kind_digest
            ), said as (
                insert into events (tenant_id, node_id, command_id, topic, body, at)
                select tenant_id, node_id, id, 'node.command.queued',
                       jsonb_build_object('kind', kind, 'seq', seq), $10
                from inserted
            )
            select id as "id!", seq as "seq!" from inserted"#,
            &self.ids,
            &self.nodes,
            &self.keys,
            &self.digests,
            &self.payloads,
            &self.hashes,
            &self.min_generations as &[Option<i64>],
            &self.not_afters,
            &self.held,
            now,
            &self.batches as &[Option<Uuid>],
            &self.signatures as &[Option<Vec<u8>>],
            &self.lives as &[Option<i64>],
            self.worker,
            &self.requesters,
            &self.upload_objects as &[Option<String>],
            &self.upload_max_bytes as &[Option<i64>],
        )
        .fetch_all(db)
        .await?;
        Ok(rows)
    }

    /// The same for one command, which most are: without arrays and groups the database has less to set up (benchmarks, A1).
    async fn insert_one(&self, db: &mut PgConnection, now: OffsetDateTime) -> Result<Vec<Inserted>, Error> {
        let rows = sqlx::query_as!(
            Inserted,
            r#"
            with counted as (
                update node_sequences s set next_cmd_seq = s.next_cmd_seq + 1
                from nodes n, kinds k
                where s.node_id = $2 and n.id = $2 and n.deleted_at is null and k.digest = $4 and k.status <> 'withdrawn'
                  and ($13::bigint is null or n.incarnation = $13)
                  and not exists (select from commands c where c.node_id = $2 and c.idempotency_key = $3)
                returning s.next_cmd_seq - 1 as seq, n.tenant_id, n.incarnation, k.name, k.lane, k.traits
            ), inserted as (
                insert into commands (node_id, seq, id, tenant_id, idempotency_key, kind, kind_digest, lane, payload,
                                      payload_hash, incarnation, min_generation, not_after, created_at, batch_id,
                                      signature, worker_key, requested_by, upload_object, upload_max_bytes)
                select $2, seq, $1, tenant_id, $3, name, $4, lane, $5::text::json, $6, incarnation, $7, $8, $10, $11, $12,
                       $14, $15, $16, $17
                from counted
                on conflict (node_id, idempotency_key) do nothing
                returning tenant_id, kind, seq
            ), queued as (
                insert into ready (node_id, lane, seq, not_before, not_after, only_incarnation)
                select $2, c.lane, c.seq, case when $9 then 'infinity'::timestamptz else '-infinity' end, $8,
                       case when 'destructive' = any(c.traits) then c.incarnation end
                from inserted join counted c using (seq)
            ), said as (
                insert into events (tenant_id, node_id, command_id, topic, body, at)
                select tenant_id, $2, $1, 'node.command.queued', jsonb_build_object('kind', kind, 'seq', seq), $10
                from inserted
            )
            select $1::uuid as "id!", seq as "seq!" from inserted"#,
            self.ids[0],
            self.nodes[0],
            self.keys[0],
            self.digests[0],
            self.payloads[0],
            self.hashes[0],
            self.min_generations[0],
            self.not_afters[0],
            !self.held.is_empty(),
            now,
            self.batches[0],
            self.signatures[0].as_deref(),
            self.lives[0],
            self.worker,
            self.requesters[0],
            self.upload_objects[0].as_deref(),
            self.upload_max_bytes[0],
        )
        .fetch_all(db)
        .await?;
        Ok(rows)
    }

    async fn find(&self, db: &mut PgConnection) -> Result<Vec<Found>, Error> {
        let rows = sqlx::query_as!(
            Found,
            r#"
            select position as "position!", c.id, c.seq,
                   c.payload_hash = a.hash and c.kind = (select name from kinds where digest = a.digest) as "is_same!"
            from unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[])
                with ordinality as a (node_id, key, digest, hash, position)
            join commands c on c.node_id = a.node_id and c.idempotency_key = a.key"#,
            &self.nodes,
            &self.keys,
            &self.digests,
            &self.hashes,
        )
        .fetch_all(db)
        .await?;
        Ok(rows)
    }

    async fn known_nodes(&self, db: &mut PgConnection) -> Result<Vec<Uuid>, Error> {
        let query = sqlx::query_scalar!("select id from nodes where id = any($1) and deleted_at is null", &self.nodes);
        Ok(query.fetch_all(db).await?)
    }
}
