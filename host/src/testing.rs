//! A database for a test, and a small fleet in it.
//!
//! All tests of a run share one private Postgres below `target/`, whichever processes they are in; each has a database of its
//! own, copied from a migrated one. Two files guard it: `gate` is held while somebody comes or goes, `users` is shared by
//! those who are there. The last one to go stops the server.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bc_proto::canonical;
use bc_proto::id::{CommandId, JournalId, NodeId, TenantId};
use bc_proto::manifest::{Lane, Manifest, Role};
use bc_proto::rules::approval::{Approver, Policy, Requirement};
use bc_proto::sign::SecretKey;
use serde_json::json;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Postgres};
use time::{Duration, OffsetDateTime};

use crate::postgres::PrivatePostgres;
use crate::queue::claim::{Delivery, Room};
use crate::queue::enqueue::{NewCommand, Outcome, Queued};
use crate::queue::hello::{Greeted, Greeting, Session};
use crate::store::kinds::Digest;
use crate::store::{MIGRATIONS, commands, events, kinds, nodes, tenants};
use crate::trust::Settings;
use crate::{queue, store};

/// Counts databases and ids.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A UUID that the process has not used.
pub(crate) fn uuid() -> Uuid {
    Uuid::from_u128(u128::from(next()))
}

/// A time, in seconds after an arbitrary beginning.
pub(crate) fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::seconds(1_800_000_000 + seconds)
}

struct Lease {
    users: File,
}

impl Lease {
    /// The server, and whether nobody else uses it.
    fn take() -> (Self, PrivatePostgres, File, bool) {
        let gate = file("gate");
        gate.lock().expect("the gate opens");
        let users = file("users");
        let is_alone = users.try_lock().is_ok();
        users.lock_shared().expect("nobody holds it alone outside the gate");
        let server = PrivatePostgres::start(&target().join("test-postgres")).expect("Postgres starts");
        (Self { users }, server, gate, is_alone)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let gate = file("gate");
        gate.lock().expect("the gate opens");
        self.users.unlock().expect("it was locked");
        if self.users.try_lock().is_ok() {
            let server = PrivatePostgres::start(&target().join("test-postgres")).expect("it runs");
            server.stop().expect("Postgres stops");
        }
    }
}

/// The server that the tests share, while the caller holds a [`Fleet`] in it. Have it keep running.
pub(crate) fn test_server() -> PrivatePostgres {
    PrivatePostgres::start(&target().join("test-postgres")).expect("it runs")
}

fn target() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target"))
}

fn file(name: &str) -> File {
    File::create(target().join(format!("test-postgres.{name}"))).expect("target/ can be written")
}

/// Creates the migrated template if there is none, and copies it.
async fn create_database(server: &PrivatePostgres, is_alone: bool) -> String {
    let mut db = PgConnection::connect_with(&server.connect_options("postgres")).await.expect("it accepts connections");
    let run = async |db: &mut PgConnection, sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(db).await.expect("SQL without a mistake");
    };
    let all: Vec<u8> = MIGRATIONS.iter().flat_map(|it| it.checksum.iter().copied()).collect();
    let template = format!("template_{}", &canonical::sha256_hex(&all)[..16]);
    if is_alone {
        let old = "select datname from pg_database where datname like 'test_%' or datname = 'draft'";
        let old: Vec<String> = sqlx::query_scalar(old).fetch_all(&mut db).await.expect("a catalogue");
        for name in old {
            run(&mut db, format!("drop database {name} with (force)")).await;
        }
    }
    let exists = "select exists (select from pg_database where datname = $1)";
    if !sqlx::query_scalar::<_, bool>(exists).bind(&template).fetch_one(&mut db).await.expect("a catalogue") {
        run(&mut db, "create database draft".into()).await;
        let draft = PgPool::connect_with(server.connect_options("draft")).await.expect("it is there");
        store::migrate(&draft).await.expect("the migrations are right");
        draft.close().await;
        run(&mut db, format!("alter database draft rename to {template}")).await;
    }
    let name = format!("test_{}_{}", std::process::id(), next());
    run(&mut db, format!("create database {name} template {template}")).await;
    name
}

/// A tenant with nodes and kinds, in a database of the test's own.
pub(crate) struct Fleet {
    pub(crate) pool: PgPool,
    pub(crate) tenant: TenantId,
    _lease: Option<Lease>,
}

impl Fleet {
    pub(crate) async fn new() -> Self {
        let (lease, server, gate, is_alone) = Lease::take();
        let name = create_database(&server, is_alone).await;
        let options = server.connect_options(&name);
        server.keep_running();
        drop(gate);
        let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await.expect("it accepts connections");
        Self::within(pool, Some(lease)).await
    }

    /// In the database of a server that the test keeps for itself.
    pub(crate) async fn on(server: &PrivatePostgres) -> Self {
        let pool = PgPool::connect_with(server.connect_options("postgres")).await.expect("it accepts connections");
        store::migrate(&pool).await.expect("the migrations are right");
        Self::within(pool, None).await
    }

    async fn within(pool: PgPool, lease: Option<Lease>) -> Self {
        let tenant = TenantId::from_uuid(uuid());
        let fleet = Self { pool, tenant, _lease: lease };
        tenants::create(&mut *fleet.db().await, tenant, "a tenant", at(0)).await.expect("a new tenant");
        fleet
    }

    pub(crate) async fn db(&self) -> PoolConnection<Postgres> {
        self.pool.acquire().await.expect("a connection")
    }

    pub(crate) async fn node(&self) -> NodeId {
        let id = NodeId::from_uuid(uuid());
        let node =
            nodes::NewNode { id, tenant: self.tenant, name: id.to_string(), labels: [].into(), role: Role::Host };
        nodes::create(&mut *self.db().await, node, at(0)).await.expect("a new node");
        id
    }

