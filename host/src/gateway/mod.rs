//! The gateway: nodes join, hold sessions, get their commands and report what became of them.
//!
//! A handful of tasks serve all sessions of a replica. The greeter opens sessions, the dispatcher claims and sends, the collector
//! writes what nodes report, the looker finds cancels, ended sessions and work whose wake-up was lost. Each works on whatever
//! gathered while its last statement ran.
//!
//! **Invariant:** a killed gateway loses nothing: what it said was durable before it said so, and every write for a session is
//! fenced by the session's epoch.

mod bundles;
mod certify;
pub(crate) mod codec;
mod collector;
mod desired;
mod dispatcher;
mod fetch;
mod greeter;
mod join;
mod looker;
mod secrets;
mod service;
mod session;
mod sessions;
#[cfg(test)]
mod tests;
mod tls;
mod uploads;
mod wakes;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bc_proto::id::NodeId;
use bc_proto::manifest::Lane;
use bc_proto::rules::lane::PerLane;
use bc_proto::wire::v1;
use futures_util::Stream;
use sqlx::PgPool;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub use self::session::Outbox;
use self::sessions::{Session, Sessions};
pub use self::tls::ServeError;
use self::wakes::{Timers, Wakes};
use crate::bundles::Store;
use crate::bus::Bus;
use crate::pki::{Authority, Peer};
use crate::store::kinds::Digest;
use crate::store::node_certificates::Fingerprint;
use crate::store::{Error, gateways};
use crate::world::World;

/// How often a node says that it lives. After three of these in silence its session is closed.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// How many hellos may wait before streams are not read any more.
const KNOCKS: usize = 4_096;

/// The wait before the database is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a gateway is told at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Tells this replica from others: unique among those that run.
    pub replica: String,
    /// Host names and addresses that nodes reach it by. Its certificate names them besides [`bc_proto::wire::GATEWAY_NAME`].
    pub hosts: Vec<String>,
    /// How often a node says that it lives.
    pub heartbeat: Duration,
    /// Where support bundles go, if there is a store.
    pub bundles: Option<Store>,
}

/// Who opens a session, as TLS has verified it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// SHA-256 of the client certificate.
    pub fingerprint: Fingerprint,
    /// Who the certificate says it is.
    pub peer: Peer,
}

/// A replica's gateway. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

struct Inner {
    settings: Settings,
    pool: PgPool,
    bus: Bus,
    authority: Arc<Authority>,
    world: World,
    stop: CancellationToken,
    started: Instant,
    sessions: Sessions,
    /// Nodes with room and perhaps something to get.
    work: Wakes,
    /// Nodes whose sessions are to be looked at.
    looks: Wakes,
    /// Nodes whose commands were put back and wait.
    timers: Timers,
    knocks: mpsc::Sender<greeter::Knock>,
    items: mpsc::Sender<collector::Item>,
    said: mpsc::Sender<desired::Said>,
    room: Arc<Semaphore>,
    components: fetch::Components,
    bundles: bundles::Bundles,
    /// Which components are attested, as far as reports of them came: what a digest names never changes.
    attested: Mutex<HashMap<Digest, bool>>,
    ended: Mutex<Vec<(NodeId, u64)>>,
    ended_grew: Notify,
}

