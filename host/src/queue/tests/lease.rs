//! Leases on a real Postgres, taken as runners do: over connections of a user that may do nothing else.

mod bad_input;
mod clients;
mod cut;
mod many;
mod output;
mod rights;

use bc_proto::id::{CommandId, NodeId};
use bc_proto::manifest::{Lane, Manifest, Role};
use bc_proto::rules::lease::Refusal;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use time::Duration;

use crate::queue::enqueue::NewCommand;
use crate::queue::hello::{Greeted, Greeting};
use crate::queue::{cancel, hello, sweep};
use crate::store::kinds::Digest;
use crate::store::{kinds, nodes, runners};
use crate::testing::{Fleet, at, command, greeting, uuid};
use crate::trust::Signer;

/// A gateway whose commands are leased, and a user who may.
struct Gateway {
    fleet: Fleet,
    node: NodeId,
    slug: String,
    login: String,
}

/// Long after whenever the test runs: leases are timed by the database's clock.
fn far() -> time::OffsetDateTime {
    at(0) + Duration::days(36_500)
}

impl Gateway {
    async fn new() -> Self {
        let fleet = Fleet::new().await;
        let (node, slug) = gateway(&fleet).await;
        let login = login(&fleet, node).await;
        Self { fleet, node, slug, login }
    }

    /// A connection of the runner's own.
    async fn runner(&self) -> Runner {
        Runner { db: connect(&self.fleet, &self.login).await, slug: self.slug.clone() }
    }

    async fn enqueue(&self, kind: Digest) -> CommandId {
        let new = NewCommand { not_after: far(), ..command(&self.node, kind) };
        let id = new.id;
        crate::queue::enqueue(&mut *self.fleet.db().await, &Signer::none(), new, at(0)).await.expect("a database");
        id
    }

    /// Has the lease of a command run out by now.
    async fn run_out(&self, token: i64) {
        let sql =
            "update runner_leases set expires_at = now() - interval '1 second' where token = $1 and ended_at is null";
        sqlx::query(sql).bind(token).execute(&self.fleet.pool).await.expect("a database");
    }

    async fn sweep(&self) -> Option<usize> {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let swept = sweep(&mut tx, at(0), 100).await.expect("a database");
        tx.commit().await.expect("a commit");
        swept
    }

    /// What the UI inserts.
    async fn insert(&self, action: &str, payload: Value) -> Uuid {
        let sql = "insert into agent_commands (gateway_slug, action, payload) values ($1, $2, $3) returning id";
        let row = sqlx::query_scalar(sql).bind(&self.slug).bind(action).bind(payload);
        row.fetch_one(&self.fleet.pool).await.expect("it is queued")
    }
}

async fn gateway(fleet: &Fleet) -> (NodeId, String) {
    let node = NodeId::from_uuid(uuid());
    let slug = format!("gw-{}", node.uuid().simple());
    let new =
        nodes::NewNode { id: node, tenant: fleet.tenant, name: slug.clone(), labels: [].into(), role: Role::Gateway };
    nodes::create(&mut *fleet.db().await, new, at(0)).await.expect("a new node");
    assert!(runners::assign(&mut *fleet.db().await, node, &slug).await.expect("a database"));
    (node, slug)
}

/// A user of the database who acts for a node; named after the database, since users are shared by all of them.
async fn login(fleet: &Fleet, node: NodeId) -> String {
    let database: String =
        sqlx::query_scalar("select current_database()").fetch_one(&fleet.pool).await.expect("a name");
    let login = format!("runner_{database}_{}", &node.uuid().simple().to_string()[24..]);
    let sql = format!("drop role if exists {login}; create role {login} login; grant better_compute_runner to {login}");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&fleet.pool).await.expect("a new user");
    runners::allow(&mut *fleet.db().await, &login, node).await.expect("a database");
    login
}

async fn connect(fleet: &Fleet, login: &str) -> PgConnection {
    let options = (*fleet.pool.connect_options()).clone().username(login);
    PgConnection::connect_with(&options).await.expect("it may enter")
}

/// The kind that inserted commands are of.
async fn action_kind(fleet: &Fleet) {
    let text = "name = 'runner.action'\nversion = '1.0.0'\nsummary = 'x'\nmodule = 'runner'\nlane = 'control'\n\
                timeout = '1m'\nroles = ['gateway']\npayload = { type = 'object' }\nresult = {}";
    let manifest = Manifest::from_toml(text).expect("the test's manifest is right");
    kinds::activate(&mut *fleet.db().await, [9; 32], &manifest, b"\0asm", at(0)).await.expect("a new kind");
}

