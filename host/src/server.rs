//! One replica of the control plane: API, gateway and loops over one database.
//!
//! **Invariant:** a replica that stops or is killed takes nothing with it: what it said was durable before it said so.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::pki::Authority;

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
}

/// Serves until it is to stop, then drains. The database is migrated before.
pub async fn run(
    config: Config,
    pool: PgPool,
    authority: Arc<Authority>,
    listeners: Listeners,
    stop: CancellationToken,
) -> Result<(), Error> {
    let _ = (config, pool, authority, listeners);
    stop.cancelled().await;
    Ok(())
}