impl Gateway {
    /// Starts the tasks that serve sessions. They, and every session, end at once with `stop`; [`drain`](Self::drain) before it.
    pub async fn start(
        settings: Settings,
        pool: PgPool,
        bus: Bus,
        authority: Arc<Authority>,
        world: World,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        {
            let mut db = pool.acquire().await?;
            gateways::close_all(&mut db, &settings.replica).await?;
            gateways::see(&mut db, &settings.replica).await?;
        }
        let (knocks, knocking) = mpsc::channel(KNOCKS);
        let (items, reported) = mpsc::channel(collector::BATCH);
        let (said, saying) = mpsc::channel(desired::BATCH);
        let signals = bus.subscribe();
        let inner = Arc::new(Inner {
            settings,
            pool,
            bus,
            authority,
            world,
            stop: stop.clone(),
            started: Instant::now(),
            sessions: Sessions::default(),
            work: Wakes::default(),
            looks: Wakes::default(),
            timers: Timers::default(),
            knocks,
            items,
            said,
            room: Arc::new(Semaphore::new(collector::ROOM_KIB)),
            components: fetch::Components::default(),
            bundles: bundles::Bundles::default(),
            attested: Mutex::default(),
            ended: Mutex::default(),
            ended_grew: Notify::new(),
        });
        let spawn = |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            tokio::spawn(stop.clone().run_until_cancelled_owned(task));
        };
        spawn(Box::pin(greeter::run(inner.clone(), knocking)));
        spawn(Box::pin(collector::run(inner.clone(), reported)));
        spawn(Box::pin(desired::run(inner.clone(), saying)));
        spawn(Box::pin(dispatcher::run(inner.clone())));
        spawn(Box::pin(dispatcher::run_timers(inner.clone())));
        spawn(Box::pin(looker::listen(inner.clone(), signals)));
        spawn(Box::pin(looker::run(inner.clone())));
        spawn(Box::pin(looker::run_reconcile(inner.clone())));
        spawn(Box::pin(run_beat(inner.clone())));
        spawn(Box::pin(run_ended(inner.clone())));
        spawn(Box::pin(run_silence(inner.clone())));
        Ok(Self { inner })
    }

    /// A node's session: what it says goes in, what it is told comes out. The server calls this for each stream; tests and
    /// benchmarks can, without a network. The session ends when either side drops its stream.
    pub fn session<S>(&self, caller: Caller, frames: S) -> Outbox
    where
        S: Stream<Item = Result<v1::FromNode, Status>> + Send + Unpin + 'static,
    {
        session::begin(&self.inner, caller, frames)
    }

    /// How many sessions it holds.
    pub fn sessions(&self) -> usize {
        self.inner.sessions.len()
    }

    /// What all of its sessions have outstanding, lane by lane: credits in use.
    pub fn outstanding(&self) -> PerLane {
        let mut all = PerLane::default();
        for session in self.inner.sessions.all() {
            let of_one = session.outstanding();
            for lane in Lane::ALL {
                *all.get_mut(lane) += of_one.get(lane);
            }
        }
        all
    }

    /// Looks at all sessions now, as the slow reconcile does by itself every 10 s.
    pub async fn reconcile(&self) -> Result<(), Error> {
        looker::look(&self.inner, &self.inner.sessions.nodes()).await
    }

    /// Takes no more sessions, asks nodes to go elsewhere, and closes those that are left after `grace`.
    pub async fn drain(&self, grace: Duration) {
        let inner = &self.inner;
        inner.sessions.drain();
        for session in inner.sessions.all() {
            session.send(session::drain(grace));
        }
        let _ = tokio::time::timeout(grace, inner.sessions.empty()).await;
        let left = inner.sessions.all();
        for session in &left {
            session.close(Status::unavailable("this gateway goes away"));
        }
        let mut ended = inner.take_ended();
        ended.extend(left.iter().map(|session| (session.node, session.epoch)));
        if let Err(error) = inner.note_ended(&ended).await {
            tracing::error!(error = &error as &dyn std::error::Error, "the ends of sessions were not noted");
        }
    }
}

impl Inner {
    /// The gateway's own time: only ever compared with itself.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn ended(&self, session: &Session) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push((session.node, session.epoch));
        self.ended_grew.notify_one();
    }

    fn take_ended(&self) -> Vec<(NodeId, u64)> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn note_ended(&self, ended: &[(NodeId, u64)]) -> Result<(), Error> {
        if ended.is_empty() {
            return Ok(());
        }
        let mut db = self.pool.acquire().await?;
        gateways::close(&mut db, ended).await
    }

    /// Closes the sessions that were silent for three heartbeats, `now` after the start.
    fn close_silent(&self, now: Duration) {
        let limit = self.settings.heartbeat * 3;
        for session in self.sessions.all() {
            if now.saturating_sub(Duration::from_millis(session.heard_ms())) > limit {
                tracing::info!(node = %session.node, epoch = session.epoch, "the node is silent");
                session.close(Status::deadline_exceeded("nothing was heard for three heartbeats"));
            }
        }
    }
}

/// Says that this replica lives.
async fn run_beat(gateway: Arc<Inner>) {
    let mut ticks = tokio::time::interval(gateways::PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let seen = async {
            let mut db = gateway.pool.acquire().await?;
            gateways::see(&mut db, &gateway.settings.replica).await
        };
        if let Err(error) = seen.await {
            tracing::error!(error = &error as &dyn std::error::Error, "nobody sees that this gateway lives");
        }
    }
}

/// Notes the ends of sessions. What ends while one batch is written is the next.
async fn run_ended(gateway: Arc<Inner>) {
    loop {
        gateway.ended_grew.notified().await;
        let ended = gateway.take_ended();
        if let Err(error) = gateway.note_ended(&ended).await {
            tracing::error!(error = &error as &dyn std::error::Error, "the ends of sessions cannot be noted for now");
            gateway.ended.lock().unwrap_or_else(PoisonError::into_inner).extend(ended);
            gateway.ended_grew.notify_one();
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Closes silent sessions: one coarse scan instead of a timer for each.
async fn run_silence(gateway: Arc<Inner>) {
    let mut ticks = tokio::time::interval(gateway.settings.heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        gateway.close_silent(gateway.started.elapsed());
    }
}

/// What a node hears of a database that does not answer; the chain is logged here.
fn away(error: &Error) -> Status {
    tracing::error!(error = error as &dyn std::error::Error, "a node could not be served");
    Status::unavailable("the control plane's database does not answer; try again")
}
