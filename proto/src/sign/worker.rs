//! Worker keys: what a root certifies for a day, and what they sign.
//!
//! The root can stay offline: whoever holds it certifies a new worker key each day. A worker key that leaks is good for what it
//! signs within its day.
//!
//! **Invariant:** what a worker key signed counts only with its certificate from a trusted root, and only for the time in which
//! the key held.

use serde::{Deserialize, Serialize};

use super::body::WorkerKeyBody;
use super::{Body, Error, PublicKey, Purpose, SecretKey, Signature};

/// How long a worker key holds: a day, in milliseconds.
pub const WORKER_VALIDITY_MS: u64 = 24 * 3_600 * 1_000;

/// How far ahead of the verifier's server time a signature may have been made, milliseconds: what two replicas' clocks differ by.
pub const MAX_AHEAD_MS: u64 = 5 * 60 * 1_000;

/// A worker key with its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerKey {
    /// The key.
    pub key: PublicKey,
    /// From when it holds, milliseconds since the Unix epoch.
    pub not_before_ms: u64,
    /// Until when it holds.
    pub not_after_ms: u64,
    /// Who certified it.
    pub root: PublicKey,
    /// The root's signature, [`Purpose::WorkerKey`].
    pub signature: Signature,
}

/// What a worker key signed, and when; the body travels beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSignature {
    /// The key.
    pub worker: WorkerKey,
    /// When it was signed, milliseconds since the Unix epoch.
    pub issued_at_ms: u64,
    /// The signature.
    pub signature: Signature,
}

/// What a worker key signs: a body and the time.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Issued<'a, B> {
    body: &'a B,
    issued_at_ms: u64,
}

impl<B: Body> Body for Issued<'_, B> {
    const PURPOSE: Purpose = B::PURPOSE;
}

impl WorkerKey {
    /// Certifies a key for [`WORKER_VALIDITY_MS`].
    pub fn certify(root: &SecretKey, key: PublicKey, not_before_ms: u64) -> Self {
        let not_after_ms = not_before_ms.saturating_add(WORKER_VALIDITY_MS);
        let signature = root.sign(&WorkerKeyBody { key, not_before_ms, not_after_ms });
        Self { key, not_before_ms, not_after_ms, root: root.public(), signature }
    }

    /// Whether one of these roots certified it, for a day at most.
    pub fn verify(&self, roots: &[PublicKey]) -> Result<(), Error> {
        if !roots.contains(&self.root) {
            return Err(Error::UnknownRoot(self.root));
        }
        let validity = self.not_after_ms.saturating_sub(self.not_before_ms);
        if validity > WORKER_VALIDITY_MS {
            return Err(Error::LongWorkerKey(validity));
        }
        let Self { key, not_before_ms, not_after_ms, .. } = *self;
        self.root.verify(&WorkerKeyBody { key, not_before_ms, not_after_ms }, &self.signature)
    }

    /// Signs a body with this key's secret half.
    pub fn sign<B: Body>(&self, secret: &SecretKey, body: &B, issued_at_ms: u64) -> WorkerSignature {
        let signature = secret.sign(&Issued { body, issued_at_ms });
        WorkerSignature { worker: *self, issued_at_ms, signature }
    }
}

impl WorkerSignature {
    /// Whether a worker of one of these roots signed the body while its key held. `now_ms` is the verifier's server time; a
    /// signature from further ahead than [`MAX_AHEAD_MS`] is refused. How old it may be is the body's business.
    pub fn verify<B: Body>(&self, body: &B, roots: &[PublicKey], now_ms: u64) -> Result<(), Error> {
        self.worker.verify(roots)?;
        let (WorkerKey { not_before_ms, not_after_ms, .. }, issued_at_ms) = (self.worker, self.issued_at_ms);
        if !(not_before_ms..=not_after_ms).contains(&issued_at_ms) {
            return Err(Error::ExpiredWorkerKey { not_before_ms, not_after_ms, issued_at_ms });
        }
        if issued_at_ms > now_ms.saturating_add(MAX_AHEAD_MS) {
            return Err(Error::ClockFarOff { issued_at_ms, now_ms });
        }
        self.worker.key.verify(&Issued { body, issued_at_ms }, &self.signature)
    }
}
