//! A control plane's database with a fleet in it, and what is asked of it.
//!
//! **Invariant:** commands go in by `bc_host::queue::enqueue` and `enqueue_many` alone, each in a transaction that is durable
//! when it returns; only the load of A6 is written by SQL.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use bc_host::queue;
use bc_host::queue::claim::Room;
use bc_host::queue::enqueue::{NewCommand, Outcome};
use bc_host::store::kinds::Digest;
use bc_host::store::nodes::NewNode;
use bc_host::store::{self, kinds, nodes, tenants};
use bc_proto::id::{CommandId, NodeId, TenantId};
use bc_proto::manifest::{Lane, Manifest, Role};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Uuid;
use sqlx::{Connection, PgConnection, PgPool};
use time::OffsetDateTime;

use super::site::Site;

/// Commands of one bulk statement.
pub(super) const BULK: usize = 1000;

/// The epoch of every node's session.
pub(super) const EPOCH: u64 = 1;

/// The workers of the control lane, and so the commands that a node has at a time.
pub(super) const CREDITS: u32 = 8;

/// The kind of all commands.
pub(in super::super) const MANIFEST: &str = "
name = 'bench.noop'
version = '1.0.0'
summary = 'Does nothing'
module = 'bench'
lane = 'control'
timeout = '1m'
roles = ['host']
payload = { type = 'object' }
result = {}
";

/// The payload of every command, and of every peer's job.
pub(super) fn payload() -> Value {
    json!({ "n": 1.5, "text": "a payload of the usual size" })
}

pub(super) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// Ids in the order of time, as the API makes them: they decide where index entries land.
#[expect(clippy::disallowed_methods, reason = "the benchmark is the shell that supplies ids")]
pub(in super::super) fn uuid() -> Uuid {
    Uuid::now_v7()
}

/// Room in the control lane of a node.
pub(super) fn room(node: NodeId, credits: u32, above_seq: u64) -> Room {
    Room { node, epoch: EPOCH, lane: Lane::Control, credits, above_seq }
}

/// A fleet whose nodes all have a session.
pub(crate) struct Plane {
    pub(super) options: PgConnectOptions,
    pub(super) tenant: TenantId,
    pub(super) nodes: Vec<NodeId>,
    pub(super) kind: Digest,
}

impl Plane {
    pub(crate) async fn new(site: &Site, name: &str, count: usize) -> anyhow::Result<Self> {
        let options = site.database(name).await?;
        let pool = PgPool::connect_with(options.clone()).await?;
        store::migrate(&pool).await?;
        let mut tx = pool.begin().await?;
        let tenant = TenantId::from_uuid(uuid());
        tenants::create(&mut tx, tenant, "bench", now()).await?;
        let mut fleet = Vec::with_capacity(count);
        for _ in 0..count {
            let id = NodeId::from_uuid(uuid());
            let node = NewNode { id, tenant, name: id.to_string(), labels: [].into(), role: Role::Host };
            nodes::create(&mut tx, node, now()).await?;
            fleet.push(id);
        }
        let kind = [7; 32];
        kinds::activate(&mut tx, kind, &Manifest::from_toml(MANIFEST)?, b"\0asm", now()).await?;
        // What hellos would leave: they are not measured here.
        let greeted = "update nodes set session_epoch = $1, journal_id = id, boot_id = 'boot'";
        sqlx::query(greeted).bind(i64::try_from(EPOCH)?).execute(&mut *tx).await?;
        tx.commit().await?;
        sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
        pool.close().await;
        Ok(Self { options, tenant, nodes: fleet, kind })
    }

