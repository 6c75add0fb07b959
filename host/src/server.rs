//! One replica of the control plane: API, gateway and loops over one database.
//!
//! **Invariant:** a replica that stops or is killed takes nothing with it: what it said was durable before it said so.

use std::future::IntoFuture as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bc_proto::rules::remediation::Limits;
use bc_runtime::Engine;
use bc_telemetry::page::Recorder;
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::bus::Bus;
use crate::gateway::{self, Gateway};
use crate::loops;
use crate::modules::{metal, remediation, rollout};
use crate::pki::Authority;
use crate::registry::Registry;
use crate::tls::Https;
use crate::trust::{self, Signer};
use crate::vault::Vault;
use crate::world::World;
use crate::{api, audit, bundles, metrics, web, webhooks};

/// What the operator of the control plane decides.
#[derive(Debug, Clone)]
pub struct Config {
    /// Tells this replica from others, in logs and in the database: unique among those that run.
    pub replica: String,
    /// Where nodes join, as it stands in what `nodes.createJoinToken` answers: `https://host:port`.
    pub gateway_url: String,
    /// Other names and addresses by which nodes reach this replica. The gateway's certificate names them beside the URL's host.
    pub gateway_hosts: Vec<String>,
    /// The largest payload of a command, bytes of its canonical JSON.
    pub max_payload_bytes: usize,
    /// The largest component that can be registered, bytes.
    pub max_component_bytes: usize,
    /// How long sessions are served after a stop was asked for.
    pub drain: Duration,
    /// The folder for compiled kinds.
    pub cache_dir: std::path::PathBuf,
    /// What is signed, who approves, whom nodes trust.
    pub pki: trust::Settings,
    /// Whether it serves the API. One that does not is a gateway alone: it decides nothing, and so it must not hold what signs.
    pub serves_api: bool,
    /// The folder with secrets' values, where this replica may read them; without it, other replicas seal.
    pub secrets_dir: Option<std::path::PathBuf>,
    /// Where support bundles go; without it no command uploads anything.
    pub bundles: Option<bundles::Settings>,
    /// How far nodes are mended without being asked; without it they are not.
    pub remediation: Option<Limits>,
    /// How events are sent to webhooks; without it there are none.
    pub webhooks: Option<webhooks::Settings>,
}

/// Where it listens. Whoever binds them knows their ports.
pub struct Listeners {
    /// HTTP, for the API; absent where only nodes are served.
    pub api: Option<TcpListener>,
    /// Speaks TLS on it; without, the API is plain HTTP.
    pub api_tls: Option<TlsAcceptor>,
    /// gRPC over mutual TLS, for nodes.
    pub gateway: TcpListener,
    /// HTTP, for Prometheus; absent where nothing is measured.
    pub metrics: Option<TcpListener>,
}