/// A runner, as far as it talks to the database.
struct Runner {
    db: PgConnection,
    slug: String,
}

/// Why a call was refused; anything else fails the test.
fn refusal(error: &sqlx::Error) -> Refusal {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned();
    Refusal::of(&code).unwrap_or_else(|| panic!("not a refusal: {error}"))
}

type Answer = Result<PgRow, Refusal>;

impl Runner {
    async fn lease(&mut self) -> Option<(Uuid, i64)> {
        let sql = "select id, lease_token from lease_command($1, 600)";
        let row = sqlx::query(sql).bind(&self.slug).fetch_optional(&mut self.db).await.expect("a lease or none");
        row.map(|row| (row.get("id"), row.get("lease_token")))
    }

    async fn start(&mut self, command: Uuid, token: Option<i64>) -> Answer {
        let call = sqlx::query("select * from start_command($1, $2)").bind(command).bind(token);
        call.fetch_one(&mut self.db).await.map_err(|error| refusal(&error))
    }

    async fn renew(&mut self, command: Uuid, token: Option<i64>) -> Answer {
        let call = sqlx::query("select * from renew_lease($1, 600, $2)").bind(command).bind(token);
        call.fetch_one(&mut self.db).await.map_err(|error| refusal(&error))
    }

    async fn complete(&mut self, command: Uuid, token: Option<i64>) -> Answer {
        let call = sqlx::query("select * from complete_command($1, 0, 'out', 'err', $2)").bind(command).bind(token);
        call.fetch_one(&mut self.db).await.map_err(|error| refusal(&error))
    }

    async fn fail(&mut self, command: Uuid, token: Option<i64>) -> Answer {
        let call = sqlx::query("select * from fail_command($1, 3, 'out', 'err', 'no', $2)").bind(command).bind(token);
        call.fetch_one(&mut self.db).await.map_err(|error| refusal(&error))
    }

    async fn show(&mut self, command: Uuid) -> PgRow {
        let query = sqlx::query("select * from agent_commands where id = $1").bind(command);
        query.fetch_one(&mut self.db).await.expect("it is the runner's own")
    }

    async fn status(&mut self, command: Uuid) -> String {
        self.show(command).await.get("status")
    }
}

#[tokio::test]
async fn a_command_goes_from_the_ui_to_its_end_and_is_the_same_in_every_view() {
    let gateway = Gateway::new().await;
    action_kind(&gateway.fleet).await;
    let mut runner = gateway.runner().await;
    assert_eq!(runner.lease().await, None);
    let id = gateway.insert("provision", json!({"agent": "a", "n": 1.50, "big": 1e21})).await;
    assert_eq!(runner.status(id).await, "pending");

    let leased = runner.lease().await.expect("one waits");
    assert_eq!(leased.0, id);
    assert_eq!(runner.lease().await, None, "it is taken");
    assert_eq!(runner.status(id).await, "leased");
    assert_eq!(gateway.fleet.state(&CommandId::from_uuid(id)).await.0, "dispatched");
    let started = runner.start(id, Some(leased.1)).await.expect("it may start");
    assert_eq!(started.get::<String, _>("status"), "running");
    assert_eq!(gateway.fleet.state(&CommandId::from_uuid(id)).await.0, "running");
    let done = runner.complete(id, Some(leased.1)).await.expect("it is done");
    assert_eq!(done.get::<String, _>("status"), "done");
    assert_eq!((done.get("stdout"), done.get("stderr"), done.get("exit_code")), ("out", "err", 0));
    assert_eq!(done.get::<Option<String>, _>("error"), None);
    assert_eq!(done.get::<String, _>("requested_by"), "postgres");
    assert!(done.get::<String, _>("leased_by").starts_with(&gateway.login));
    assert_eq!(done.get::<String, _>("action"), "provision");
    assert_eq!(gateway.fleet.state(&CommandId::from_uuid(id)).await, ("succeeded".into(), String::new()));
    let topics: Vec<_> = gateway.fleet.events().await.into_iter().map(|(topic, _)| topic).collect();
    assert_eq!(topics, ["node.command.queued", "command.settled"]);
}

