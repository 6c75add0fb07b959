//! `better-compute dev`: everything on one machine, to try it: a private Postgres, the control plane in this process, and this
//! machine as a node, with its daemon as a process of its own.
//!
//! **Invariant:** a folder's data is kept: a second `dev` on it goes on with the same database, node, token and authority.

mod daemon;
mod first;
mod layout;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bc_host::server::Listeners;
use bc_host::world::World;
use clap::Args;
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::client::{CallError, Client, Patience, Target};
use crate::contexts::{self, Context, Contexts};
use crate::server::{Database, authority, config, stop, webhooks};
use crate::{exit, output, shell};
use layout::Layout;

/// Where it listens unless that is taken or something else is said.
const API_PORT: u16 = 7070;
const GATEWAY_PORT: u16 = 7071;

/// The tenant that everything belongs to.
const TENANT: &str = "dev";

/// The arguments.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 stopped by a signal, 1 it could not start or go on. With --once, the first code of the two \
                        commands that is not 0; see `better-compute run --help`."
)]
pub struct Dev {
    /// Where everything is kept
    #[arg(long, default_value = ".dev", value_name = "DIR")]
    dir: PathBuf,
    /// End after the first two commands
    #[arg(long)]
    once: bool,
    /// The kinds to register; by default plugins/dist of the checkout
    #[arg(long, value_name = "DIR")]
    kinds: Option<PathBuf>,
    /// The stand-in for NVIDIA's library on machines without a GPU; by default the one of the same build
    #[arg(long, value_name = "FILE")]
    simulated_nvml: Option<PathBuf>,
    /// Where the API listens; by default 127.0.0.1:7070, or another port if that is taken
    #[arg(long, value_name = "ADDRESS")]
    api_listen: Option<SocketAddr>,
    /// Where the node connects; by default 127.0.0.1:7071, or another port if that is taken
    #[arg(long, value_name = "ADDRESS")]
    gateway_listen: Option<SocketAddr>,
}

impl Dev {
    /// Does it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if let Some(address) = self.api_listen.filter(|address| !address.ip().is_loopback()) {
            bail!("the API of `dev` has no TLS, so it listens on loopback alone, not on {address}");
        }
        let layout = Layout::new(&self.dir)?;
        // Held until this process ends.
        let lock =
            File::create(layout.lock()).with_context(|| format!("{} cannot be opened", layout.lock().display()))?;
        if lock.try_lock().is_err() {
            bail!("another `better-compute dev` runs in {}", self.dir.display());
        }
        output::complain("starting Postgres");
        let database = Database::private(&layout.postgres())?;
        let ended = crate::block_on(self.run(&layout, &database));
        // It is stopped also after an error, and the error comes first.
        let stopped = database.stop();
        let code = ended?;
        stopped?;
        Ok(ExitCode::from(code))
    }

    async fn run(&self, layout: &Layout, database: &Database) -> anyhow::Result<u8> {
        let asked = stop::on_signals()?;
        let pool = database.connect().await?;
        let authority = authority::open(&layout.control_plane(), shell::random(), shell::now())?;
        let api = bind(self.api_listen, API_PORT, "the API").await?;
        let url = format!("http://{}", api.local_addr()?);
        let listeners = Listeners {
            api: Some(api),
            api_tls: None,
            gateway: bind(self.gateway_listen, GATEWAY_PORT, "the gateway").await?,
            metrics: None,
        };
        let gateway = listeners.gateway.local_addr()?;
        let gateway_url = config::gateway_url(&reachable(gateway.ip()).to_string(), gateway.port());
        let replica = format!("dev-{}", hex::encode(shell::random::<4>()));
        let mut config = config::local(replica, gateway_url.clone(), layout.control_plane().join("cache"));
        config.webhooks = Some(webhooks::local(&layout.control_plane().join("webhooks.key"))?);
        let stop = CancellationToken::new();
        let mut control =
            tokio::spawn(bc_host::server::run(config, pool.clone(), Arc::new(authority), listeners, stop.clone()));
        let code = tokio::select! {
            code = self.with_node(layout, &pool, &url, &gateway_url, &asked) => code,
            ended = &mut control => {
                ended.context("the control plane panicked")??;
                bail!("the control plane ended by itself");
            }
        };
        stop.cancel();
        control.await.context("the control plane panicked")??;
        pool.close().await;
        code
    }

    /// The part in front of the control plane: its client, and the node.
    async fn with_node(
        &self,
        layout: &Layout,
        pool: &PgPool,
        url: &str,
        gateway_url: &str,
        asked: &CancellationToken,
    ) -> anyhow::Result<u8> {
        let client = Arc::new(admin(layout, pool, url).await?);
        let kinds = Layout::kinds(self.kinds.as_deref())?;
        let kinds = first::register(&client, kinds).await?;
        let gpus = layout.prepare_node(gateway_url, &kinds, self.simulated_nvml.as_deref()).await?;
        let node = first::join(&client, layout, gateway_url).await?;
        let stop = CancellationToken::new();
        // The daemon is started from this very thread, which lives as long as the process: it ends with it.
        let supervised = daemon::supervise(layout, stop.clone());
        let served = async {
            let served = tokio::select! {
                served = self.serve(&client, layout, &node, gpus, url, gateway_url, asked) => served,
                // Whoever interrupts the start wants it to end, too.
                () = asked.cancelled() => Ok(0),
            };
            stop.cancel();
            served
        };
        let (served, supervised) = tokio::join!(served, supervised);
        let code = served?;
        supervised?;
        Ok(code)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one small world, each needed once")]
    async fn serve(
        &self,
        client: &Arc<Client>,
        layout: &Layout,
        node: &str,
        gpus: layout::Gpus,
        url: &str,
        gateway_url: &str,
        asked: &CancellationToken,
    ) -> anyhow::Result<u8> {
        first::connected(client, node, layout).await?;
        first::label(client, node, gpus).await?;
        let mut code = 0;
        for kind in ["diag.nvml", "inventory.refresh"] {
            output::complain(&format!("\n=== {kind} on this machine{}\n", gpus.remark()));
            let ending = first::run(client, node, kind).await?;
            code = if code == 0 { exit::code(ending) } else { code };
        }
        if self.once {
            return Ok(code);
        }
        output::complain(&layout.summary(url, gateway_url, node));
        asked.cancelled().await;
        Ok(0)
    }
}

