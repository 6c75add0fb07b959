//! The transparency log: what stands in it, and its head.
//!
//! A leaf of its Merkle tree is an entry's canonical JSON, to the byte. Payloads and results are not in there, only their hashes:
//! whoever may see those can check that they are the ones.
//!
//! **Invariant:** an entry is made of what stood in the rows when it was logged, and never changes. A field that is absent was not
//! known then.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::batch::Approval;
use crate::canonical;
use crate::id::{BatchId, CommandId, NodeId, TenantId};
use crate::merkle::Hash;
use crate::sign::body::{CommandBody, TreeHeadBody, UpdateBody, UploadBody};
use crate::sign::{Signature, WorkerSignature};

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum Entry {
    /// A destructive command was queued.
    CommandQueued(Queued),
    /// Somebody called it off.
    CancelRequested(CancelRequested),
    /// It is over.
    CommandSettled(Settled),
    /// A batch was made, approved, rejected or the like.
    Batch(Batch),
}

/// A destructive command, as it was queued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queued {
    /// Whose it is.
    pub tenant: TenantId,
    /// The command.
    pub command: CommandId,
    /// The node.
    pub node: NodeId,
    /// The only life of the node that may run it.
    pub incarnation: u64,
    /// The kind.
    pub kind: String,
    /// SHA-256 of its component, 64 hexadecimal digits.
    pub kind_digest: String,
    /// SHA-256 of the payload's canonical JSON, 64 hexadecimal digits.
    pub payload_sha256: String,
    /// Until when it may be accepted, milliseconds since the Unix epoch.
    pub not_after_ms: u64,
    /// The spec generation that it presupposes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_generation: Option<u64>,
    /// The batch that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Who asked for it: the identity's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Where its file goes; absent where it uploads none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Box<Upload>>,
    /// The control plane's signature over [`CommandBody`]; absent where commands go unsigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<WorkerSignature>,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// Where the file of a command goes. What allows to write there is not in here, nor anywhere else that lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upload {
    /// Scheme, host, port where it is not the scheme's own, and path.
    pub object: String,
    /// The most bytes.
    pub max_bytes: u64,
}

/// Somebody called a command off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelRequested {
    /// Whose it is.
    pub tenant: TenantId,
    /// The command.
    pub command: CommandId,
    /// The node.
    pub node: NodeId,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// Who says how a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Decider {
    /// The node reported it.
    Node,
    /// The control plane settled it, a deadline for example.
    ControlPlane,
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settled {
    /// Whose it is.
    pub tenant: TenantId,
    /// The command.
    pub command: CommandId,
    /// The node.
    pub node: NodeId,
    /// `succeeded`, `failed`, `rejected`, `expired` or `cancelled`.
    pub state: String,
    /// Why, as a stable code; empty for success.
    pub reason: String,
    /// SHA-256 of the result exactly as it is stored, 64 hexadecimal digits; of nothing for none. Absent when the result was
    /// dropped before it was logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_sha256: Option<String>,
    /// Who says so.
    pub decided_by: Decider,
    /// The node's signature over [`UpdateBody`], of attested kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_sig: Option<Signature>,
    /// SHA-256 of the certificate, DER, whose key made it, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_certificate_sha256: Option<String>,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// Something about a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    /// Whose it is.
    pub tenant: TenantId,
    /// What: `batch.created`, `batch.approved`, `batch.rejected`, ….
    pub topic: String,
    /// The batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// SHA-256 of the batch's document as canonical JSON, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_sha256: Option<String>,
    /// The approval that came in with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The event's other particulars, as watchers get them.
    pub facts: Value,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: u64,
}

impl Entry {
    /// The leaf: its canonical JSON.
    pub fn bytes(&self) -> Vec<u8> {
        canonical::to_vec(self).expect("text keys and whole numbers are JSON")
    }