#[tokio::test]
async fn what_is_inserted_is_stored_as_the_api_stores_it() {
    let gateway = Gateway::new().await;
    action_kind(&gateway.fleet).await;
    for payload in [
        json!({}),
        json!({"b": [1, -2.5, 1.5e300, 1e-7, 0.000_001, 123_456_789_012_345_680_u64, 1e20, null, true, "\u{1}\"\\é😀"], "a": {}}),
        json!({"\u{e000}": 1, "😀": 2, "z": 3, "": 4, "é": 5, "aa": 6, "B": 7}),
        json!({"n": [5e-324, 0.1, 100.0, 4.35, 1e15, 1e16, 9_007_199_254_740_993_u64]}),
    ] {
        let id = gateway.insert("auth_x", payload.clone()).await;
        let query = sqlx::query("select payload::text as payload, payload_hash from commands where id = $1").bind(id);
        let row = query.fetch_one(&gateway.fleet.pool).await.expect("it is queued");
        let expected = bc_proto::canonical::to_vec(&json!({"action": "auth_x", "payload": payload})).expect("JSON");
        assert_eq!(row.get::<String, _>("payload"), String::from_utf8(expected.clone()).expect("JSON is UTF-8"));
        let hash = hex::encode(row.get::<Vec<u8>, _>("payload_hash"));
        assert_eq!(hash, bc_proto::canonical::sha256_hex(&expected));
    }
    let seqs: Vec<i64> = sqlx::query_scalar("select seq from agent_commands order by created_at, seq")
        .fetch_all(&gateway.fleet.pool)
        .await
        .expect("a database");
    assert_eq!(seqs, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_payload_that_is_no_text_hides_no_other_command() {
    let gateway = Gateway::new().await;
    action_kind(&gateway.fleet).await;
    let payload = json!({"action": "a\u{0}b", "payload": {"text": "\u{0}"}});
    let odd = NewCommand { payload, kind_digest: [9; 32], not_after: far(), ..command(&gateway.node, [9; 32]) };
    let id = odd.id.uuid();
    crate::queue::enqueue(&mut *gateway.fleet.db().await, &Signer::none(), odd, at(0)).await.expect("a database");
    gateway.insert("plain", json!({})).await;
    let mut runner = gateway.runner().await;
    let actions = "select action from agent_commands order by seq";
    let actions: Vec<String> = sqlx::query_scalar(actions).fetch_all(&mut runner.db).await.expect("all of them");
    assert_eq!(actions, ["runner.action", "plain"]);
    let (leased, token) = runner.lease().await.expect("it is leased like any other");
    assert_eq!(leased, id);
    runner.fail(id, Some(token)).await.expect("and ends like any other");
}

#[tokio::test]
async fn promise_18_a_lease_that_ran_out_settles_by_itself() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let plain = gateway.fleet.kind(Lane::Control, &[]).await;
    let safe = gateway.fleet.kind(Lane::Control, &["retry-safe"]).await;
    for (kind, is_started, is_cancelled, expected) in [
        (plain, false, false, ("pending", "")),
        (plain, true, false, ("failed", "lease-lost")),
        (safe, true, false, ("pending", "")),
        (plain, false, true, ("cancelled", "cancelled")),
        (safe, true, true, ("failed", "lease-lost")),
    ] {
        let id = gateway.enqueue(kind).await;
        let (leased, token) = runner.lease().await.expect("one waits");
        assert_eq!(leased, id.uuid());
        if is_started {
            runner.start(leased, Some(token)).await.expect("it may start");
        }
        if is_cancelled {
            let mut db = gateway.fleet.db().await;
            cancel(&mut db, &Signer::none(), gateway.fleet.tenant, id, at(1)).await.expect("a database");
        }
        assert_eq!(gateway.sweep().await, Some(0), "it has not run out");
        gateway.run_out(token).await;
        assert_eq!(gateway.sweep().await, Some(1));
        let state = gateway.fleet.state(&id).await;
        assert_eq!((state.0.as_str(), state.1.as_str()), expected);

        let before = lines(&gateway).await;
        for answer in [
            runner.start(leased, Some(token)).await,
            runner.renew(leased, Some(token)).await,
            runner.complete(leased, Some(token)).await,
            runner.fail(leased, Some(token)).await,
        ] {
            assert_eq!(answer.err(), Some(Refusal::Stale));
        }
        assert_eq!(lines(&gateway).await, before, "a stale token changes nothing");
        if expected.0 == "pending" {
            let (again, newer) = runner.lease().await.expect("it is pending again");
            assert!(again == leased && newer > token);
            assert_eq!(runner.start(again, Some(token)).await.err(), Some(Refusal::Stale));
            runner.start(again, Some(newer)).await.expect("the new lease counts");
            runner.complete(again, Some(newer)).await.expect("and ends it");
        }
    }
}

/// All that there is of commands and leases.
async fn lines(gateway: &Gateway) -> Vec<String> {
    let sql = "select a::text || coalesce((select string_agg(l::text, ',' order by token) from runner_leases l where l.seq = a.seq), '')
               from agent_commands a order by seq";
    sqlx::query_scalar(sql).fetch_all(&gateway.fleet.pool).await.expect("a database")
}

#[tokio::test]
async fn promise_18_a_heartbeat_keeps_a_lease() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let id = gateway.enqueue(gateway.fleet.kind(Lane::Bulk, &[]).await).await;
    let (leased, token) = runner.lease().await.expect("one waits, whatever its lane");
    runner.start(leased, Some(token)).await.expect("it may start");
    gateway.run_out(token).await;
    runner.renew(leased, Some(token)).await.expect("nobody has taken it back yet");
    assert_eq!(gateway.sweep().await, Some(0));
    assert_eq!(gateway.fleet.state(&id).await.0, "running");

    // One that is under way while the sweeper looks: its row is locked, so it is left alone.
    gateway.run_out(token).await;
    let mut renewal = runner.db.begin().await.expect("a transaction");
    let call = sqlx::query("select * from renew_lease($1, 600, $2)").bind(leased).bind(token);
    call.fetch_one(&mut *renewal).await.expect("it counts");
    assert_eq!(gateway.sweep().await, Some(0));
    renewal.commit().await.expect("a commit");
    assert_eq!(gateway.sweep().await, Some(0));
    runner.complete(leased, Some(token)).await.expect("it is done");
}

