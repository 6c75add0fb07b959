//! Uploads of commands: what stands behind `better-compute:host/upload`.
//!
//! What a kind writes is spooled, so that its length and hash are known before anything is sent; then one PUT stores it at the object
//! that the command names. A URL that ends meanwhile is renewed by the gateway.
//!
//! **Invariant:** nothing is sent but to the signed object, and a URL's query stands in no log and no error. A cancel ends it.

mod local;
mod put;
mod spool;
mod tls;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bc_proto::id::CommandId;
use bc_proto::rules::upload::{Attempt, Attempts, Next, is_over};
use bc_proto::wire::{self, v1};
use bc_runtime::capability::upload::Receipt;
use bc_runtime::capability::{Answer, Capabilities, Error, Upload};
use tokio_util::sync::CancellationToken;
use tonic::Code;

pub use self::local::{Nowhere, ToFile};
use self::put::Sent;
use self::spool::Spool;
use super::commanded::{Commanded, Provider};
use crate::gateway::rpc::node_gateway_client::NodeGatewayClient;
use crate::server_time::ServerTime;
use crate::session::way::Way;

/// Where spools lie, below the state directory.
const SPOOL: &str = "spool";
/// What an upload leaves on the disk for the node itself, bytes.
const KEEP_FREE: u64 = 16 * 1024 * 1024;
/// How long nothing may move before an attempt counts as failed.
const STALL: Duration = Duration::from_mins(1);
/// How long a connection to a store may take, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a gateway may take for a fresh URL.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(15);

/// Who renews URLs.
#[async_trait]
pub trait Refresh: Send + Sync {
    /// A fresh URL for a command's object.
    async fn refresh(&self, command: CommandId) -> Result<wire::Upload, NotRefreshed>;
}

/// Why there is no fresh URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NotRefreshed {
    #[error("no gateway answered: {0}")]
    Later(String),
    #[error("the control plane gives no fresh URL: {0}")]
    Refused(String),
}

#[async_trait]
impl Refresh for Way {
    async fn refresh(&self, command: CommandId) -> Result<wire::Upload, NotRefreshed> {
        let later = |why: &str| NotRefreshed::Later(why.to_owned());
        let channel = self.channel().ok_or_else(|| later("there is no session"))?;
        let mut client = NodeGatewayClient::new(channel);
        let asked = client.refresh_upload(v1::UploadRequest { command_id: command.to_string() });
        let answer = tokio::time::timeout(REFRESH_TIMEOUT, asked).await.map_err(|_| later("it took too long"))?;
        let upload = answer.map_err(|status| match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Internal | Code::Unknown => {
                NotRefreshed::Later(status.message().to_owned())
            }
            _ => NotRefreshed::Refused(status.message().to_owned()),
        })?;
        upload.into_inner().try_into().map_err(|invalid: wire::Invalid| NotRefreshed::Refused(invalid.to_string()))
    }
}

/// How uploads are done.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where spools lie.
    pub spool_dir: PathBuf,
    /// Whom TLS believes; `None` is whom the system believes.
    pub ca_file: Option<PathBuf>,
    /// What stays free on the disk, bytes.
    pub keep_free_bytes: u64,
    /// How long nothing may move before an attempt counts as failed.
    pub stall: Duration,
    /// Scales the waits between attempts; 1 but in tests.
    pub wait_scale: f64,
}

impl Settings {
    /// Those of a node.
    pub fn new(state_dir: &Path, ca_file: Option<PathBuf>) -> Self {
        let spool_dir = state_dir.join(SPOOL);
        Self { spool_dir, ca_file, keep_free_bytes: KEEP_FREE, stall: STALL, wait_scale: 1.0 }
    }
}

/// The uploads of a node; clones are handles to one.
#[derive(Clone)]
pub struct Uploads(Arc<Inner>);

struct Inner {
    settings: Settings,
    client: reqwest::Client,
    refresh: Arc<dyn Refresh>,
    time: ServerTime,
}