    /// The command that it is about.
    pub const fn command(&self) -> Option<CommandId> {
        match self {
            Self::CommandQueued(it) => Some(it.command),
            Self::CancelRequested(it) => Some(it.command),
            Self::CommandSettled(it) => Some(it.command),
            Self::Batch(_) => None,
        }
    }

    /// The batch that it is about, or that its command belongs to.
    pub const fn batch(&self) -> Option<BatchId> {
        match self {
            Self::CommandQueued(it) => it.batch,
            Self::Batch(it) => it.batch,
            Self::CancelRequested(_) | Self::CommandSettled(_) => None,
        }
    }

    /// Whose it is.
    pub const fn tenant(&self) -> TenantId {
        match self {
            Self::CommandQueued(it) => it.tenant,
            Self::CancelRequested(it) => it.tenant,
            Self::CommandSettled(it) => it.tenant,
            Self::Batch(it) => it.tenant,
        }
    }
}

impl Queued {
    /// What the control plane signs of it.
    pub fn signed_body(&self) -> CommandBody<'_> {
        CommandBody {
            command: self.command,
            node: self.node,
            incarnation: Some(self.incarnation),
            kind: &self.kind,
            kind_digest: &self.kind_digest,
            payload_sha256: &self.payload_sha256,
            not_after_ms: self.not_after_ms,
            min_generation: self.min_generation,
            batch: self.batch,
            upload: self.upload.as_ref().map(|it| UploadBody { object: &it.object, max_bytes: it.max_bytes }),
        }
    }
}

impl Settled {
    /// What the node signs of it, where its result is known.
    pub fn signed_body(&self) -> Option<UpdateBody<'_>> {
        let result_sha256 = self.result_sha256.as_deref()?;
        Some(UpdateBody { command: self.command, state: &self.state, result_sha256 })
    }
}

/// The head of the log: all of it in one hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Head {
    /// How many entries the log has.
    pub size: u64,
    /// The Merkle tree's root, 64 hexadecimal digits.
    pub root: String,
    /// The control plane's signature over [`TreeHeadBody`]; absent where nothing is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<WorkerSignature>,
}

impl Head {
    /// What is signed of it.
    pub fn body(&self) -> TreeHeadBody {
        TreeHeadBody { size: self.size, root: self.root.clone() }
    }

    /// Its root, if it is one.
    pub fn hash(&self) -> Option<Hash> {
        hash(&self.root)
    }
}

/// The hash that 64 lower-case hexadecimal digits mean.
pub fn hash(text: &str) -> Option<Hash> {
    let hash = hex::decode(text).ok().and_then(|bytes| Hash::try_from(bytes).ok())?;
    (hex::encode(hash) == text).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_from_before_uploads_is_read_and_has_the_same_bytes() {
        let id = "00000000000000000000000001";
        let old = format!(
            "{{\"atMs\":1,\"command\":\"cmd_{id}\",\"entry\":\"command-queued\",\"incarnation\":1,\"kind\":\"k\",\
             \"kindDigest\":\"ab\",\"node\":\"node_{id}\",\"notAfterMs\":2,\"payloadSha256\":\"cd\",\"tenant\":\"tenant_{id}\"}}"
        );
        let entry: Entry = serde_json::from_str(&old).expect("it is an entry");
        assert_eq!(String::from_utf8(entry.bytes()).expect("text"), old);
        let Entry::CommandQueued(mut order) = entry else { panic!("it is an order") };
        assert_eq!(order.signed_body().upload, None);
        order.upload = Some(Box::new(Upload { object: "https://s3.example/b/k".into(), max_bytes: 5 }));
        let signed = order.signed_body().upload.expect("it is signed with it");
        assert_eq!((signed.object, signed.max_bytes), ("https://s3.example/b/k", 5));
        let again: Entry = serde_json::from_slice(&Entry::CommandQueued(order.clone()).bytes()).expect("an entry");
        assert_eq!(again, Entry::CommandQueued(order));
    }
}