#[tokio::test]
async fn promise_04_a_lease_that_is_renewed_for_ever_ends_by_the_deadline() {
    let gateway = Gateway::new().await;
    let mut runner = gateway.runner().await;
    let id = gateway.enqueue(gateway.fleet.kind(Lane::Control, &[]).await).await;
    let (leased, token) = runner.lease().await.expect("one waits");
    runner.start(leased, Some(token)).await.expect("it may start");
    let mut tx = gateway.fleet.pool.begin().await.expect("a transaction");
    sweep(&mut tx, far() + Duration::minutes(1), 10).await.expect("a database");
    tx.commit().await.expect("a commit");
    assert_eq!(gateway.fleet.state(&id).await, ("failed".into(), "timeout".into()));
    assert_eq!(runner.renew(leased, Some(token)).await.err(), Some(Refusal::Over));
    gateway.run_out(token).await;
    assert_eq!(gateway.sweep().await, Some(1), "the lease is closed as well");
    assert_eq!(gateway.sweep().await, Some(0));
}

#[tokio::test]
async fn what_a_runner_leases_no_session_gets() {
    let fleet = Fleet::new().await;
    let node = NodeId::from_uuid(uuid());
    let new =
        nodes::NewNode { id: node, tenant: fleet.tenant, name: "g".into(), labels: [].into(), role: Role::Gateway };
    nodes::create(&mut *fleet.db().await, new, at(0)).await.expect("a new node");
    let said = Greeting { role: Role::Gateway, ..greeting(&node) };
    let epoch = fleet.hello(&said, at(0)).await.epoch;
    assert!(runners::assign(&mut *fleet.db().await, node, "g").await.expect("a database"));
    fleet.enqueue(&node, fleet.kind(Lane::Control, &[]).await).await;
    assert!(fleet.claim(&node, epoch, at(1)).await.is_empty(), "its session is fenced off");
    for last_epoch in [epoch, epoch + 1] {
        let mut tx = fleet.pool.begin().await.expect("a transaction");
        let said = Greeting { last_epoch, ..said.clone() };
        let said = hello(&mut tx, "here", &said, at(2));
        assert_eq!(said.await.expect("a database"), Greeted::Unknown);
    }
    let host = fleet.node().await;
    assert!(!runners::assign(&mut *fleet.db().await, host, "h").await.expect("a database"), "a host has sessions");
}
