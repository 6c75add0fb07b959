//! Components that commands name by digest and the plugin directory does not serve: fetched once, kept as files.
//!
//! **Invariant:** a file's name is the SHA-256 of what it is used for: bytes that do not fit are removed, never run. What
//! cannot be had is remembered as such, so that whoever waits for it gets an answer.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bc_proto::rules::admission::Obstacle;
use bc_proto::rules::publishing::{self, KindSignature, Untrusted};
use bc_runtime::{Inspected, Kind, Rejected};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::signature::{self, NotTaken};
use super::{HELD, Kinds, Lack};
use crate::journal::Journal;
use crate::node::Node;

/// How many components are fetched and compiled at once: each may be in memory as a whole.
const AT_ONCE: usize = 2;

/// The store; clones are handles to one.
#[derive(Clone)]
pub struct Kept(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    node: Arc<Node>,
    kinds: Kinds,
    /// Says which components are still needed.
    journal: Journal,
    at_once: Semaphore,
}

/// Why a component is not to be had.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    NotFetched(String),
    #[error("it has other bytes: their SHA-256 is {0}")]
    OtherBytes(String),
    #[error("{0}\n  → {remedy}", remedy = .0.remedy())]
    Untrusted(#[from] Untrusted),
    #[error("{0}")]
    Signature(signature::Unreadable),
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error("{}", .0.iter().map(|obstacle| format!("{obstacle}\n  → {}", obstacle.remedy())).collect::<Vec<_>>().join("\n"))]
    Obstacles(Vec<Obstacle>),
}

impl Refused {
    fn lack(&self) -> Lack {
        match self {
            // Somebody may sign it yet, or be trusted.
            Self::NotFetched(_) | Self::OtherBytes(_) | Self::Untrusted(_) | Self::Signature(_) => Lack::Unfetched,
            Self::Obstacles(list) if list.iter().any(|obstacle| matches!(obstacle, Obstacle::WrongRole { .. })) => {
                Lack::OtherRole
            }
            Self::Rejected(_) | Self::Obstacles(_) => Lack::Refused,
        }
    }
}

impl From<NotTaken> for Refused {
    fn from(not_taken: NotTaken) -> Self {
        match not_taken {
            NotTaken::Untrusted(untrusted) => Self::Untrusted(untrusted),
            NotTaken::Signature(unreadable) => Self::Signature(unreadable),
            NotTaken::Rejected(rejected) => Self::Rejected(rejected),
        }
    }
}

/// What a gateway gives for a digest; none of it is checked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fetched {
    /// The component.
    pub(crate) bytes: Vec<u8>,
    /// Its publisher's signature.
    pub(crate) signature: Option<KindSignature>,
}

impl Kept {
    /// Keeps them in `dir`, which is made when it is first written to.
    pub fn new(dir: PathBuf, node: Arc<Node>, kinds: Kinds, journal: Journal) -> Self {
        Self(Arc::new(Inner { dir, node, kinds, journal, at_once: Semaphore::new(AT_ONCE) }))
    }

    /// Loads a component from its file. None when there is none that fits.
    pub async fn load(&self, digest: &str) -> Option<Kind> {
        self.on_own_thread(digest, Inner::load).await
    }

    /// Loads a component from its file, or fetches it. Afterwards [`Kinds::availability`] says what came of it; an error is
    /// logged here.
    pub(crate) async fn obtain(&self, digest: &str, fetch: impl Future<Output = Result<Fetched, String>>) {
        // The semaphore is never closed.
        let _turn = self.0.at_once.acquire().await;
        if self.load(digest).await.is_some() {
            return;
        }
        let taken = match fetch.await {
            Ok(fetched) => self.on_own_thread(digest, move |inner, digest| inner.take(digest, fetched)).await,
            Err(reason) => Err(Refused::NotFetched(reason)),
        };
        match taken {
            Ok(kind) => {
                let manifest = kind.manifest();
                tracing::info!(kind = manifest.name, version = %manifest.version, digest, "fetched a kind");
                self.prune().await;
            }
            Err(refused) => {
                tracing::warn!(digest, "a kind that a command names is not to be had: {refused}");
                self.0.kinds.lacks(digest, refused.lack());
            }
        }
    }

