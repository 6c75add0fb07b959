//! The bodies that are signed, one for each purpose.
//!
//! **Invariant:** a body holds everything that the signature is to settle: what is not in here, whoever relays it may change.

use serde::{Deserialize, Serialize};

use super::{Body, PublicKey, Purpose, Signature};
use crate::id::{AllocationId, BatchId, CommandId, NodeId};
use crate::rules::trust::TrustBundle;

/// An order to a node. What is absent is not written, in every body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandBody<'a> {
    /// The command.
    pub command: CommandId,
    /// The node.
    pub node: NodeId,
    /// The only life of the node that may run it; set for destructive kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// The kind.
    pub kind: &'a str,
    /// SHA-256 of its component, 64 hexadecimal digits. Lane, timeout and traits follow from it.
    pub kind_digest: &'a str,
    /// SHA-256 of the payload's canonical JSON, 64 hexadecimal digits.
    pub payload_sha256: &'a str,
    /// Until when it may be accepted, milliseconds since the Unix epoch.
    pub not_after_ms: u64,
    /// The spec generation that it presupposes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_generation: Option<u64>,
    /// The batch that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Where its file goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadBody<'a>>,
}

/// Where the file of a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadBody<'a> {
    /// Scheme, host, port where it is not the scheme's own, and path. How a URL allows to write there is not signed.
    pub object: &'a str,
    /// The most bytes.
    pub max_bytes: u64,
}

/// Calling a command off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelBody {
    /// The command.
    pub command: CommandId,
    /// The node.
    pub node: NodeId,
}

/// A node's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateBody<'a> {
    /// The command.
    pub command: CommandId,
    /// `succeeded`, `failed`, `cancelled` or `rejected`.
    pub state: &'a str,
    /// SHA-256 of the result exactly as it is stored, 64 hexadecimal digits; of nothing for none.
    pub result_sha256: &'a str,
}

/// A generation of a node's spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecBody<'a> {
    /// The node.
    pub node: NodeId,
    /// The generation.
    pub generation: u64,
    /// SHA-256 of the spec's document exactly as it is stored, 64 hexadecimal digits.
    pub spec_sha256: &'a str,
}

/// A node holds a GPU for an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocationBoundBody {
    /// The allocation.
    pub allocation: AllocationId,
    /// The node.
    pub node: NodeId,
    /// The life of it that holds it.
    pub incarnation: u64,
    /// The GPU's UUID, or that of its MIG instance.
    pub gpu: String,
    /// The generation of the spec that asked for it.
    pub generation: u64,
    /// When it was bound, milliseconds since the Unix epoch, server time.
    pub bound_at_ms: u64,
}

/// An approval: what an approver signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalBody {
    /// The batch as it was shown, whole: its root, reason, requester and end.
    pub batch: crate::batch::Document,
    /// When it was approved, milliseconds since the Unix epoch.
    pub approved_at_ms: u64,
    /// Until when the approval counts.
    pub expires_at_ms: u64,
}

/// A key that signs for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerKeyBody {
    /// The key.
    pub key: PublicKey,
    /// From when it holds, milliseconds since the Unix epoch.
    pub not_before_ms: u64,
    /// Until when it holds.
    pub not_after_ms: u64,
}

/// A component of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KindBody<'a> {
    /// SHA-256 of the component, 64 hexadecimal digits: name, version and all it can do follow from it.
    pub digest: &'a str,
}

/// A binary of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseBody<'a> {
    /// Its version, semver: what it answers when it is asked for it.
    pub version: &'a str,
    /// SHA-256 of the file, 64 hexadecimal digits.
    pub sha256: &'a str,
    /// What it runs on, `x86_64-unknown-linux-gnu` for example.
    pub target: &'a str,
}

/// A node asks for a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRequestBody<'a> {
    /// The command that names it.
    pub command: CommandId,
    /// The node.
    pub node: NodeId,
    /// The reference.
    pub secret_ref: &'a str,
    /// The one-time X25519 key to seal to, 64 hexadecimal digits.
    pub one_time_key: &'a str,
}

/// A secret, sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedSecretBody<'a> {
    /// The command that names it.
    pub command: CommandId,
    /// The node.
    pub node: NodeId,
    /// The reference.
    pub secret_ref: &'a str,
    /// The one-time key that it is sealed to, 64 hexadecimal digits.
    pub one_time_key: &'a str,
    /// SHA-256 of encapsulated key and ciphertext, in that order, 64 hexadecimal digits.
    pub sealed_sha256: &'a str,
}

/// The head of the transparency log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeHeadBody {
    /// How many entries the log has.
    pub size: u64,
    /// The Merkle tree's root, 64 hexadecimal digits.
    pub root: String,
}

/// A root's signature under a trust bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootSignature {
    /// The root.
    pub root: PublicKey,
    /// Its signature, [`Purpose::TrustBundle`].
    pub signature: Signature,
}

macro_rules! purposes {
    ($($body:ty => $purpose:ident;)*) => {$(
        impl Body for $body {
            const PURPOSE: Purpose = Purpose::$purpose;
        }
    )*};
}

purposes! {
    CommandBody<'_> => Command;
    CancelBody => CommandCancel;
    UpdateBody<'_> => CommandUpdate;
    SpecBody<'_> => DesiredState;
    AllocationBoundBody => AllocationBound;
    ApprovalBody => Batch;
    WorkerKeyBody => WorkerKey;
    TrustBundle => TrustBundle;
    KindBody<'_> => Kind;
    ReleaseBody<'_> => Release;
    SecretRequestBody<'_> => SecretRequest;
    SealedSecretBody<'_> => SealedSecret;
    TreeHeadBody => TreeHead;
}