/// The one upload that a run may have at a time.
#[derive(Default)]
struct Held {
    spool: Option<(u32, Spool)>,
    next: u32,
    is_done: bool,
}

impl Held {
    fn begin(&mut self, spool: impl FnOnce() -> Answer<Spool>) -> Answer<u32> {
        if self.is_done || self.spool.is_some() {
            let message = "a command uploads one file: there is one already; finish it or abort it";
            return Err(Error::new("already-begun", message));
        }
        let handle = self.next;
        self.next += 1;
        self.spool = Some((handle, spool()?));
        Ok(handle)
    }

    /// A spool that could not take it is gone: nothing is stored by half.
    fn write(&mut self, handle: u32, bytes: &[u8]) -> Answer<u64> {
        let spool = match &mut self.spool {
            Some((held, spool)) if *held == handle => spool,
            _ => return Err(no_such(handle)),
        };
        spool.write(bytes).inspect_err(|_| self.spool = None)
    }

    fn take(&mut self, handle: u32) -> Answer<Spool> {
        match self.spool.take_if(|(held, _)| *held == handle) {
            Some((_, spool)) => Ok(spool),
            None => Err(no_such(handle)),
        }
    }
}

impl Spool {
    fn receipt(&self) -> Receipt {
        Receipt { bytes: self.bytes, sha256: self.sha256(), truncated: self.truncated }
    }
}

fn no_such(handle: u32) -> Error {
    Error::new("not-found", format!("this run has no upload with the handle {handle}"))
}

fn no_destination() -> Error {
    let message = "the command has no upload destination: configure `supportBundles` on the control plane, with a store that can presign";
    Error::new("no-destination", message)
}

