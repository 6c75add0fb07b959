//! Signatures: who signs what, over which exact bytes.
//!
//! All are Ed25519 (RFC 8032, verified strictly) over `better-compute.v1.<purpose>`, a zero byte, and the body as canonical JSON
//! (RFC 8785). What a worker key signs, it signs as `{"body":…,"issuedAtMs":…}`. The vectors in `proto/vectors/sign.json` give
//! keys, bodies, bytes and signatures, for other languages.
//!
//! **Invariant:** a signature for one purpose never verifies for another: the purpose is part of the signed bytes, and no purpose
//! contains a zero byte.

pub mod body;
mod key;
mod worker;

use serde::Serialize;

pub use self::key::{KeyError, PublicKey, SecretKey, Signature};
pub use self::worker::{MAX_AHEAD_MS, WORKER_VALIDITY_MS, WorkerKey, WorkerSignature};
use crate::canonical;

/// What a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "kebab-case")]
pub enum Purpose {
    /// The control plane's order to a node; by a worker key.
    Command,
    /// Calling a command off; by a worker key.
    CommandCancel,
    /// A node's result; by the node's key.
    CommandUpdate,
    /// A generation of a node's spec; by a worker key.
    DesiredState,
    /// A node holds a GPU for an allocation; by the node's key.
    AllocationBound,
    /// An approval of a batch; by an approver's key.
    Batch,
    /// A worker key; by a root.
    WorkerKey,
    /// What nodes trust; by a root.
    TrustBundle,
    /// A component of a kind; by its publisher's key.
    Kind,
    /// A binary of the daemon; by its publisher's key.
    Release,
    /// A node's one-time key for a secret; by the node's key.
    SecretRequest,
    /// A secret that was sealed to it; by a worker key.
    SealedSecret,
    /// The head of the transparency log; by a worker key.
    TreeHead,
}

/// What is signed for one purpose.
pub trait Body: Serialize {
    /// The purpose.
    const PURPOSE: Purpose;
}

/// Why a signature does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("there is no signature")]
    Missing,
    /// Whoever verifies has lost what it trusts.
    #[error("this node's trust bundle is damaged or gone: it takes nothing until a root that it knows sends it again")]
    TrustLost,
    /// It is no signature at all.
    #[error("a signature has 64 bytes, this one has {0}")]
    Truncated(usize),
    /// It is not over these bytes, or not by this key.
    #[error("the {0} signature does not fit what it should sign")]
    Wrong(Purpose),
    /// Nobody here trusts the root.
    #[error("the worker key was certified by a root that is not trusted: {0}")]
    UnknownRoot(PublicKey),
    /// It was signed after its worker key's end, or before its beginning.
    #[error(
        "the worker key was not valid when it signed: it holds from {not_before_ms} to {not_after_ms}, and signed at {issued_at_ms}"
    )]
    ExpiredWorkerKey {
        /// The beginning.
        not_before_ms: u64,
        /// The end.
        not_after_ms: u64,
        /// When it signed.
        issued_at_ms: u64,
    },
    /// A worker key that claims to live longer than a day.
    #[error("a worker key is valid for at most a day, this one for {0} ms")]
    LongWorkerKey(u64),
    /// Signed in the future, as the verifier's clock has it.
    #[error("the clocks are far apart: signed at {issued_at_ms}, and it is {now_ms} here")]
    ClockFarOff {
        /// When it was signed.
        issued_at_ms: u64,
        /// Now.
        now_ms: u64,
    },
}

/// The exact bytes that are signed.
pub fn signed_bytes<B: Body>(body: &B) -> Vec<u8> {
    let mut bytes = format!("better-compute.v1.{}\0", B::PURPOSE).into_bytes();
    bytes.extend(canonical::to_vec(body).expect("bodies are JSON: text keys and whole numbers"));
    bytes
}

#[cfg(test)]
mod tests;
