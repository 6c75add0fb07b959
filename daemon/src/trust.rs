//! What this node trusts: the bundle that counts now, and the earliest that server time can be. Both outlive the daemon.
//!
//! The bundle lies in a file of its own; the identity's card says which version of it there is and which roots it names. So a
//! file that is damaged, gone or put back does not open the node up: it takes nothing then, until one of those roots says anew
//! what to trust.
//!
//! **Invariant:** it changes only as [`SignedBundle::accept`] allows: by the word of a root that was trusted before, and never
//! backwards. What counts is on the disk before it counts.

mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use bc_proto::rules::trust::{NotTrusted, SignedBundle, TrustBundle};
use tokio::sync::Notify;

use self::file::Kept;
use crate::identity::{self, Card, Pinned};

/// How far server time may run ahead of the newest signature before it counts in the floor, milliseconds. A gateway says the
/// time and could push it ahead for good; what it holds back is over an hour after it was signed.
const AHEAD_MS: u64 = 3_600 * 1_000;

/// How much the floor rises before it is written down again, milliseconds.
const STEP_MS: u64 = 60 * 1_000;

/// Why a bundle was not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// It is none.
    #[error("it is no trust bundle: {0}")]
    NoBundle(#[from] serde_json::Error),
    /// Nobody who is trusted vouches for it, or it would roll back.
    #[error(transparent)]
    NotTrusted(#[from] NotTrusted),
    /// The disk does not take it.
    #[error("it cannot be written down: {0}")]
    NotKept(#[from] io::Error),
    /// The identity does not take it.
    #[error("it cannot be written down: {0}")]
    Identity(#[from] identity::Unusable),
}

/// The node's trust; clones are handles to one. The default is kept in memory alone.
#[derive(Clone, Default)]
pub struct Trust(Arc<Inner>);

#[derive(Default)]
struct Inner {
    bundle: ArcSwap<TrustBundle>,
    /// Told when it changed; remembers that once for who does not wait at the time.
    changed: Notify,
    /// The newest that the control plane signed here, milliseconds since the Unix epoch.
    signed_ms: AtomicU64,
    /// The latest server time that a gateway said.
    told_ms: AtomicU64,
    disk: Mutex<Option<Disk>>,
}

/// Where it is kept.
struct Disk {
    state_dir: PathBuf,
    kept: Kept,
}

impl Trust {
    /// What an identity's node trusts, as it was kept. What is wrong with it is logged.
    pub fn open(state_dir: &Path, card: &Card) -> Self {
        let trust = Self::default();
        trust.restore(state_dir, card);
        trust
    }

    /// The same for a handle that others hold already.
    pub(crate) fn restore(&self, state_dir: &Path, card: &Card) {
        let pinned = &card.trust;
        let read = match file::read(state_dir) {
            // The life before had another one.
            Ok(Some(kept)) if (kept.node, kept.incarnation) != (card.node, card.incarnation) => Ok(None),
            read => read,
        };
        let lost = || TrustBundle::lost(pinned.version, pinned.roots.clone());
        let (bundle, kept) = match read {
            Ok(Some(kept)) if pinned.fits(&kept.signed.bundle) => (kept.signed.bundle.clone(), Some(kept)),
            Ok(None) if pinned.version == 0 => (TrustBundle::NONE, None),
            Ok(None) => {
                tracing::error!(version = pinned.version, "the trust bundle is gone; {REFUSES}");
                (lost(), None)
            }
            Ok(Some(kept)) => {
                let (found, version) = (kept.signed.bundle.version, pinned.version);
                tracing::error!(found, version, "the trust bundle on the disk is not the last one; {REFUSES}");
                (lost(), None)
            }
            Err(error) => {
                tracing::error!(%error, "the trust bundle cannot be read; {REFUSES}");
                (lost(), None)
            }
        };
        let kept = kept.unwrap_or_else(|| Kept {
            node: card.node,
            incarnation: card.incarnation,
            signed: SignedBundle::default(),
            signed_ms: 0,
            told_ms: 0,
        });
        self.0.bundle.store(Arc::new(bundle));
        self.0.changed.notify_one();
        self.0.signed_ms.store(kept.signed_ms.max(card.joined_ms), Ordering::Relaxed);
        self.0.told_ms.store(kept.told_ms, Ordering::Relaxed);
        let mut disk = self.0.disk.lock().unwrap_or_else(PoisonError::into_inner);
        *disk = Some(Disk { state_dir: state_dir.to_owned(), kept });
    }

    /// What counts now.
    pub fn now(&self) -> Arc<TrustBundle> {
        self.0.bundle.load_full()
    }

    /// Returns when what counts has changed since the last time that this returned. For one waiter: of several, one is told.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Takes a bundle that was offered, if it may. Answers whether something changed.
    pub fn offer(&self, offered: SignedBundle) -> Result<bool, NotTaken> {
        let mut disk = self.disk();
        let Some(bundle) = offered.clone().accept(&self.now())? else { return Ok(false) };
        if let Some(disk) = &mut *disk {
            // The card first: a crash between the two leaves a node that asks again, and not one that forgot.
            identity::pin(&disk.state_dir, Pinned::to(&bundle))?;
            disk.kept.signed = offered;
            disk.kept.signed_ms = self.0.signed_ms.load(Ordering::Relaxed);
            file::write(&disk.state_dir, &disk.kept)?;
        }
        tracing::info!(version = bundle.version, roots = bundle.roots.len(), "the node trusts a new bundle");
        self.0.bundle.store(Arc::new(bundle));
        self.0.changed.notify_one();
        Ok(true)
    }

    /// The same for a bundle as it came, JSON; nothing where it is empty. What is refused is logged, and changes nothing.
    pub fn offered(&self, document: &[u8]) {
        if document.is_empty() {
            return;
        }
        let taken = serde_json::from_slice(document).map_err(NotTaken::from).and_then(|offered| self.offer(offered));
        if let Err(error) = taken {
            tracing::error!(%error, version = self.now().version, "a trust bundle is refused; the one of before counts");
        }
    }

    /// A command that the control plane signed at that time was accepted.
    pub fn seen(&self, issued_at_ms: u64) {
        self.0.signed_ms.fetch_max(issued_at_ms, Ordering::Relaxed);
        self.keep_floor();
    }

    /// A Welcome said that it is so late.
    pub fn told(&self, server_ms: u64) {
        self.0.told_ms.store(server_ms, Ordering::Relaxed);
        self.keep_floor();
    }

    /// The earliest that server time can be, milliseconds since the Unix epoch; 0 where nothing is signed, since then nobody but
    /// the gateway says it.
    pub fn floor_ms(&self) -> u64 {
        if self.now().roots.is_empty() {
            return 0;
        }
        floor(self.0.signed_ms.load(Ordering::Relaxed), self.0.told_ms.load(Ordering::Relaxed))
    }

    fn keep_floor(&self) {
        let floor_ms = self.floor_ms();
        if let Some(disk) = &mut *self.disk()
            && floor_ms >= floor(disk.kept.signed_ms, disk.kept.told_ms).saturating_add(STEP_MS)
            && !self.now().is_lost
        {
            disk.kept.signed_ms = self.0.signed_ms.load(Ordering::Relaxed);
            disk.kept.told_ms = floor_ms;
            if let Err(error) = file::write(&disk.state_dir, &disk.kept) {
                tracing::warn!(%error, "server time is not written down for now");
            }
        }
    }

    fn disk(&self) -> MutexGuard<'_, Option<Disk>> {
        self.0.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the log says of a node that lost its trust.
const REFUSES: &str = "every command is refused until one of the roots that it named sends it again";

fn floor(signed_ms: u64, told_ms: u64) -> u64 {
    signed_ms.max(told_ms.min(signed_ms.saturating_add(AHEAD_MS)))
}

/// Writes down what a join was answered, for the life that it begins.
pub(crate) fn begin(state_dir: &Path, card: &Card, signed: SignedBundle) -> io::Result<()> {
    let (node, incarnation) = (card.node, card.incarnation);
    file::write(state_dir, &Kept { node, incarnation, signed, signed_ms: card.joined_ms, told_ms: card.joined_ms })
}

#[cfg(test)]
mod tests;