    /// A kind with a timeout of a minute. Its name is made of its lane and traits.
    pub(crate) async fn kind(&self, lane: Lane, traits: &[&str]) -> Digest {
        let digest: Digest = {
            let mut digest = [7; 32];
            digest[..16].copy_from_slice(uuid().as_bytes());
            digest
        };
        let lane = store::code::lane(lane);
        let text = format!(
            "name = 'test.{}'\nversion = '1.0.{}'\nsummary = 'x'\nmodule = 'test'\nlane = '{lane}'\ntimeout = '1m'\n\
             roles = ['host']\ntraits = {traits:?}\npayload = {{ type = 'object' }}\nresult = {{}}",
            [&[lane], traits].concat().join("-"),
            next(),
        );
        let manifest = Manifest::from_toml(&text).expect("the test's manifest is right");
        kinds::activate(&mut *self.db().await, digest, &manifest, b"\0asm", at(0)).await.expect("a new kind");
        digest
    }

    pub(crate) async fn enqueue(&self, node: &NodeId, kind: Digest) -> Queued {
        match queue::enqueue(&mut *self.db().await, &crate::trust::Signer::none(), command(node, kind), at(0))
            .await
            .expect("a database")
        {
            Outcome::Queued(queued) => queued,
            other => panic!("not queued: {other:?}"),
        }
    }

    /// Says hello, and says it again with the epoch that the first answer names, as a daemon does.
    pub(crate) async fn hello(&self, greeting: &Greeting, now: OffsetDateTime) -> Session {
        let mut greeting = greeting.clone();
        loop {
            let mut tx = self.pool.begin().await.expect("a transaction");
            let greeted = queue::hello(&mut tx, "here", &greeting, now).await.expect("a database");
            tx.commit().await.expect("a commit");
            match greeted {
                Greeted::Open(session) => return session,
                Greeted::Overtaken(epoch) if epoch != greeting.last_epoch => greeting.last_epoch = epoch,
                other => panic!("a node that may enter: {other:?}"),
            }
        }
    }

    /// Claims in the control lane.
    pub(crate) async fn claim(&self, node: &NodeId, epoch: u64, now: OffsetDateTime) -> Vec<Delivery> {
        queue::claim(&mut *self.db().await, &[room(node, epoch)], now).await.expect("a database")
    }

    /// Where a command stands, and why.
    pub(crate) async fn state(&self, command: &CommandId) -> (String, String) {
        let found = commands::find(&mut *self.db().await, self.tenant, *command).await;
        let found = found.expect("a database").expect("it is there");
        (found.state.to_string(), found.reason)
    }

    /// The topics of all events, with the commands or batches that they are about. Waits until they can be seen: transactions of other
    /// tests, in other databases, hold them back as well.
    pub(crate) async fn events(&self) -> Vec<(String, String)> {
        let hidden = "select exists (select from events where xid >= pg_snapshot_xmin(pg_current_snapshot()))";
        while sqlx::query_scalar(hidden).fetch_one(&self.pool).await.expect("a database") {
            tokio::task::yield_now().await;
        }
        let all = events::after(&mut *self.db().await, events::Cursor::default(), 10_000).await.expect("a database");
        all.into_iter()
            .map(|event| {
                let about = ["commandId", "batchId"].into_iter().find_map(|name| event.body[name].as_str());
                (event.topic, about.expect("it names what it is about").to_owned())
            })
            .collect()
    }
}

/// A command with a key of its own, to be accepted within 600 s.
pub(crate) fn command(node: &NodeId, kind: Digest) -> NewCommand {
    let id = CommandId::from_uuid(uuid());
    NewCommand {
        idempotency_key: id.to_string(),
        id,
        node: *node,
        kind_digest: kind,
        payload: json!({"n": 1.50, "text": "é\u{0}"}),
        min_generation: None,
        not_after: at(600),
        is_held: false,
        batch: None,
        requested_by: "tests".into(),
        upload: None,
    }
}

/// The key of somebody who approves.
pub(crate) fn approver_key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

/// Settings under which batches take two of `a` and one of `b`: `ann` (key 1), `abe` (2) and `admin` (4) are in `a`, `bob` (3) in `b`.
pub(crate) fn two_of_a_and_one_of_b() -> Settings {
    let approver = |name: &str, number, group: &str| Approver {
        name: name.into(),
        key: approver_key(number).public(),
        groups: vec![group.into()],
    };
    let of = |group: &str, count| Requirement { group: Some(group.into()), count };
    let approvers =
        vec![approver("ann", 1, "a"), approver("abe", 2, "a"), approver("bob", 3, "b"), approver("admin", 4, "a")];
    let policy = Policy { approvers, require: vec![of("a", 2), of("b", 1)] };
    policy.check().expect("it can be met");
    Settings { approvers: Some(policy), ..Settings::default() }
}

/// Room for all of the control lane.
pub(crate) fn room(node: &NodeId, epoch: u64) -> Room {
    Room { node: *node, epoch, lane: Lane::Control, credits: 8, above_seq: 0 }
}

/// A node in its first life, boot and journal.
pub(crate) fn greeting(node: &NodeId) -> Greeting {
    Greeting {
        node: *node,
        incarnation: 1,
        journal: JournalId::from_uuid(Uuid::from_u128(1)),
        boot: "boot 1".into(),
        role: Role::Host,
        generation: 0,
        bcd_version: "1.0.0".into(),
        host_abi: "1.0.0".into(),
        kinds: Vec::new(),
        last_epoch: 0,
    }
}
