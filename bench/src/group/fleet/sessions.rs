//! Sessions in this process: nodes that say hello, live, and read what they are sent.
//!
//! **Invariant:** they use the gateway as its server does, by `Gateway::session`; the database's rows are those that joins and
//! the API would make.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use bc_host::bus::{Bus, Signal};
use bc_host::gateway::{Caller, Gateway, HEARTBEAT, Outbox, Settings};
use bc_host::loops;
use bc_host::pki::{Authority, Peer};
use bc_host::queue::enqueue::{NewCommand, Outcome};
use bc_host::queue::enqueue_many;
use bc_host::store::node_certificates::NewCertificate;
use bc_host::store::nodes::NewNode;
use bc_host::store::{self, kinds, node_certificates, nodes, tenants};
use bc_host::world::World;
use bc_proto::id::{CommandId, JournalId, NodeId, TenantId};
use bc_proto::manifest::{Manifest, Role};
use bc_proto::wire::v1::{self, from_node, to_node};
use futures_util::future::join_all;
use futures_util::{Stream, StreamExt};
use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::types::Uuid;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use super::super::queue::MANIFEST;

/// Commands of one statement.
const BULK: usize = 1_000;

/// As many as a replica has.
const CONNECTIONS: u32 = 32;

/// The digest of the kind.
const KIND: [u8; 32] = [7; 32];

/// What a replay reads, for all nodes in one statement.
const ROWS: &str = "
select c.id, c.seq, c.node_id, c.incarnation, c.kind, c.kind_digest, c.payload::text, c.not_after, k.timeout_ms,
       c.min_generation, f.lane::text, f.cancel_requested_at is not null
from in_flight f
join commands c on c.node_id = f.node_id and c.seq = f.seq
join kinds k on k.digest = c.kind_digest
where f.node_id = any($1)
order by c.node_id, c.seq";

/// A gateway, and nodes that may enter.
pub(super) struct Hall {
    pool: PgPool,
    bus: Bus,
    world: World,
    gateway: Gateway,
    callers: Vec<Caller>,
    /// What each node knows to be its newest session.
    epochs: Vec<AtomicU64>,
    _stop: DropGuard,
}

impl Hall {
    /// Starts the gateway over an empty database, and enrols the nodes.
    pub(super) async fn open(database: &str, count: usize) -> anyhow::Result<Self> {
        let options = store::by_keys(database.parse::<PgConnectOptions>()?);
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
        store::migrate(&pool).await?;
        let world = World::real();
        let callers = enrol(&pool, &world, count).await?;
        sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
        let stop = CancellationToken::new();
        let bus = Bus::connect(&pool, "crowd", stop.clone());
        loops::start(&pool, &bus, &world, &stop);
        let authority = Arc::new(Authority::create(world.bytes(), world.now())?.0);
        let settings = Settings { replica: "crowd".into(), hosts: Vec::new(), heartbeat: HEARTBEAT, bundles: None };
        let gateway =
            Gateway::start(settings, pool.clone(), bus.clone(), authority, world.clone(), stop.clone()).await?;
        let epochs = callers.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { pool, bus, world, gateway, callers, epochs, _stop: stop.drop_guard() })
    }

    /// Opens the first so many sessions, all at once. Answers those that were welcomed, and how many were not.
    pub(super) async fn enter(&self, count: usize) -> (Vec<Outbox>, usize) {
        let opened = join_all((0..count).map(|at| self.open_one(at))).await;
        sorted(opened)
    }

    /// The same for all, each until it has a command.
    pub(super) async fn enter_for_replay(&self) -> (Vec<Outbox>, usize) {
        let opened = join_all((0..self.callers.len()).map(async |at| {
            let mut outbox = self.open_one(at).await?;
            delivered(&mut outbox).await?;
            Ok(outbox)
        }));
        sorted(opened.await)
    }

    async fn open_one(&self, at: usize) -> anyhow::Result<Outbox> {
        let caller = self.callers[at];
        // Daemons that came at once do not live in step for long.
        let first = HEARTBEAT.mul_f64((at + 1) as f64 / self.callers.len() as f64);
        let epoch = &self.epochs[at];
        let hello = Some(Box::new(hello(caller.peer, epoch.load(Ordering::Relaxed))));
        let mut outbox = self.gateway.session(caller, Frames { hello, next: Box::pin(tokio::time::sleep(first)) });
        match outbox.next().await {
            Some(Ok(v1::ToNode { epoch: welcomed, frame: Some(to_node::Frame::Welcome(_)) })) => {
                epoch.store(welcomed, Ordering::Relaxed);
                Ok(outbox)
            }
            other => bail!("no welcome: {other:?}"),
        }
    }

    /// Queues a command for every node and waits until each has it.
    pub(super) async fn send_each(&self, sessions: &mut [Outbox]) -> anyhow::Result<()> {
        let mut db = self.pool.acquire().await?;
        for callers in self.callers.chunks(BULK) {
            let commands: Vec<_> = callers.iter().map(|caller| command(&self.world, caller.peer.node)).collect();
            for outcome in enqueue_many(&mut db, &bc_host::trust::Signer::none(), &commands, self.world.now()).await? {
                ensure!(matches!(outcome, Outcome::Queued(_)), "not queued: {outcome:?}");
            }
        }
        drop(db);
        for caller in &self.callers {
            self.bus.tell(Signal::Work { node: caller.peer.node });
        }
        for got in join_all(sessions.iter_mut().map(delivered)).await {
            got?;
        }
        Ok(())
    }

    /// One read of what all nodes have in flight.
    pub(super) async fn read(&self) -> anyhow::Result<Duration> {
        let nodes: Vec<Uuid> = self.callers.iter().map(|caller| caller.peer.node.uuid()).collect();
        let started = Instant::now();
        let rows = sqlx::query(ROWS).bind(&nodes).fetch_all(&self.pool).await?;
        let took = started.elapsed();
        ensure!(rows.len() == nodes.len(), "{} commands are in flight", rows.len());
        Ok(took)
    }

    /// Has every session looked at, as the gateway does by itself every 10 s, and Postgres learn what autovacuum would tell it.
    pub(super) async fn reconcile(&self) -> anyhow::Result<()> {
        self.gateway.reconcile().await?;
        sqlx::raw_sql("analyze nodes").execute(&self.pool).await?;
        Ok(())
    }

    /// Waits until the gateway holds no session.
    pub(super) async fn left(&self) {
        while self.gateway.sessions() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How many sessions the gateway holds.
    pub(super) fn sessions(&self) -> usize {
        self.gateway.sessions()
    }
}

