//! The node's desired state: which spec it has applied, and what it says of that.
//!
//! A spec comes on a session, is checked, kept on the disk and then counts. Applying it changes what the node holds and passes
//! through at once; settings of the host take a boot, and until then [`conditions`] say so.
//!
//! **Invariant:** a spec counts only when a trusted root stands for it, it parses as a whole, it is newer than the one that
//! counts, and it is on the disk; whatever else comes changes nothing.

pub mod conditions;
mod file;
pub mod host;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bc_proto::canonical;
use bc_proto::rules::daemon::Identity;
use bc_proto::rules::holds::{self, InUse};
use bc_proto::sign::body::{AllocationBoundBody, SpecBody};
use bc_proto::sign::{Signature, WorkerSignature};
use bc_proto::spec::NodeSpec;
use bc_proto::wire::{Bound, v1};

use self::file::SpecFile;
use crate::trust::Trust;

/// What the node holds and passes through now; clones are handles to one.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<ArcSwap<NodeSpec>>);

impl Held {
    /// What a spec holds, for whoever has it from elsewhere.
    pub fn of(spec: NodeSpec) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(spec)))
    }

    /// The spec that counts; generation 0 and empty before the first.
    pub fn now(&self) -> Arc<NodeSpec> {
        self.0.load_full()
    }

    /// Whether nothing uses a GPU, whose MIG instances are `parts`.
    pub fn is_free(&self, gpu: &str, parts: &[String]) -> Result<(), InUse> {
        holds::is_free(&self.0.load(), gpu, parts)
    }
}

/// The spec that the node of a state directory has applied, read from the disk and nothing changed; `None` for none, and for a
/// machine that is no node. For processes beside the daemon.
pub fn kept(state_dir: &Path) -> io::Result<Option<NodeSpec>> {
    match crate::identity::read(state_dir) {
        Ok(identity) => SpecFile::new(state_dir, identity.card.node).look(),
        Err(crate::identity::Unusable::Missing { .. }) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// What became of a spec that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It counts from now on.
    Applied(u64),
    /// It is not newer than the one that counts.
    Old,
    /// It does not count, and a condition says why.
    Rejected,
}

/// Why a spec does not count.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("it does not read as a spec: {0}")]
    Unreadable(serde_json::Error),
    #[error("its signature does not read as one: {0}")]
    Signature(bc_proto::wire::Invalid),
    #[error("the control plane did not sign it: {0}")]
    Distrusted(bc_proto::sign::Error),
    #[error("it is of generation 0, which is none")]
    NoGeneration,
    #[error("it cannot be kept: {0}")]
    NotKept(io::Error),
}

/// The desired state; clones are handles to one.
#[derive(Clone)]
pub struct Desired(Arc<Inner>);

/// Signs that the node holds a GPU, with the key that it has at that time.
pub type Sign = Box<dyn Fn(&AllocationBoundBody) -> Signature + Send + Sync>;

struct Inner {
    file: SpecFile,
    identity: Identity,
    sign: Sign,
    trust: Trust,
    held: Held,
    /// Why the last spec that came does not count.
    rejected: Mutex<Option<String>>,
    /// Two sessions may bring specs at once, while one of them drains.
    turn: tokio::sync::Mutex<()>,
}

impl Desired {
    /// Goes on with what is kept in the state directory. A file that is damaged, or of another node, is set aside, and the
    /// node has no spec until one comes. Errors when the file cannot be read, or not be set aside.
    pub fn open(state_dir: &Path, identity: Identity, sign: Sign, trust: Trust) -> io::Result<Self> {
        let file = SpecFile::new(state_dir, identity.node);
        let held = Held::default();
        if let Some(spec) = file.read()? {
            held.0.store(Arc::new(spec));
        }
        let (rejected, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self(Arc::new(Inner { file, identity, sign, trust, held, rejected, turn })))
    }

    /// The generation that counts; 0 for none.
    pub fn generation(&self) -> u64 {
        self.0.held.0.load().generation
    }

    /// What the node holds, for whoever touches GPUs.
    pub fn held(&self) -> Held {
        self.0.held.clone()
    }

    /// Why the last spec that came does not count.
    fn rejected(&self) -> Option<String> {
        self.0.rejected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a spec that came, if it may. `now_ms` is server time.
    pub async fn offer(&self, spec: v1::Spec, now_ms: u64) -> Offered {
        let _turn = self.0.turn.lock().await;
        let judged = self.judge(&spec, now_ms);
        let applied = match judged {
            Ok(fit) if fit.generation <= self.generation() => {
                tracing::info!(
                    generation = fit.generation,
                    has = self.generation(),
                    "a spec that is not newer is ignored"
                );
                return Offered::Old;
            }
            Ok(fit) => self.keep(fit, spec.document).await,
            Err(unfit) => Err(unfit),
        };
        let why = match &applied {
            Ok(generation) => {
                tracing::info!(generation, "a spec is applied");
                None
            }
            Err(unfit) => {
                tracing::error!("a spec is not applied: {unfit}");
                Some(unfit.to_string())
            }
        };
        *self.0.rejected.lock().unwrap_or_else(PoisonError::into_inner) = why;
        applied.map_or(Offered::Rejected, Offered::Applied)
    }

    /// Whether it is to be believed. The signature is over the bytes, so it is looked at before they are read.
    fn judge(&self, spec: &v1::Spec, now_ms: u64) -> Result<NodeSpec, Unfit> {
        let signature = spec.signature.clone().map(WorkerSignature::try_from).transpose().map_err(Unfit::Signature)?;
        // The generation is part of what is signed, and stands in the document alone.
        let read: NodeSpec = serde_json::from_slice(&spec.document).map_err(Unfit::Unreadable)?;
        let sha256 = canonical::sha256_hex(&spec.document);
        let body = SpecBody { node: self.0.identity.node, generation: read.generation, spec_sha256: &sha256 };
        self.0.trust.now().spec(&body, signature.as_ref(), now_ms).map_err(Unfit::Distrusted)?;
        if read.generation == 0 { Err(Unfit::NoGeneration) } else { Ok(read) }
    }

    async fn keep(&self, spec: NodeSpec, document: Vec<u8>) -> Result<u64, Unfit> {
        let inner = Arc::clone(&self.0);
        let kept = tokio::task::spawn_blocking(move || inner.file.write(&document)).await;
        kept.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(Unfit::NotKept)?;
        let generation = spec.generation;
        self.0.held.0.store(Arc::new(spec));
        Ok(generation)
    }

    /// What the node signs for each GPU that it holds.
    pub fn bound(&self, now_ms: u64) -> Vec<v1::AllocationBound> {
        let spec = self.0.held.now();
        let bound = spec.holds.iter().map(|hold| {
            let body = AllocationBoundBody {
                allocation: hold.allocation,
                node: self.0.identity.node,
                incarnation: self.0.identity.incarnation,
                gpu: hold.gpu.clone(),
                generation: spec.generation,
                bound_at_ms: now_ms,
            };
            let signature = (self.0.sign)(&body);
            let bytes = canonical::to_vec(&body).expect("bindings are text and whole numbers");
            Bound { body, bytes, signature }.into()
        });
        bound.collect()
    }
}

#[cfg(test)]
mod tests;
