//! Signing for the control plane: what nodes are told to trust, and the worker key that signs what they are sent.
//!
//! Only what decides has a [`Signer`]: the API, the modules and the loops that act for them. The gateway has none. It relays what
//! was signed and stored, so that whoever owns a gateway can delay, drop and read, and nothing else.
//!
//! **Invariant:** the root's secret signs worker keys and trust bundles, and nothing else. A signature is made with the worker key
//! that holds at that time; one that is about to end is replaced before.

pub mod bundle;

use std::sync::{Arc, Mutex, PoisonError};

use bc_proto::rules::approval::Policy;
use bc_proto::rules::trust::Publisher;
use bc_proto::sign::{Body, MAX_AHEAD_MS, PublicKey, SecretKey, WORKER_VALIDITY_MS, WorkerKey, WorkerSignature};
use time::OffsetDateTime;

use crate::store::unix_ms;
use crate::world::World;

/// A worker key is replaced when it has less than this left, milliseconds: what it signs last is still well inside its day.
const RENEW_MS: u64 = WORKER_VALIDITY_MS / 4;

/// What the operator of the control plane decides of trust: the table `[pki]`.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The root of command signing; without it commands go unsigned.
    pub command_signing: Option<SecretKey>,
    /// In its place a worker key that its owner certified elsewhere, for its day.
    pub worker: Option<(WorkerKey, SecretKey)>,
    /// Other roots that nodes trust, during a rotation.
    pub command_signing_roots: Vec<PublicKey>,
    /// Who approves destructive batches; without it batches are recorded for audit only.
    pub approvers: Option<Policy>,
    /// How many destructive commands outside batches a node accepts in an hour.
    pub unbatched_destructive_per_hour: u32,
    /// Who signs kinds; empty where unsigned ones are registered and loaded.
    pub publishers: Vec<Publisher>,
    /// The trust bundle's version is never below this.
    pub trust_version: u64,
}

impl Settings {
    /// Whether commands are signed.
    pub fn signs(&self) -> bool {
        self.command_signing.is_some() || self.worker.is_some()
    }

    /// Whether a destructive command must be in an approved batch: every node would refuse it otherwise.
    pub fn requires_batches(&self) -> bool {
        self.approvers.is_some() && self.unbatched_destructive_per_hour == 0
    }
}

/// Signs with a worker key. Cheap to clone; clones share the key.
#[derive(Clone, Default)]
pub struct Signer(Option<Arc<Inner>>);

struct Inner {
    /// Certifies new worker keys; absent where that is done elsewhere.
    root: Option<SecretKey>,
    world: World,
    /// The key that signs now.
    worker: Mutex<(WorkerKey, SecretKey)>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Signer")
            .field(&self.0.as_ref().and_then(|inner| inner.root.as_ref()).map(SecretKey::public))
            .finish()
    }
}

impl Signer {
    /// Signs nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Signs with worker keys of a root.
    pub fn new(root: SecretKey, world: World) -> Self {
        let worker = issue(&root, &world, unix_ms(world.now()));
        Self(Some(Arc::new(Inner { root: Some(root), world, worker: Mutex::new(worker) })))
    }

    /// Signs with one worker key, whose day ends; nodes refuse what it signs later.
    pub fn of_worker(worker: (WorkerKey, SecretKey), world: World) -> Self {
        Self(Some(Arc::new(Inner { root: None, world, worker: Mutex::new(worker) })))
    }

    /// What the settings ask for.
    pub fn of(settings: &Settings, world: &World) -> Self {
        match (&settings.command_signing, &settings.worker) {
            (Some(root), _) => Self::new(root.clone(), world.clone()),
            (None, Some(worker)) => Self::of_worker(worker.clone(), world.clone()),
            (None, None) => Self::none(),
        }
    }

    /// Whether what nodes get is signed.
    pub fn signs(&self) -> bool {
        self.0.is_some()
    }

    /// Signs a body at a time; `None` where nothing is signed.
    pub fn sign<B: Body>(&self, body: &B, now: OffsetDateTime) -> Option<WorkerSignature> {
        Some(self.worker(now)?.sign(body, now))
    }

    /// The key that signs at a time, for many bodies; `None` where nothing is signed.
    pub fn worker(&self, now: OffsetDateTime) -> Option<Worker> {
        let (key, secret) = self.0.as_ref()?.worker(unix_ms(now));
        Some(Worker { key, secret })
    }
}

/// The worker key of one moment.
pub struct Worker {
    key: WorkerKey,
    secret: SecretKey,
}

impl Worker {
    /// The key, with its certificate.
    pub fn key(&self) -> &WorkerKey {
        &self.key
    }

    /// Signs a body at the time that the key was taken for.
    pub fn sign<B: Body>(&self, body: &B, now: OffsetDateTime) -> WorkerSignature {
        self.key.sign(&self.secret, body, unix_ms(now))
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Worker").field(&self.key.key).finish()
    }
}

impl Inner {
    /// The key that holds at a time and for a while after it.
    fn worker(&self, now_ms: u64) -> (WorkerKey, SecretKey) {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = worker.0.not_before_ms <= now_ms && now_ms.saturating_add(RENEW_MS) < worker.0.not_after_ms;
        match &self.root {
            Some(root) if !holds => *worker = issue(root, &self.world, now_ms),
            None if now_ms >= worker.0.not_after_ms => {
                tracing::error!(key = %worker.0.key, "the worker key's day is over: nodes refuse what it signs");
            }
            _ => {}
        }
        worker.clone()
    }
}

fn issue(root: &SecretKey, world: &World, now_ms: u64) -> (WorkerKey, SecretKey) {
    let secret = SecretKey::from_seed(world.bytes());
    // Somebody may have read the clock a moment earlier, and sign with this key.
    (WorkerKey::certify(root, secret.public(), now_ms.saturating_sub(MAX_AHEAD_MS)), secret)
}

#[cfg(test)]
mod tests {
    use bc_proto::id::{CommandId, NodeId};
    use bc_proto::sign::body::CancelBody;
    use sqlx::types::Uuid;
    use time::Duration;

    use super::*;

    #[test]
    fn a_worker_key_is_replaced_before_its_end() {
        let root = SecretKey::from_seed([1; 32]);
        let roots = [root.public()];
        let signer = Signer::new(root, World::real());
        let body = CancelBody { command: CommandId::from_uuid(Uuid::nil()), node: NodeId::from_uuid(Uuid::nil()) };
        let now = World::real().now();
        let mut keys = std::collections::BTreeSet::new();
        for hours in 0..48 {
            let at = now + Duration::hours(hours);
            let made = signer.sign(&body, at).expect("it signs");
            made.verify(&body, &roots, unix_ms(at)).expect("it holds");
            keys.insert(made.worker.key);
        }
        assert_eq!(keys.len(), 3, "each signs for three quarters of its day");
        assert!(Signer::none().sign(&body, now).is_none());
    }
}
