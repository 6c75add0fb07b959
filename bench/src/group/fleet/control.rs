//! A control plane: replicas over one database, in this process, and their clients.
//!
//! **Invariant:** it is used by its API and by its gateways' ports alone; only the wait for the last settle reads its tables.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bc_host::api::bootstrap;
use bc_host::api::types::{Command, CreateJoinToken, JoinToken, Kind, Node, NodeRef, RegisterKind, RunCommand};
use bc_host::pki::Authority;
use bc_host::server::{self, Config, Listeners};
use bc_host::store;
use bc_host::world::World;
use better_compute::client::{Client, Patience, Target};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::queue::Site;
use super::KIND;

/// Connections of a replica. Four replicas with more would not fit the server beside the rest.
const CONNECTIONS: u32 = 16;

/// How long a daemon may take to connect.
const CONNECT: Duration = Duration::from_mins(2);

/// Replicas, and who may ask them.
pub(super) struct Control {
    pub(super) tenant: String,
    pub(super) replicas: Vec<Replica>,
    pool: PgPool,
    stop: CancellationToken,
}

/// One replica.
pub(super) struct Replica {
    /// A client of its API that may do everything.
    pub(super) client: Arc<Client>,
    /// Where its gateway is.
    pub(super) gateway: String,
    task: JoinHandle<Result<(), server::Error>>,
}

impl Control {
    /// Starts replicas over a new database, with the no-op kind registered.
    pub(super) async fn start(
        site: &Site,
        folder: &Path,
        name: &str,
        count: usize,
        kind: &Path,
    ) -> anyhow::Result<Self> {
        let options = site.database(name).await?;
        let pool =
            PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(store::by_keys(options.clone())).await?;
        store::migrate(&pool).await?;
        let world = World::real();
        let (tenant, token) = bootstrap::admin(&pool, "bench", &world).await?;
        let authority = Arc::new(Authority::create(world.bytes(), world.now())?.0);
        let stop = CancellationToken::new();
        let mut replicas = Vec::with_capacity(count);
        for at in 0..count {
            let api = TcpListener::bind("127.0.0.1:0").await?;
            let url = format!("http://{}", api.local_addr()?);
            let listeners = Listeners {
                api: Some(api),
                gateway: TcpListener::bind("127.0.0.1:0").await?,
                api_tls: None,
                metrics: None,
            };
            let gateway = format!("https://{}", listeners.gateway.local_addr()?);
            let config = Config {
                replica: format!("{name}-{at}"),
                gateway_url: gateway.clone(),
                gateway_hosts: Vec::new(),
                max_payload_bytes: 1 << 20,
                max_component_bytes: 64 << 20,
                drain: Duration::from_millis(100),
                cache_dir: folder.join(format!("{name}-cache")),
                pki: bc_host::trust::Settings::default(),
                serves_api: true,
                secrets_dir: None,
                bundles: None,
                remediation: None,
                webhooks: None,
            };
            let own =
                PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(store::by_keys(options.clone())).await?;
            let task = tokio::spawn(server::run(config, own, authority.clone(), listeners, stop.clone()));
            let (token, tenant) = (Some(token.clone()), Some(tenant.to_string()));
            let client = Client::new(Target { url, token, tenant, ca_file: None }, Patience::default())?;
            replicas.push(Replica { client: Arc::new(client), gateway, task });
        }
        let control = Self { tenant: tenant.to_string(), replicas, pool, stop };
        let query = RegisterKind { activate: true, exposed: Some(true), ..RegisterKind::default() };
        control.client(0).register(&query, std::fs::read(kind)?).await.map(|_: Kind| ())?;
        Ok(control)
    }

    /// A client of one of the replicas.
    pub(super) fn client(&self, at: usize) -> &Arc<Client> {
        &self.replicas[at % self.replicas.len()].client
    }

    /// A token that one machine can join with.
    pub(super) async fn join_token(&self) -> anyhow::Result<String> {
        let request = CreateJoinToken {
            tenant_id: self.tenant.clone(),
            node_id: None,
            expires_in_seconds: Some(600),
            allowed_kinds: None,
        };
        Ok(self.client(0).call::<JoinToken>("nodes.createJoinToken", &request).await?.token)
    }

    /// Waits until a node is connected.
    pub(super) async fn connected(&self, node: &str) -> anyhow::Result<Node> {
        let request = NodeRef { tenant_id: self.tenant.clone(), node_id: node.to_owned() };
        let looked = async {
            loop {
                let found: Node = self.client(0).call("nodes.get", &request).await?;
                if found.connected {
                    return anyhow::Ok(found);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(CONNECT, looked).await.with_context(|| format!("{node} did not connect"))?
    }

    /// Asks a replica for one run on a node.
    pub(super) async fn run(&self, at: usize, node: &str) -> anyhow::Result<Command> {
        let request = RunCommand {
            tenant_id: self.tenant.clone(),
            node_id: node.to_owned(),
            kind: KIND.to_owned(),
            payload: serde_json::json!({}),
            idempotency_key: super::super::queue::uuid().to_string(),
            not_after_seconds: None,
            batch_id: None,
            min_generation: None,
        };
        Ok(self.client(at).call("commands.run", &request).await?)
    }

    /// Waits until nothing is open any more.
    pub(super) async fn all_settled(&self) -> anyhow::Result<()> {
        let open = "select exists (select from ready) or exists (select from in_flight)";
        while sqlx::query_scalar(open).fetch_one(&self.pool).await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// How many have succeeded, and how many ended otherwise.
    pub(super) async fn ended(&self) -> anyhow::Result<(i64, i64)> {
        let counts = "select count(*) filter (where state = 'succeeded'), count(*) filter (where state <> 'succeeded')
                      from settled";
        Ok(sqlx::query_as(counts).fetch_one(&self.pool).await?)
    }

    /// Stops all replicas.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        for replica in self.replicas {
            replica.task.await??;
        }
        self.pool.close().await;
        Ok(())
    }
}
