//! `better-compute server`: a replica of the control plane.
//!
//! **Invariant:** nothing listens to the network in plain text unless its operator says that something in front of it speaks
//! TLS: tokens travel on that way.

pub mod authority;
pub(crate) mod bundles;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod pki;
pub(crate) mod remediation;
pub mod stop;
pub(crate) mod webhooks;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use bc_host::postgres::PrivatePostgres;
use bc_host::server::Listeners;
use bc_host::store;
use bc_host::tls::TlsAcceptor;
use bc_host::world::World;
use bc_telemetry::log::Format;
use clap::{Args, Subcommand};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::net::TcpListener;

use crate::{contexts, output, shell};
use config::Decided;
pub use config::Settings;

/// Connections to the database that one replica holds at most.
const CONNECTIONS: u32 = 32;

/// The arguments.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Server {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the first token of a tenant, with all grants; prints it once. The server need not run
    InitAdmin(InitAdmin),
}

#[derive(Debug, Args)]
struct InitAdmin {
    /// The tenant's name; it is made if there is none
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// Write the token to this file, for its owner alone, in place of printing it
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

impl Server {
    /// The form of the log that is asked for, where one is.
    pub fn log_format(&self) -> Option<Format> {
        self.settings.log_format
    }

    /// Does it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            None => {
                bc_host::faults::arm()?;
                let decided = self.settings.decide()?;
                let database = Database::start(&decided.database)?;
                crate::block_on(serve(decided, &database))?;
                database.stop()?;
            }
            Some(Action::InitAdmin(init)) => {
                let database = Database::start(&init.settings.database()?)?;
                let token = crate::block_on(async {
                    let pool = database.connect().await?;
                    let (tenant, token) = bc_host::api::bootstrap::admin(&pool, &init.tenant, &World::real()).await?;
                    output::complain(&format!("tenant {} is {tenant}", init.tenant));
                    pool.close().await;
                    anyhow::Ok(token)
                })?;
                database.stop()?;
                if let Some(file) = &init.to {
                    contexts::write_private(file, token.as_bytes())
                        .with_context(|| format!("{} cannot be written", file.display()))?;
                } else {
                    output::say(&token);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The database that is used, and the server of it if it is this process's own.
#[derive(Debug)]
pub struct Database {
    options: PgConnectOptions,
    private: Option<PrivatePostgres>,
}

impl Database {
    /// Starts a private server, unless a URL names another.
    fn start(database: &config::Database) -> anyhow::Result<Self> {
        match database {
            config::Database::Url(url) => {
                // The URL may hold a password, so it is not repeated.
                let options =
                    url.parse().ok().context("the database's URL cannot be read; write postgres://user@host/name")?;
                Ok(Self { options, private: None })
            }
            config::Database::Private(folder) => Self::private(folder),
        }
    }

    /// Starts a private server in a folder.
    pub fn private(folder: &std::path::Path) -> anyhow::Result<Self> {
        let private = PrivatePostgres::start(folder)?;
        Ok(Self { options: private.connect_options("postgres"), private: Some(private) })
    }

    /// Connects, and brings the schema up to date.
    pub async fn connect(&self) -> anyhow::Result<PgPool> {
        let options = store::by_keys(self.options.clone());
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await;
        let pool = pool.context("the database cannot be reached")?;
        store::migrate(&pool).await.context("the database's schema cannot be brought up to date")?;
        Ok(pool)
    }

    /// Stops a private server.
    pub fn stop(self) -> anyhow::Result<()> {
        Ok(self.private.map_or(Ok(()), PrivatePostgres::stop)?)
    }
}

async fn serve(mut decided: Decided, database: &Database) -> anyhow::Result<()> {
    let stop = stop::on_signals()?;
    let Some(state_dir) = &decided.state_dir else {
        bail!("name a folder for the certificate authority with --state-dir; all replicas use the same");
    };
    let authority =
        authority::open(state_dir, shell::random(), shell::now())?.with_node_validity(decided.node_validity);
    let pool = database.connect().await?;
    let api = if decided.config.serves_api { Some(bind(decided.api_listen, "the API").await?) } else { None };
    let listeners = Listeners {
        api,
        api_tls: decided.api_tls.as_ref().map(acceptor).transpose()?,
        gateway: bind(decided.gateway_listen, "the gateway").await?,
        metrics: match decided.metrics {
            Some(address) => Some(bind(address, "the metrics' page").await?),
            None => None,
        },
    };
    // The kernel chose the port where 0 was asked for.
    let port = listeners.gateway.local_addr()?.port();
    decided.config.gateway_url = config::gateway_url(&decided.gateway_host, port);
    let api = listeners.api.as_ref().map(TcpListener::local_addr).transpose()?;
    tracing::info!(
        api = api.map(tracing::field::display), gateway = %listeners.gateway.local_addr()?, replica = decided.config.replica,
        "the control plane serves"
    );
    bc_host::server::run(decided.config, pool.clone(), Arc::new(authority), listeners, stop).await?;
    pool.close().await;
    tracing::info!("the control plane has stopped");
    Ok(())
}

/// Speaks TLS with the certificate and the key in two files.
pub(crate) fn acceptor((certificate, key): &(PathBuf, PathBuf)) -> anyhow::Result<TlsAcceptor> {
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()));
    let (chain, secret) = (read(certificate)?, read(key)?);
    let acceptor = bc_host::tls::acceptor(&chain, &secret);
    acceptor.with_context(|| format!("{} and {} are of no use", certificate.display(), key.display()))
}

async fn bind(address: std::net::SocketAddr, what: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{what} cannot listen on {address}"))
}