    pub(super) async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect_with(&self.options).await?)
    }

    /// Away with all commands, so that each round begins alike.
    pub(super) async fn empty(&self) -> anyhow::Result<()> {
        let mut db = self.connect().await?;
        sqlx::raw_sql("truncate commands, ready, in_flight, settled, events").execute(&mut db).await?;
        Ok(())
    }

    pub(super) fn command(&self, node: usize) -> NewCommand {
        let id = CommandId::from_uuid(uuid());
        NewCommand {
            idempotency_key: format!("bench:{id}"),
            id,
            node: self.nodes[node % self.nodes.len()],
            kind_digest: self.kind,
            payload: payload(),
            min_generation: None,
            not_after: now() + time::Duration::seconds(3600),
            is_held: false,
            batch: None,
            requested_by: "bench".into(),
            upload: None,
        }
    }

    /// Enqueues one by one on some connections until `is_enough`, which is asked with how many each has done; returns how many
    /// were queued, and how long it took. `told` hears of each after its commit.
    pub(super) async fn enqueue_until(
        &self,
        clients: usize,
        spread: Spread,
        is_enough: impl Fn(usize, Duration) -> bool,
        told: impl Fn(NodeId),
    ) -> anyhow::Result<(usize, Duration)> {
        let connections = try_join_all((0..clients).map(|_| self.connect())).await?;
        let started = Instant::now();
        let client = async |(client, mut db): (usize, PgConnection)| {
            let mut done = 0;
            while !is_enough(done, started.elapsed()) {
                let command = self.command(spread.node(client, done));
                let node = command.node;
                let outcome = queue::enqueue(&mut db, &bc_host::trust::Signer::none(), command, now()).await?;
                ensure!(matches!(outcome, Outcome::Queued(_)), "not queued: {outcome:?}");
                told(node);
                done += 1;
            }
            anyhow::Ok(done)
        };
        let done = try_join_all(connections.into_iter().enumerate().map(client)).await?;
        Ok((done.into_iter().sum(), started.elapsed()))
    }

    /// Enqueues in bulk, each statement for a slice of the nodes that no other client has, until `is_enough`.
    pub(super) async fn bulk_until(
        &self,
        clients: usize,
        bulk: usize,
        is_enough: impl Fn(usize, Duration) -> bool,
    ) -> anyhow::Result<(usize, Duration)> {
        let connections = try_join_all((0..clients).map(|_| self.connect())).await?;
        let slice = (self.nodes.len() / clients).max(1);
        let started = Instant::now();
        let client = async |(client, mut db): (usize, PgConnection)| {
            let mut done = 0;
            while !is_enough(done, started.elapsed()) {
                let commands: Vec<_> = (0..bulk).map(|at| self.command(client * slice + (done + at) % slice)).collect();
                for outcome in queue::enqueue_many(&mut db, &bc_host::trust::Signer::none(), &commands, now()).await? {
                    ensure!(matches!(outcome, Outcome::Queued(_)), "not queued: {outcome:?}");
                }
                done += bulk;
            }
            anyhow::Ok(done)
        };
        let done = try_join_all(connections.into_iter().enumerate().map(client)).await?;
        Ok((done.into_iter().sum(), started.elapsed()))
    }

    /// Enqueues so many, in bulk.
    pub(super) async fn fill(&self, commands: usize) -> anyhow::Result<()> {
        let bulk = commands.min(BULK);
        let (done, _) = self.bulk_until(1, bulk, |done, _| done >= commands).await?;
        ensure!(done == commands, "{done} instead of {commands}: not a multiple of {bulk}");
        Ok(())
    }

    /// Fails unless nothing is open and so many are settled: what other queues were seen to leave behind.
    pub(super) async fn expect_settled(&self, commands: usize) -> anyhow::Result<()> {
        let mut db = self.connect().await?;
        let counts =
            "select (select count(*) from ready), (select count(*) from in_flight), (select count(*) from settled),
                             (select count(*) from events where topic = 'command.settled')";
        let (ready, in_flight, settled, events): (i64, i64, i64, i64) =
            sqlx::query_as(counts).fetch_one(&mut db).await?;
        if (ready, in_flight) != (0, 0) {
            bail!("{ready} commands were left ready and {in_flight} in flight");
        }
        let wanted = i64::try_from(commands)?;
        ensure!((settled, events) == (wanted, wanted), "{settled} settled with {events} events, not {wanted}");
        Ok(())
    }
}

/// How commands are spread over nodes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spread {
    /// Over all, in no order.
    All,
    /// All to one.
    One,
}

impl Spread {
    fn node(self, client: usize, done: usize) -> usize {
        match self {
            // Two odd factors: clients do not walk behind each other.
            Self::All => client.wrapping_mul(7919).wrapping_add(done.wrapping_mul(104_729)),
            Self::One => 0,
        }
    }
}
