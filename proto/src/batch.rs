//! Batches of destructive commands: what people approve together, and how a node sees that a command is one of them.
//!
//! **Invariant:** a batch's document names its whole scope by one root. Approvers sign the document; nothing in it, and no leaf
//! below its root, changes without all signatures failing.

use serde::{Deserialize, Serialize};

use crate::canonical;
use crate::id::{BatchId, TenantId};
use crate::merkle::{self, Tree};
use crate::sign::body::ApprovalBody;
use crate::sign::{self, PublicKey, SecretKey, Signature};

/// The most leaves of a batch.
pub const MAX_LEAVES: usize = 10_000;

/// One thing that a batch allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leaf {
    /// What it happens to: for a node's own kinds the node's id.
    pub subject: String,
    /// The kind.
    pub kind: String,
    /// The only payload, by SHA-256 of its canonical JSON, 64 hexadecimal digits; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_sha256: Option<String>,
}

impl Leaf {
    /// What is hashed into the tree: its canonical JSON.
    pub fn bytes(&self) -> Vec<u8> {
        canonical::to_vec(self).expect("text is JSON")
    }
}

/// The tree of a scope, in the scope's order.
pub fn tree(scope: &[Leaf]) -> Tree {
    Tree::new(scope.iter().map(Leaf::bytes))
}

/// What approvers are shown, and sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document {
    /// The batch.
    pub batch_id: BatchId,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// Why, in words.
    pub reason: String,
    /// Who asked for it: the identity's name. An approver of this name does not count.
    pub requested_by: String,
    /// The Merkle root of its scope, 64 hexadecimal digits.
    pub root: String,
    /// How many leaves the scope has.
    pub size: u64,
    /// When it was made, milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Until when its commands may be accepted.
    pub expires_at_ms: u64,
}

/// One approver's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approval {
    /// The approver's key.
    pub approver: PublicKey,
    /// When, milliseconds since the Unix epoch.
    pub approved_at_ms: u64,
    /// Until when it counts.
    pub expires_at_ms: u64,
    /// Signed for [`sign::Purpose::Batch`] over [`ApprovalBody`].
    pub signature: Signature,
}

impl Approval {
    /// Approves a batch.
    pub fn sign(key: &SecretKey, document: &Document, approved_at_ms: u64, expires_at_ms: u64) -> Self {
        let body = ApprovalBody { batch: document.clone(), approved_at_ms, expires_at_ms };
        Self { approver: key.public(), approved_at_ms, expires_at_ms, signature: key.sign(&body) }
    }

    /// Whether its approver signed it for this batch.
    pub fn verify(&self, document: &Document) -> Result<(), sign::Error> {
        let Self { approved_at_ms, expires_at_ms, .. } = *self;
        let body = ApprovalBody { batch: document.clone(), approved_at_ms, expires_at_ms };
        self.approver.verify(&body, &self.signature)
    }
}

/// What goes with a command of an approved batch, for the node to check by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approved {
    /// The batch.
    pub document: Document,
    /// The place of the command's leaf in the scope.
    pub index: u64,
    /// Whether that leaf names the payload.
    pub binds_payload: bool,
    /// The leaf's inclusion proof, hexadecimal.
    #[serde(with = "hex::serde")]
    pub proof: Vec<u8>,
    /// The approvals.
    pub approvals: Vec<Approval>,
}

impl Approved {
    /// Whether a leaf is at its place in the scope.
    pub fn includes(&self, leaf: &Leaf) -> Result<(), merkle::Error> {
        let (index, size) = (self.index, self.document.size);
        let root = hex::decode(&self.document.root).ok().and_then(|root| merkle::Hash::try_from(root).ok());
        let root = root.ok_or(merkle::Error::Malformed { index, size })?;
        merkle::verify(&root, size, &leaf.bytes(), index, &self.proof)
    }
}