    /// Removes files that neither an unfinished command needs nor were used lately.
    async fn prune(&self) {
        let Ok(files) = self.0.files() else { return };
        if files.len() <= HELD {
            return;
        }
        let needed = match self.0.journal.read().await {
            Ok(book) => {
                let open = book.into_entries().into_iter().filter(|entry| entry.update.is_none());
                open.map(|entry| entry.deliver.kind_digest).collect::<BTreeSet<_>>()
            }
            Err(error) => {
                tracing::warn!(error, "fetched kinds are not tidied up: the journal does not say which are needed");
                return;
            }
        };
        let held: BTreeSet<_> = self.0.kinds.loaded().into_iter().map(|kind| kind.digest).collect();
        let idle = files.iter().filter(|digest| !needed.contains(*digest) && !held.contains(*digest));
        for digest in idle.take(files.len() - HELD) {
            self.0.remove(digest);
        }
    }

    async fn on_own_thread<T: Send + 'static>(
        &self,
        digest: &str,
        work: impl FnOnce(&Inner, &str) -> T + Send + 'static,
    ) -> T {
        let (inner, digest) = (Arc::clone(&self.0), digest.to_owned());
        match tokio::task::spawn_blocking(move || work(&inner, &digest)).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl Inner {
    fn path(&self, digest: &str) -> PathBuf {
        self.dir.join(format!("{digest}.wasm"))
    }

    fn load(&self, digest: &str) -> Option<Kind> {
        let path = self.path(digest);
        if !path.is_file() {
            return None;
        }
        let read = signature::read(&path, &self.node.trust.now().publishers).map_err(Refused::from);
        match read.and_then(|(component, signature)| self.admit(digest, &component, signature.as_ref())) {
            Ok(kind) => Some(kind),
            Err(refused) => {
                tracing::warn!(path = %path.display(), "a kept kind is removed: {refused}");
                self.remove(digest);
                None
            }
        }
    }

    fn take(&self, digest: &str, fetched: Fetched) -> Result<Kind, Refused> {
        let Fetched { bytes, signature } = fetched;
        // First of all, so that a gateway's mistake does not count as this component's.
        let sent = hex::encode(Sha256::digest(&bytes));
        if sent != digest {
            return Err(Refused::OtherBytes(sent));
        }
        publishing::check(&self.node.trust.now().publishers, digest, signature.as_ref())?;
        let component = Inspected::from_bytes(bytes)?;
        let kind = self.admit(digest, &component, signature.as_ref())?;
        let written = signature.map_or(Ok(()), |signature| {
            let text = serde_json::to_vec(&signature).expect("keys and signatures are JSON");
            // Before the component, so that none is ever there without it.
            write(&self.dir, &signature::file(&self.path(digest)), &text)
        });
        if let Err(error) = written.and_then(|()| write(&self.dir, &self.path(digest), &component.bytes)) {
            tracing::warn!(%error, "a fetched kind is not kept: a restart would fetch it again");
        }
        Ok(kind)
    }

    fn admit(&self, digest: &str, component: &Inspected, signature: Option<&KindSignature>) -> Result<Kind, Refused> {
        if component.digest != digest {
            return Err(Refused::OtherBytes(component.digest.clone()));
        }
        let obstacles = self.node.obstacles(component);
        if !obstacles.is_empty() {
            return Err(Refused::Obstacles(obstacles));
        }
        let kind = self.node.engine.load(component)?;
        if let Some(signature) = signature {
            self.kinds.sign(signature);
        }
        self.kinds.add(&kind);
        Ok(kind)
    }

    /// The digests that there are files for, in order.
    fn files(&self) -> io::Result<Vec<String>> {
        let mut digests = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            digests.extend(name.to_str().and_then(|name| name.strip_suffix(".wasm")).map(str::to_owned));
        }
        digests.sort();
        Ok(digests)
    }

    fn remove(&self, digest: &str) {
        if let Err(error) = fs::remove_file(self.path(digest)) {
            tracing::warn!(%error, digest, "a kept kind was not removed");
        }
        // Most have none.
        let _ = fs::remove_file(signature::file(&self.path(digest)));
    }
}

/// Written beside its place, synced, and renamed: a crash leaves no half file under a digest's name.
fn write(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let part = path.with_extension("part");
    let mut file = File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, path)
}
