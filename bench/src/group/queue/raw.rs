//! Floors: the least that Postgres can be asked to do for the same.
//!
//! **Invariant:** what a floor leaves out is a contract that the queue keeps; it is just as durable.

use std::io::Write;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgListener;
use sqlx::types::Uuid;
use sqlx::{Connection, PgConnection, PgPool};

use super::plane::{payload, uuid};
use super::site::Site;

const DATABASE: &str = "raw";

/// One table with a primary key for single rows, one with the four indexes of `commands` and `ready` for many.
const TABLES: &str = "
create table plain (
    id bigint generated always as identity primary key, node int not null, payload json not null,
    state text not null default 'ready', created_at timestamptz not null default now(), settled_at timestamptz
) with (fillfactor = 80);
create table indexed (
    id uuid primary key, node uuid not null, seq bigint not null, key text not null, payload json not null,
    hash bytea not null, created_at timestamptz not null default now(), unique (node, seq), unique (node, key)
);
create index on indexed (node, created_at, seq);
";

const INSERT: &str = r#"
\set node random(1, 1024)
insert into plain (node, payload) values (:node, '{"n":1.5,"text":"a payload of the usual size"}')"#;

const UPDATE: &str = "update plain set state = 'settled', settled_at = now() where id = :id;\n";

/// A database with those tables.
pub(super) struct Raw {
    site: Rc<Site>,
}

impl Raw {
    pub(super) async fn new(site: Rc<Site>) -> anyhow::Result<Self> {
        site.database(DATABASE).await?;
        sqlx::raw_sql(TABLES).execute(&mut site.connect(DATABASE).await?).await?;
        Ok(Self { site })
    }

    async fn empty(&self) -> anyhow::Result<PgConnection> {
        let mut db = self.site.connect(DATABASE).await?;
        sqlx::raw_sql("truncate plain, indexed").execute(&mut db).await?;
        Ok(db)
    }

    /// Inserts by pgbench, a second.
    pub(super) async fn inserts(&self, clients: usize, time: Duration) -> anyhow::Result<f64> {
        self.empty().await?;
        self.pgbench(clients, time, &format!("{INSERT};\n"))
    }

    /// Inserts by pgbench, each row updated once by a transaction of its own, a second.
    pub(super) async fn inserts_and_updates(&self, clients: usize, time: Duration) -> anyhow::Result<f64> {
        self.empty().await?;
        self.pgbench(clients, time, &format!("{INSERT} returning id \\gset\n{UPDATE}"))
    }

    /// How often a second pgbench ran the script. It counts whole seconds; a shorter time is a few turns.
    fn pgbench(&self, clients: usize, time: Duration, script: &str) -> anyhow::Result<f64> {
        let mut pgbench = self.site.server().program("pgbench");
        let clients = clients.to_string();
        pgbench.args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--file=-", "--username=postgres"]);
        pgbench.arg("--client").arg(clients).arg("--host").arg(self.site.server().folder());
        match time.as_secs() {
            0 => pgbench.arg("--transactions=3"),
            seconds => pgbench.arg("--time").arg(seconds.to_string()),
        };
        pgbench.arg(DATABASE).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pgbench.spawn().context("pgbench does not start")?;
        child.stdin.take().expect("it is piped").write_all(script.as_bytes())?;
        let output = child.wait_with_output()?;
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "pgbench failed: {errors}");
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.with_context(|| format!("pgbench says no rate: {said}"))
    }

    /// Rows inserted by UNNEST, a second.
    pub(super) async fn unnest(&self, clients: usize, bulk: usize, time: Duration) -> anyhow::Result<f64> {
        self.empty().await?;
        let connections = try_join_all((0..clients).map(|_| self.site.connect(DATABASE))).await?;
        let nodes: Vec<Uuid> = (0..1024).map(|_| uuid()).collect();
        let slice = nodes.len() / clients;
        let started = Instant::now();
        let client = async |(client, mut db): (usize, PgConnection)| {
            let mut done = 0;
            while done == 0 || started.elapsed() < time {
                let rows = Rows::new(bulk, done, &nodes[client * slice..(client + 1) * slice]);
                rows.insert(&mut db).await?;
                done += bulk;
            }
            anyhow::Ok(done)
        };
        let done: usize = try_join_all(connections.into_iter().enumerate().map(client)).await?.into_iter().sum();
        Ok(done as f64 / started.elapsed().as_secs_f64())
    }

    /// From the insert of a row to the notification of it.
    pub(super) async fn notify(&self, turns: usize, rest: impl AsyncFn(usize)) -> anyhow::Result<Vec<Duration>> {
        let mut db = self.empty().await?;
        let pool = PgPool::connect_with(self.site.server().connect_options(DATABASE)).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen("plain").await?;
        let mut took = Vec::with_capacity(turns);
        for turn in 0..turns {
            rest(turn).await;
            let started = Instant::now();
            let mut tx = db.begin().await?;
            sqlx::query("insert into plain (node, payload) values (1, $1)").bind(payload()).execute(&mut *tx).await?;
            sqlx::query("select pg_notify('plain', '')").execute(&mut *tx).await?;
            tx.commit().await?;
            listener.recv().await?;
            took.push(started.elapsed());
        }
        Ok(took)
    }
}

/// Rows, column by column.
struct Rows {
    ids: Vec<Uuid>,
    nodes: Vec<Uuid>,
    seqs: Vec<i64>,
    keys: Vec<String>,
    payloads: Vec<String>,
    hashes: Vec<Vec<u8>>,
}

impl Rows {
    fn new(bulk: usize, before: usize, nodes: &[Uuid]) -> Self {
        let mut rows = Self {
            ids: Vec::with_capacity(bulk),
            nodes: Vec::with_capacity(bulk),
            seqs: Vec::with_capacity(bulk),
            keys: Vec::with_capacity(bulk),
            payloads: Vec::with_capacity(bulk),
            hashes: Vec::with_capacity(bulk),
        };
        for at in before..before + bulk {
            let (id, payload) = (uuid(), payload().to_string());
            rows.ids.push(id);
            rows.nodes.push(nodes[at % nodes.len()]);
            rows.seqs.push(i64::try_from(at / nodes.len()).unwrap_or(i64::MAX));
            rows.keys.push(format!("bench:{id}"));
            rows.hashes.push(Sha256::digest(&payload).to_vec());
            rows.payloads.push(payload);
        }
        rows
    }

    async fn insert(&self, db: &mut PgConnection) -> anyhow::Result<()> {
        let insert = "insert into indexed (id, node, seq, key, payload, hash)
             select id, node, seq, key, payload::json, hash
             from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::bytea[])
                 as t (id, node, seq, key, payload, hash)";
        sqlx::query(insert)
            .bind(&self.ids)
            .bind(&self.nodes)
            .bind(&self.seqs)
            .bind(&self.keys)
            .bind(&self.payloads)
            .bind(&self.hashes)
            .execute(db)
            .await?;
        Ok(())
    }
}