/// A client with all grants: by the token that is there, or a new one. Its context is written beside.
async fn admin(layout: &Layout, pool: &PgPool, url: &str) -> anyhow::Result<Client> {
    let target = |token: String, tenant| Target { url: url.to_owned(), token: Some(token), tenant, ca_file: None };
    if let Ok(token) = std::fs::read_to_string(layout.token()) {
        let client = Client::new(target(token.trim().to_owned(), None), Patience::default())?;
        match client.whoami().await {
            Ok(caller) => {
                write_context(layout, url, &caller.tenant_id)?;
                return Ok(client);
            }
            // Of another database, or revoked.
            Err(CallError::Refused(refusal)) if refusal.code == "UNAUTHENTICATED" => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (tenant, token) = bc_host::api::bootstrap::admin(pool, TENANT, &World::real()).await?;
    let path = layout.token();
    contexts::write_private(&path, token.as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))?;
    write_context(layout, url, &tenant.to_string())?;
    Client::new(target(token, Some(tenant.to_string())), Patience::default())
}

fn write_context(layout: &Layout, url: &str, tenant: &str) -> anyhow::Result<()> {
    let context = Context {
        url: url.to_owned(),
        token_file: Some(layout.token()),
        tenant: Some(tenant.to_owned()),
        ..Context::default()
    };
    let contexts = [("dev".to_owned(), context)].into();
    Contexts { current: Some("dev".into()), contexts }.write(&layout.context())
}

async fn bind(wanted: Option<SocketAddr>, port: u16, what: &str) -> anyhow::Result<TcpListener> {
    let usual = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let address = wanted.unwrap_or(usual);
    match TcpListener::bind(address).await {
        Err(error) if wanted.is_none() && error.kind() == std::io::ErrorKind::AddrInUse => {
            output::complain(&format!("{address} is taken; {what} takes another port"));
            TcpListener::bind(SocketAddr::new(usual.ip(), 0)).await
        }
        bound => bound,
    }
    .with_context(|| format!("{what} cannot listen on {address}"))
}

/// The address by which this machine reaches what listens there.
fn reachable(address: IpAddr) -> IpAddr {
    if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address }
}