impl Uploads {
    /// Uploads that ask there for fresh URLs. Errors when TLS cannot be set up.
    pub fn new(settings: Settings, refresh: Arc<dyn Refresh>, time: ServerTime) -> anyhow::Result<Self> {
        let tls = tls::config(settings.ca_file.as_deref(), time.clone())?;
        let client = reqwest::Client::builder()
            .user_agent(concat!("bcd/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // What was signed is one object: nothing follows a redirect to elsewhere, and no proxy sees the URL.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .pool_max_idle_per_host(0)
            .tls_backend_preconfigured(tls)
            .build()?;
        Ok(Self(Arc::new(Inner { settings, client, refresh, time })))
    }

    /// The upload of one command, of at most `cap` bytes.
    pub fn of(
        &self,
        command: CommandId,
        destination: Option<wire::Upload>,
        cap: Option<u64>,
        cancel: CancellationToken,
    ) -> Arc<dyn Upload> {
        match destination {
            None => Arc::new(Nowhere),
            Some(destination) => {
                let cap = destination.max_bytes.min(cap.unwrap_or(u64::MAX));
                let held = Mutex::default();
                Arc::new(OfCommand { uploads: Arc::clone(&self.0), command, destination, cap, cancel, held })
            }
        }
    }
}

impl Provider for Uploads {
    fn provide(&self, command: &Commanded<'_>, capabilities: &mut Capabilities) {
        let caps = [command.declared, command.granted].map(|grants| grants.upload.and_then(|upload| upload.max_bytes));
        let cap = caps.into_iter().flatten().map(|bytes| bytes.0).min();
        let deliver = command.deliver;
        capabilities
            .upload
            .get_or_insert_with(|| self.of(deliver.command, deliver.upload.clone(), cap, command.cancel.clone()));
    }
}

/// The upload of one command.
struct OfCommand {
    uploads: Arc<Inner>,
    command: CommandId,
    destination: wire::Upload,
    cap: u64,
    cancel: CancellationToken,
    held: Mutex<Held>,
}

impl OfCommand {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, spool: &Spool) -> Answer<()> {
        let Inner { settings, client, time, .. } = &*self.uploads;
        let mut url = self.destination.url.clone();
        let mut expires_ms = self.destination.url_expires_ms;
        let mut attempts = Attempts::default();
        loop {
            // A gateway that has none is asked again when the store has forbidden the old one.
            if is_over(expires_ms, time.at(Instant::now()))
                && let Ok(fresh) = self.fresh().await
            {
                (url, expires_ms) = (fresh.url, fresh.url_expires_ms);
            }
            let sent = Sent { file: spool.file()?, bytes: spool.bytes, content_type: &spool.content_type };
            let ended = put::put(client, &url, sent, settings.stall).await;
            let why = ended.why;
            let next = attempts.after(ended.attempt, random());
            tracing::info!(command = %self.command, object = self.destination.object, ?next, why, "an upload was tried");
            match next {
                Next::Done => return Ok(()),
                Next::Again(wait) => tokio::time::sleep(wait.mul_f64(settings.wait_scale)).await,
                Next::Refresh => match self.fresh().await {
                    Ok(fresh) => (url, expires_ms) = (fresh.url, fresh.url_expires_ms),
                    Err(NotRefreshed::Refused(reason)) => {
                        let why = format!("{why}; and the control plane gives no fresh URL: {reason}");
                        return Err(self.refused(&why));
                    }
                    Err(NotRefreshed::Later(reason)) => {
                        let why = format!("{why}; and no gateway gave a fresh URL: {reason}");
                        return Err(self.unreachable(&why));
                    }
                },
                Next::Refused => return Err(self.refused(&why)),
                Next::Unreachable => return Err(self.unreachable(&why)),
            }
        }
    }

    /// A fresh URL of the signed object. Waits for a session, as long as for a store.
    async fn fresh(&self) -> Result<wire::Upload, NotRefreshed> {
        let mut attempts = Attempts::default();
        loop {
            match self.uploads.refresh.refresh(self.command).await {
                Ok(fresh) if fresh.object != self.destination.object => {
                    return Err(NotRefreshed::Refused("its URL is one of another object than was signed".into()));
                }
                Err(NotRefreshed::Later(reason)) => match attempts.after(Attempt::Failed, random()) {
                    Next::Again(wait) => tokio::time::sleep(wait.mul_f64(self.uploads.settings.wait_scale)).await,
                    _ => return Err(NotRefreshed::Later(reason)),
                },
                answered => return answered,
            }
        }
    }

    fn refused(&self, why: &str) -> Error {
        let message = format!(
            "the store does not take {}: {why}; look at `supportBundles` on the control plane: bucket, region, endpoint, and what its \
             credentials may do",
            self.destination.object
        );
        Error::new("refused", message)
    }

    fn unreachable(&self, why: &str) -> Error {
        let message =
            format!("{} could not be stored: {why}; the same command may succeed later", self.destination.object);
        Error::new("unreachable", message)
    }
}

impl Upload for OfCommand {
    fn begin(&self, content_type: &str) -> Answer<u32> {
        if !content_type.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(Error::new("invalid", "a content type is printable ASCII"));
        }
        let Settings { spool_dir, keep_free_bytes, .. } = &self.uploads.settings;
        self.held().begin(|| Spool::new(spool_dir, content_type, self.cap, *keep_free_bytes))
    }

    fn write(&self, handle: u32, bytes: &[u8]) -> Answer<u64> {
        self.held().write(handle, bytes)
    }

    fn finish(&self, handle: u32) -> Answer<Receipt> {
        let spool = self.held().take(handle)?;
        // The gate gives this call a thread that may block.
        tokio::runtime::Handle::current().block_on(async {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(Error::new("cancelled", "the run was cancelled before it was stored")),
                sent = self.send(&spool) => sent,
            }
        })?;
        self.held().is_done = true;
        Ok(spool.receipt())
    }

    fn abort(&self, handle: u32) -> Answer<()> {
        self.held().take(handle).map(drop)
    }
}

/// Uniform over 0..1; the middle where the system has no random numbers.
fn random() -> f64 {
    getrandom::u64().unwrap_or(u64::MAX / 2) as f64 / u64::MAX as f64
}
