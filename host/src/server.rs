//! One replica of the control plane: API, gateway and loops over one database.
//!
//! **Invariant:** a replica that stops or is killed takes nothing with it: what it said was durable before it said so.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use bc_runtime::Engine;
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::bus::Bus;
use crate::gateway::{self, Gateway};
use crate::loops;
use crate::pki::Authority;
use crate::registry::Registry;
use crate::world::World;

/// What the operator of the control plane decides.
#[derive(Debug, Clone)]
pub struct Config {
    /// Tells this replica from others, in logs and in the database: unique among those that run.
    pub replica: String,
    /// Where nodes join, as it stands in what `nodes.createJoinToken` answers: `https://host:port`.
    pub gateway_url: String,
    /// The largest payload of a command, bytes of its canonical JSON.
    pub max_payload_bytes: usize,
    /// The largest component that can be registered, bytes.
    pub max_component_bytes: usize,
    /// How long sessions are served after a stop was asked for.
    pub drain: Duration,
    /// The folder for compiled kinds.
    pub cache_dir: std::path::PathBuf,
}

/// Where it listens. Whoever binds them knows their ports.
#[derive(Debug)]
pub struct Listeners {
    /// HTTP, for the API.
    pub api: TcpListener,
    /// gRPC over mutual TLS, for nodes.
    pub gateway: TcpListener,
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
    let world = World::real();
    // What serves sessions goes on while they drain.
    let ended = CancellationToken::new();
    let _guard = ended.clone().drop_guard();
    let bus = Bus::connect(&pool, &config.replica, ended.clone());
    // Before anything settles: a month whose rows lie in the default partition gets none of its own.
    loops::make_partitions(&pool, &world).await?;
    loops::start(&pool, &bus, &world, &ended);
    let settings = gateway::Settings {
        replica: config.replica.clone(),
        hosts: host_of(&config.gateway_url).into_iter().collect(),
        heartbeat: gateway::HEARTBEAT,
    };
    let gateway =
        Gateway::start(settings, pool.clone(), bus.clone(), authority.clone(), world.clone(), ended.clone()).await?;
    let serving_nodes = gateway.serve(listeners.gateway, ended.clone());
    tokio::pin!(serving_nodes);
    let engine = Engine::new(&bc_runtime::Config { cache_dir: Some(config.cache_dir.clone()), ..Default::default() })?;
    let app = api::App::new(api::Parts {
        pool,
        bus,
        registry: Registry::new(engine),
        authority_sha256: Sha256::digest(authority.certificate_der()).into(),
        world: world.clone(),
        stop: stop.clone(),
        config: config.clone(),
    });
    let serving_api = axum::serve(listeners.api, api::router(app))
        .with_graceful_shutdown(stop.clone().cancelled_owned())
        .into_future();
    tokio::pin!(serving_api);
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