fn sorted(opened: Vec<anyhow::Result<Outbox>>) -> (Vec<Outbox>, usize) {
    let all = opened.len();
    let inside: Vec<_> = opened.into_iter().filter_map(Result::ok).collect();
    let failed = all - inside.len();
    (inside, failed)
}

async fn next(outbox: &mut Outbox) -> anyhow::Result<to_node::Frame> {
    match outbox.next().await {
        Some(Ok(v1::ToNode { frame: Some(frame), .. })) => Ok(frame),
        other => bail!("the session says {other:?}"),
    }
}

async fn delivered(outbox: &mut Outbox) -> anyhow::Result<()> {
    match next(outbox).await? {
        to_node::Frame::Deliver(_) => Ok(()),
        other => bail!("no command: {other:?}"),
    }
}

async fn enrol(pool: &PgPool, world: &World, count: usize) -> anyhow::Result<Vec<Caller>> {
    let mut tx = pool.begin().await?;
    let now = world.now();
    let tenant = TenantId::from_uuid(world.uuid());
    tenants::create(&mut tx, tenant, "bench", now).await?;
    kinds::activate(&mut tx, KIND, &Manifest::from_toml(MANIFEST)?, b"\0asm", now).await?;
    let mut callers = Vec::with_capacity(count);
    for _ in 0..count {
        let id = NodeId::from_uuid(world.uuid());
        nodes::create(&mut tx, NewNode { id, tenant, name: id.to_string(), labels: [].into(), role: Role::Host }, now)
            .await?;
        // The gateway was told by TLS whose it is, so nothing reads it.
        let der = id.to_string();
        let fingerprint = Sha256::digest(&der).into();
        let certificate = NewCertificate {
            fingerprint,
            node: id,
            incarnation: 1,
            der: der.as_bytes(),
            key: bc_proto::sign::SecretKey::from_seed([7; 32]).public(),
            allowed_kinds: None,
            not_after: now + Duration::from_hours(24),
        };
        node_certificates::create(&mut tx, certificate, now).await?;
        callers.push(Caller { fingerprint, peer: Peer { node: id, incarnation: 1 } });
    }
    tx.commit().await?;
    Ok(callers)
}

fn command(world: &World, node: NodeId) -> NewCommand {
    let id = CommandId::from_uuid(world.uuid());
    NewCommand {
        idempotency_key: format!("bench:{id}"),
        id,
        node,
        kind_digest: KIND,
        payload: json!({ "n": 1.5, "text": "a payload of the usual size" }),
        min_generation: None,
        not_after: world.now() + Duration::from_hours(1),
        is_held: false,
        batch: None,
        requested_by: "bench".into(),
        upload: None,
    }
}

fn hello(peer: Peer, last_epoch: u64) -> v1::FromNode {
    let hello = v1::Hello {
        journal_id: JournalId::from_uuid(peer.node.uuid()).to_string(),
        boot_id: "boot".into(),
        role: v1::Role::Host.into(),
        incarnation: peer.incarnation,
        bcd_version: "1.0.0".into(),
        host_abi: "1.0.0".into(),
        kinds: vec![v1::LoadedKind { name: "bench.noop".into(), version: "1.0.0".into(), digest: KIND.to_vec() }],
        last_epoch,
        ..v1::Hello::default()
    };
    v1::FromNode { epoch: 0, frame: Some(from_node::Frame::Hello(hello)) }
}

/// What a node says: its hello, and then that it lives. Boxed, since what is measured is the gateway.
struct Frames {
    hello: Option<Box<v1::FromNode>>,
    next: Pin<Box<Sleep>>,
}

impl Stream for Frames {
    type Item = Result<v1::FromNode, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(Ok(*hello)));
        }
        ready!(self.next.as_mut().poll(context));
        self.next.as_mut().reset(tokio::time::Instant::now() + HEARTBEAT);
        // The epoch of a heartbeat has no effect.
        let heartbeat = from_node::Frame::Heartbeat(v1::Heartbeat::default());
        Poll::Ready(Some(Ok(v1::FromNode { epoch: 0, frame: Some(heartbeat) })))
    }
}