/// Why a replica ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// The network.
    #[error("cannot listen")]
    Listen(#[from] std::io::Error),
    /// The gateway.
    #[error(transparent)]
    Gateway(#[from] gateway::ServeError),
    /// A gateway alone that was given a key.
    #[error("a replica without the API relays what others signed, and must not hold pki.command-signing")]
    GatewaySigns,
    /// The store of support bundles.
    #[error(transparent)]
    Bundles(#[from] bundles::BadSettings),
    /// What webhooks are sent with.
    #[error(transparent)]
    Webhooks(#[from] webhooks::BadSettings),
    /// What counts.
    #[error(transparent)]
    Metrics(#[from] bc_telemetry::page::NotInstalled),
    /// The engine for kinds.
    #[error(transparent)]
    Engine(#[from] bc_runtime::SetUpError),
}

/// Serves until it is to stop, then drains. The database is migrated before.
pub async fn run(
    config: Config,
    pool: PgPool,
    authority: Arc<Authority>,
    listeners: Listeners,
    stop: CancellationToken,
) -> Result<(), Error> {
    if !config.serves_api && config.pki.signs() {
        return Err(Error::GatewaySigns);
    }
    // Before anything is counted.
    let measured = listeners.metrics.map(|listener| Ok::<_, Error>((Recorder::install()?, listener))).transpose()?;
    let store = config.bundles.clone().map(bundles::Store::new).transpose()?;
    let world = World::real();
    // What serves sessions goes on while they drain.
    let ended = CancellationToken::new();
    let _guard = ended.clone().drop_guard();
    let bus = Bus::connect(&pool, &config.replica, ended.clone());
    // Before anything settles: a month whose rows lie in the default partition gets none of its own.
    loops::make_partitions(&pool, &world).await?;
    loops::start(&pool, &bus, &world, &ended);
    if config.serves_api {
        trust::bundle::publish_and_say(&pool, &bus, &config.pki, &config.replica, &world).await?;
        tokio::spawn(trust::bundle::watch(pool.clone(), bus.clone(), config.pki.clone(), ended.clone()));
    }
    let signer = Signer::of(&config.pki, &world);
    audit::start(&pool, &bus, &signer, &world, &ended);
    // What decides stands where the API does: it has the signer.
    if let (true, Some(limits)) = (config.serves_api, &config.remediation) {
        let (pki, limits) = (config.pki.clone(), limits.clone());
        let (pool, bus, world, signer) = (pool.clone(), bus.clone(), world.clone(), signer.clone());
        remediation::start(remediation::Module { pool, bus, world, signer, pki, limits }, &ended);
    }
    if config.serves_api {
        {
            let (pool, bus, world, signer) = (pool.clone(), bus.clone(), world.clone(), signer.clone());
            rollout::start(rollout::Module { pool, bus, world, signer }, &ended);
        }
        let (pool, bus, world) = (pool.clone(), bus.clone(), world.clone());
        let (signer, pki) = (signer.clone(), config.pki.clone());
        metal::start(metal::Module { pool, bus, world, signer, pki }, &ended);
    }
    if let (true, Some(settings)) = (config.serves_api, &config.webhooks) {
        webhooks::start(webhooks::Module::new(pool.clone(), bus.clone(), world.clone(), settings)?, &ended);
    }
    let settings = gateway::Settings {
        replica: config.replica.clone(),
        hosts: hosts(&config.gateway_url, &config.gateway_hosts),
        heartbeat: gateway::HEARTBEAT,
        bundles: store.clone(),
    };
    let gateway =
        Gateway::start(settings, pool.clone(), bus.clone(), authority.clone(), world.clone(), ended.clone()).await?;
    if let Some((recorder, listener)) = measured {
        let states = metrics::States { pool: pool.clone(), gateway: gateway.clone(), world: world.clone() };
        recorder.serve(listener, states.look(), ended.clone());
    }
    let serving_nodes = gateway.serve(listeners.gateway, ended.clone());
    tokio::pin!(serving_nodes);
    if let Some(dir) = &config.secrets_dir {
        let vault = Vault::new(pool.clone(), bus.clone(), world.clone(), signer.clone(), dir.clone());
        vault.start(&ended);
    }
    let engine = Engine::new(&bc_runtime::Config { cache_dir: Some(config.cache_dir.clone()), ..Default::default() })?;
    let app = api::App::new(api::Parts {
        pool,
        bus,
        registry: Registry::new(engine),
        authority_sha256: Sha256::digest(authority.certificate_der()).into(),
        world: world.clone(),
        signer,
        bundles: store,
        stop: stop.clone(),
        config: config.clone(),
    });
    let mut serving_api = match listeners.api {
        Some(listener) => {
            let router = web::router(app, listeners.api_tls.is_some());
            serve_api(listener, listeners.api_tls, router, stop.clone())?
        }
        None => Box::pin(std::future::pending()),
    };
    let until_stop = async {
        tokio::select! {
            ended = &mut serving_nodes => ended.map_err(Error::from),
            ended = &mut serving_api => ended.map_err(Error::from),
            () = stop.cancelled() => Ok(()),
        }
    };
    let outcome = until_stop.await;
    if stop.is_cancelled() {
        let drained = async {
            gateway.drain(config.drain).await;
            ended.cancel();
        };
        let (served, ()) = tokio::join!(&mut serving_nodes, drained);
        served?;
    }
    outcome
}

/// Serves the API until it is to stop.
fn serve_api(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: axum::Router,
    stop: CancellationToken,
) -> std::io::Result<Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>> {
    let stopped = stop.cancelled_owned();
    Ok(match tls {
        None => Box::pin(axum::serve(listener, router).with_graceful_shutdown(stopped).into_future()),
        Some(acceptor) => {
            let listener = Https::listen(listener, acceptor)?;
            Box::pin(axum::serve(listener, router).with_graceful_shutdown(stopped).into_future())
        }
    })
}

/// All hosts that the gateway's certificate names, each once.
fn hosts(url: &str, others: &[String]) -> Vec<String> {
    let mut hosts: Vec<_> = host_of(url).into_iter().collect();
    for host in others {
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    hosts
}

/// The host in `https://host:port`, for the gateway's certificate.
fn host_of(url: &str) -> Option<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_of_the_gateway_is_named_once() {
        let others = ["10.0.0.1", "gw.example"].map(String::from);
        assert_eq!(hosts("https://gw.example:7443", &others), ["gw.example", "10.0.0.1"]);
    }

    #[test]
    fn the_host_of_an_address_is_what_stands_before_its_port() {
        for (url, host) in [
            ("https://gw.example:7443", Some("gw.example")),
            ("https://127.0.0.1:1/", Some("127.0.0.1")),
            ("https://[::1]:7443", Some("::1")),
            ("gw", Some("gw")),
            ("https://:1", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }
}
