//! The node's sessions with the control plane: one after the other, for as long as the daemon lives.
//!
//! **Invariant:** there is always an attempt under way or a wait that ends: no error of a gateway, of the network or of this
//! node's certificate ends the daemon.

mod fetch;
mod live;
mod open;
mod outbox;
pub mod way;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bc_proto::rules::backoff::{Backoff, RECONNECT};
use bc_proto::wire::Hello;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::open::{End, Open, Signals};
pub use self::outbox::Outbox;
use crate::capability::secrets::Exchange;
use crate::capability::upgrade::Upgrades;
use crate::credentials::Credentials;
use crate::gateway::{self, Address, Verifier};
use crate::kinds::Kinds;
use crate::kinds::kept::Kept;
use crate::metrics;
use crate::server_time::ServerTime;
use crate::shell::Handle;
use crate::spec::Desired;
use crate::spec::conditions::Looks;
use crate::trust::Trust;

/// The largest message of a session. A payload and a result have 1 MiB at most.
const MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// A session that lasted this long was a good one: the next wait is a short one again.
const LIVED: Duration = Duration::from_secs(10);

/// After the control plane did not accept this node: somebody has to do something about it, so there is no hurry.
const REJECTED: Backoff = Backoff { min: Duration::from_secs(30), max: Duration::from_mins(10) };

/// What sessions work with.
pub struct Context {
    /// What this node is, as it is when it is asked.
    pub hello: Box<dyn Fn() -> Hello + Send + Sync>,
    /// The loop.
    pub handle: Handle,
    /// Where the loop's frames come from.
    pub outbox: Outbox,
    /// The way to the secrets of commands.
    pub secrets: Exchange,
    /// The daemon's own binaries, which come through the session.
    pub upgrades: Upgrades,
    /// The kinds that are loaded.
    pub kinds: Kinds,
    /// Those that are fetched.
    pub kept: Kept,
    /// The spec that the node has applied.
    pub desired: Desired,
    /// Has the node looked at.
    pub looks: Looks,
    /// Server time, which Welcome tells.
    pub time: ServerTime,
    /// What the node trusts, which Welcome and TrustChanged tell.
    pub trust: Trust,
    /// Hears in words how things stand, for the service manager.
    pub status: Box<dyn Fn(&str) + Send + Sync>,
}

/// A random number, uniform over 0..1, for each call.
pub type Random = Box<dyn FnMut() -> f64 + Send>;

/// The sessions.
pub struct Sessions {
    context: Arc<Context>,
    gateways: Vec<Address>,
    verifier: Arc<Verifier>,
    credentials: Credentials,
    random: Random,
}

/// Why no session can be tried at all.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unusable {
    #[error("no gateway is named\n  → set `gateways` in the configuration, or join again")]
    NoGateway,
    #[error("{address} cannot be used: {reason}")]
    Endpoint { address: Address, reason: String },
}

impl Sessions {
    /// Sessions with these gateways, by these credentials, as they are when each session is opened.
    pub fn new(
        context: Context,
        mut gateways: Vec<Address>,
        verifier: Arc<Verifier>,
        credentials: Credentials,
        mut random: Random,
    ) -> Result<Self, Unusable> {
        if gateways.is_empty() {
            return Err(Unusable::NoGateway);
        }
        // Whatever cannot be used is an error at the start, and not at every attempt.
        for address in &gateways {
            gateway::endpoint(address, Arc::clone(&verifier), Some(credentials.tls()))
                .map_err(|error| Unusable::Endpoint { reason: gateway::chain(&error), address: address.clone() })?;
        }
        // Nodes begin with different ones.
        let first = index(gateways.len(), random());
        gateways.rotate_left(first);
        Ok(Self { context: Arc::new(context), gateways, verifier, credentials, random })
    }

    /// Keeps a session open until the daemon stops.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut replaced: Option<CancellationToken> = None;
        let (mut failures, mut newest, mut turn) = (0_u32, 0, 0);
        while !stop.is_cancelled() {
            let address = self.gateways[turn % self.gateways.len()].clone();
            turn = turn.wrapping_add(1);
            let endpoint = gateway::endpoint(&address, Arc::clone(&self.verifier), Some(self.credentials.tls()));
            let context = Arc::clone(&self.context);
            let open = async move {
                let endpoint = endpoint.map_err(|error| End::Failed(gateway::chain(&error)))?;
                Open::new(&endpoint, &context, newest).await
            };
            let opened = tokio::select! {
                () = stop.cancelled() => break,
                opened = open => opened,
            };
            let open = match opened {
                Ok(open) => open,
                Err(end) => {
                    self.pause(&end, &address, &mut failures, &stop).await;
                    continue;
                }
            };
            newest = open.epoch();
            tracing::info!(gateway = %address, epoch = newest, "a session is open");
            (self.context.status)(&format!("connected to {address}, epoch {newest}"));
            open.enter(&self.context).await;
            metrics::connected(true);
            if let Some(replaced) = replaced.take() {
                replaced.cancel();
            }
            let began = Instant::now();
            let superseded = CancellationToken::new();
            let (drain, mut draining) = oneshot::channel();
            let signals = Signals { stop: stop.clone(), superseded: superseded.clone(), drain };
            let context = Arc::clone(&self.context);
            let (done, mut ended) = oneshot::channel();
            tasks.spawn(async move {
                let end = open.serve(&context, signals).await;
                tracing::info!(epoch = newest, "the session is over: {end}");
                // Nobody listens once it is draining.
                let _ = done.send(end);
            });
            let end = tokio::select! {
                biased;
                Ok(()) = &mut draining => None,
                end = &mut ended => Some(end.unwrap_or_else(|_| End::Failed("the session broke down".into()))),
            };
            if began.elapsed() >= LIVED {
                failures = 0;
            }
            match end {
                None => {
                    tracing::info!(gateway = %address, "the gateway drains: another session is opened");
                    replaced = Some(superseded);
                }
                Some(End::Stopped) => break,
                Some(end) => self.pause(&end, &address, &mut failures, &stop).await,
            }
            while tasks.try_join_next().is_some() {}
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Says what went wrong, and waits before the next attempt.
    async fn pause(&mut self, end: &End, address: &Address, failures: &mut u32, stop: &CancellationToken) {
        let wait = match end {
            End::Rejected(_) => REJECTED.wait(*failures, (self.random)()),
            _ => RECONNECT.wait(*failures, (self.random)()),
        };
        *failures = failures.saturating_add(1);
        metrics::failed();
        let (wait_ms, gateway) = (wait.as_millis(), address.to_string());
        if let End::Rejected(_) = end {
            tracing::error!(
                gateway,
                wait_ms,
                "{end}: the node was deleted or replaced, or its certificate was revoked or has expired. To make this machine a node again, \
                 take a new join token, run `bcd join --again`, and restart bcd"
            );
        } else {
            tracing::warn!(gateway, wait_ms, "no session: {end}");
        }
        (self.context.status)(&format!("not connected: {end}"));
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// One of `count` by a random number over 0..1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and count")]
fn index(count: usize, random: f64) -> usize {
    ((count as f64 * random.clamp(0.0, 1.0)) as usize).min(count - 1)
}
