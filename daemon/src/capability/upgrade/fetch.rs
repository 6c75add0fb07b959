//! A release on its way from the gateway to the disk.
//!
//! **Invariant:** the signature is checked before a byte is written, the digest and the version before the file gets its name.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use bc_proto::rules::releases::{self, MAX_BYTES, ReleaseSignature, Untrusted};
use bc_proto::rules::slots::Release;
use bc_proto::sign::body::ReleaseBody;
use bc_proto::sign::{PublicKey, Signature};
use bc_proto::wire::v1;
use bc_runtime::capability::process::{Exit, Request};
use bc_runtime::capability::{Answer, Error, Process};
use sha2::{Digest, Sha256};
use tonic::{Code, Status};

use super::{Inner, Upgrades};
use crate::capability::process::{PATH, Programs};
use crate::gateway::chain;
use crate::gateway::rpc::node_gateway_client::NodeGatewayClient;
use crate::slots::target;

/// How often a fetch is tried, and how long between two tries.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// A fetch that gets nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(30);
/// What has to stay free on the disk, bytes: the journal and what is written down of commands come first.
const SPARE_BYTES: u64 = 64 * 1024 * 1024;
/// How much is written between two looks at the disk, bytes.
const LOOK_BYTES: u64 = 16 * 1024 * 1024;
/// How long a binary may take to say its version.
const PROBE: Duration = Duration::from_secs(10);
/// A binary that was just written can be busy for a moment: a program that is started at the time holds it open.
const PROBES: u32 = 3;

/// Why a release is not staged.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error("there is no session with a control plane")]
    Offline,
    #[error("the control plane has no release with this digest: push it first")]
    NotFound,
    #[error("the control plane does not give it: {0}")]
    Refused(String),
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("what came has the digest {0}")]
    OtherDigest(String),
    #[error("the disk has less than {} MiB to spare: free some, then try again", SPARE_BYTES / (1024 * 1024))]
    NoSpace,
    #[error("it cannot be written: {0}")]
    Io(io::Error),
    #[error("it does not run on this machine: {0}")]
    DoesNotRun(String),
    #[error("it says that it is {0:?}")]
    OtherVersion(String),
    #[error("the run was called off")]
    Cancelled,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Io(error),
        }
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::NotFound => Self::NotFound,
            _ => Self::Refused(chain(&status)),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        let code = match &failed {
            Failed::Offline => "offline",
            Failed::NotFound => "not-found",
            Failed::Refused(_) => "fetch-failed",
            Failed::Untrusted(_) => "untrusted",
            Failed::TooLarge => "too-large",
            Failed::OtherDigest(_) => "wrong-digest",
            Failed::NoSpace => "no-space",
            Failed::Io(_) => "io",
            Failed::DoesNotRun(_) => "does-not-run",
            Failed::OtherVersion(_) => "wrong-version",
            Failed::Cancelled => "cancelled",
        };
        Self::new(code, failed.to_string())
    }
}

impl Upgrades {
    /// Fetches and checks a release, and gives its file its name.
    pub(super) async fn fetch(&self, release: &Release) -> Result<(), Failed> {
        let mut tried = 1;
        while let Err(error) = self.fetch_once(release).await {
            let may_pass = matches!(error, Failed::Offline | Failed::Refused(_));
            if !may_pass || tried >= TRIES {
                return Err(error);
            }
            tracing::warn!(%error, version = release.version, "a release was not fetched; it is tried again");
            tried += 1;
            tokio::time::sleep(PAUSE).await;
        }
        let Inner { store, supervisor, .. } = &*self.0;
        let (draft, version) = (store.draft_path(&release.sha256), release.version.clone());
        let supervisor = supervisor.clone();
        let supervisor = supervisor.ok_or_else(|| Failed::DoesNotRun("this daemon supervises no programs".into()))?;
        // Waits for a program: not on a thread that serves others.
        let said = tokio::task::spawn_blocking(move || probe(&Programs::new(supervisor, PATH), &draft)).await;
        let said = said.map_err(|panic| Failed::DoesNotRun(panic.to_string()))?;
        let said = said.map_err(|error| Failed::DoesNotRun(error.message))?;
        if said != format!("bcd {version}") {
            return Err(Failed::OtherVersion(said));
        }
        Ok(store.keep(&release.sha256)?)
    }

