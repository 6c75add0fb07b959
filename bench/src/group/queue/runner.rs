//! A9: a gateway that holds no session: from the insert of a command to its lease, and what waiting costs the database.
//!
//! Ours is the SQL contract that `bcd runner` and any other client use: `LISTEN`, and `lease_command` when told. A peer's worker
//! is the one of its own library, with its own notification.
//!
//! **Invariant:** every command is leased, started and completed by a login that can do nothing else.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bc_host::store::{kinds, nodes, runners};
use bc_proto::id::NodeId;
use bc_proto::manifest::{Manifest, Role};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::types::Uuid;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::mpsc;

use super::contest::{Contest, Measure};
use super::plane::{MANIFEST, Plane, now, uuid};
use super::rates::{ROUNDS, rest};
use super::{Setting, Site};
use crate::bench::Bench;
use crate::figure::Figure;

const SLUG: &str = "bench";
const LOGIN: &str = "bench_runner";

/// How long the server is left alone before its transactions are counted.
const SETTLING: Duration = Duration::from_secs(2);

/// A gateway, and who leases for it.
struct Gateway {
    owner: PgConnectOptions,
    runner: PgConnectOptions,
}

impl Gateway {
    async fn new(site: &Site) -> anyhow::Result<Self> {
        let plane = Plane::new(site, "runner", 1).await?;
        let mut db = PgConnection::connect_with(&plane.options).await?;
        let manifest = MANIFEST.replace("bench.noop", "runner.action").replace("['host']", "['gateway']");
        kinds::activate(&mut db, [8; 32], &Manifest::from_toml(&manifest)?, b"\0asm", now()).await?;
        let node = NodeId::from_uuid(uuid());
        let (tenant, name) = (plane.tenant, SLUG.to_owned());
        nodes::create(
            &mut db,
            nodes::NewNode { id: node, tenant, name, labels: [].into(), role: Role::Gateway },
            now(),
        )
        .await?;
        sqlx::raw_sql("drop role if exists bench_runner; create role bench_runner login; grant better_compute_runner to bench_runner")
            .execute(&mut db)
            .await?;
        runners::assign(&mut db, node, SLUG).await?;
        runners::allow(&mut db, LOGIN, node).await?;
        Ok(Self { runner: plane.options.clone().username(LOGIN), owner: plane.options })
    }

    /// From the insert to the answer of `lease_command`, so many times.
    async fn hand_overs(&self, turns: usize) -> anyhow::Result<Vec<Duration>> {
        let mut listener = PgListener::connect_with(&PgPool::connect_with(self.runner.clone()).await?).await?;
        listener.listen("better_compute_runner").await?;
        let mut db = PgConnection::connect_with(&self.runner).await?;
        let (tell, mut told) = mpsc::unbounded_channel();
        let runner = tokio::spawn(async move {
            for _ in 0..turns {
                let (id, token) = loop {
                    let row = sqlx::query_as::<_, (Uuid, i64)>("select id, lease_token from lease_command($1, 60)");
                    match row.bind(SLUG).fetch_optional(&mut db).await? {
                        Some(row) => break row,
                        None => drop(listener.recv().await?),
                    }
                };
                tell.send(Instant::now())?;
                sqlx::query("select start_command($1, $2)").bind(id).bind(token).execute(&mut db).await?;
                sqlx::query("select complete_command($1, 0, '', '', $2)").bind(id).bind(token).execute(&mut db).await?;
            }
            anyhow::Ok(())
        });
        let mut owner = PgConnection::connect_with(&self.owner).await?;
        let mut took = Vec::with_capacity(turns);
        for turn in 0..turns {
            rest(turn).await;
            let started = Instant::now();
            sqlx::query("insert into agent_commands (gateway_slug, action, payload) values ($1, 'noop', $2)")
                .bind(SLUG)
                .bind(json!({ "n": 1.5, "text": "a payload of the usual size" }))
                .execute(&mut owner)
                .await?;
            took.push(told.recv().await.context("the runner ended")? - started);
        }
        runner.await??;
        let open: i64 = sqlx::query_scalar("select count(*) from agent_commands where status <> 'done'")
            .fetch_one(&mut owner)
            .await?;
        ensure!(open == 0, "{open} commands are not done");
        Ok(took)
    }

    /// Transactions in the database over some time in which one runner waits.
    async fn waiting(&self, time: Duration) -> anyhow::Result<f64> {
        let mut listener = PgListener::connect_with(&PgPool::connect_with(self.runner.clone()).await?).await?;
        listener.listen("better_compute_runner").await?;
        // What it did so far counts now, and not while it waits.
        sqlx::raw_sql("select pg_stat_force_next_flush()").execute(&mut listener).await?;
        // From another database: looking is no transaction of the one that is looked at.
        let database = self.owner.get_database().context("it has a name")?.to_owned();
        let mut db = PgConnection::connect_with(&self.owner.clone().database("postgres")).await?;
        // Backends that end after the turns before tell their last transactions only then.
        tokio::time::sleep(SETTLING).await;
        let before = transactions(&mut db, &database).await?;
        tokio::time::sleep(time).await;
        Ok((transactions(&mut db, &database).await? - before) / time.as_secs_f64().max(0.1))
    }
}

async fn transactions(db: &mut PgConnection, database: &str) -> anyhow::Result<f64> {
    let sql = "select (xact_commit + xact_rollback)::float8 from pg_stat_database where datname = $1";
    Ok(sqlx::query_scalar(sql).bind(database).fetch_one(db).await?)
}

pub(in super::super) fn leased(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting: &Setting = bench.setting()?;
    let turns = setting.size.turns;
    let gateway = bench.runtime.block_on(Gateway::new(&setting.site))?;
    let ours: Measure<'_> = Box::new(|| bench.runtime.block_on(gateway.hand_overs(turns)));
    let floor: Measure<'_> = Box::new(|| bench.runtime.block_on(setting.raw.notify(turns, rest)));
    let contest = Contest::hold(setting, bench.rounds(ROUNDS), Some("idle"), setting.size, ours, Some(floor))?;
    let name = "A9 idle gateway without a session, insert until leased, p50 / p99";
    let mut figures = vec![contest.latencies(setting, "A9", name, (3.0, 1.0))];
    let waiting = bench.runtime.block_on(gateway.waiting(setting.size.time))?;
    let mut of_peers = Vec::new();
    // The others' workers poll by design, at the pace that they are told.
    let told = setting.peers().into_iter().flatten().filter(|it| matches!(it.name, "graphile-worker" | "pg-boss"));
    for peer in told {
        match peer.waiting(setting.size) {
            Ok(rate) => of_peers.push(format!("{} {rate:.1} /s", peer.name)),
            Err(error) => setting.note(format!("{}: {error:#}", peer.name)),
        }
    }
    let peers = (!of_peers.is_empty()).then(|| of_peers.join(", "));
    figures.push(Figure::of(
        "A9 transactions while nothing is to do, less the fallback poll",
        format!("{waiting:.1} /s"),
        None,
        peers,
        String::new(),
        "0".to_owned(),
        Some(waiting < 0.05),
    ));
    Ok(figures)
}