    async fn fetch_once(&self, release: &Release) -> Result<(), Failed> {
        let Inner { store, session, trust, settings, .. } = &*self.0;
        let session = session.load_full().ok_or(Failed::Offline)?;
        let silent = |_| Failed::Refused("nothing came for 30 s".into());
        let sha256 = hex::decode(&release.sha256).map_err(|error| Failed::Refused(error.to_string()))?;
        let mut client = NodeGatewayClient::new(session.channel.clone());
        let request = client.fetch_release(v1::FetchReleaseRequest { sha256 });
        let mut chunks = tokio::time::timeout(SILENCE, request).await.map_err(silent)??.into_inner();
        let mut draft: Option<Draft> = None;
        while let Some(chunk) = tokio::time::timeout(SILENCE, chunks.message()).await.map_err(silent)?? {
            if draft.is_none() {
                let target = target();
                let body = ReleaseBody { version: &release.version, sha256: &release.sha256, target: &target };
                let signature = signature_of(&chunk)?;
                releases::check(&trust.now().publishers, &body, signature.as_ref(), settings.allow_unsigned)?;
            }
            let draft = match &mut draft {
                Some(draft) => draft,
                none => none.insert(Draft::new(store.draft(&release.sha256)?)),
            };
            draft.write(&chunk.bytes)?;
        }
        let found = draft.ok_or_else(|| Failed::Refused("it is empty".into()))?.end()?;
        if found == release.sha256 { Ok(()) } else { Err(Failed::OtherDigest(found)) }
    }
}

/// A file that is being written.
struct Draft {
    file: File,
    hash: Sha256,
    written: u64,
    /// When the disk is looked at again.
    look_at: u64,
}

impl Draft {
    fn new(file: File) -> Self {
        Self { file, hash: Sha256::new(), written: 0, look_at: 0 }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        if self.written >= self.look_at {
            let disk = rustix::fs::fstatvfs(&self.file).map_err(io::Error::from)?;
            if disk.f_bavail.saturating_mul(disk.f_frsize) < SPARE_BYTES {
                return Err(Failed::NoSpace);
            }
            self.look_at = self.written + LOOK_BYTES;
        }
        self.written += bytes.len() as u64;
        if self.written > MAX_BYTES {
            return Err(Failed::TooLarge);
        }
        self.hash.update(bytes);
        Ok(self.file.write_all(bytes)?)
    }

    /// Its digest. It is closed: a file that is open for writing cannot be executed.
    fn end(self) -> Result<String, Failed> {
        self.file.sync_all()?;
        Ok(hex::encode(self.hash.finalize()))
    }
}

/// The signature in the first piece, if there is one.
fn signature_of(first: &v1::KindChunk) -> Result<Option<ReleaseSignature>, Failed> {
    if first.publisher.is_empty() && first.publisher_sig.is_empty() {
        return Ok(None);
    }
    let bad = || Failed::Refused("its signature is none".into());
    let publisher = first.publisher.as_slice().try_into().map_err(|_| bad())?;
    let publisher = PublicKey::from_bytes(publisher).map_err(|_| bad())?;
    let signature = Signature::from_slice(&first.publisher_sig).map_err(|_| bad())?;
    Ok(Some(ReleaseSignature { publisher, signature }))
}

/// What a binary answers when it is asked for its version.
pub(super) fn probe(programs: &Programs, binary: &Path) -> Answer<String> {
    let request = Request {
        program: binary.to_string_lossy().into_owned(),
        argv: vec!["--version".into()],
        stdin: None,
        timeout_ms: u64::try_from(PROBE.as_millis()).unwrap_or(u64::MAX),
        capture_bytes: 1024,
    };
    let mut tried = 1;
    let outcome = loop {
        match programs.run(&request) {
            Err(_) if tried < PROBES => tried += 1,
            outcome => break outcome?,
        }
    };
    match outcome.exit {
        Exit::Code(0) => Ok(format!("{}{}", outcome.stdout.head, outcome.stdout.tail).trim().to_owned()),
        Exit::Code(code) => Err(Error::new("does-not-run", format!("asked for its version, it exits with {code}"))),
        Exit::Signal(signal) => {
            Err(Error::new("does-not-run", format!("asked for its version, signal {signal} ends it")))
        }
        Exit::TimedOut => {
            Err(Error::new("does-not-run", format!("asked for its version, it says nothing for {PROBE:?}")))
        }
    }
}
