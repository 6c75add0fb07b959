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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn scope(count: u32) -> Vec<Leaf> {
        let leaf = |n| Leaf { subject: format!("node_{n}"), kind: "node.reboot".into(), payload_sha256: None };
        (0..count).map(leaf).collect()
    }

    fn document(scope: &[Leaf]) -> Document {
        Document {
            batch_id: BatchId::from_uuid(Uuid::from_u128(1)),
            tenant_id: TenantId::from_uuid(Uuid::from_u128(2)),
            reason: "firmware".into(),
            requested_by: "ada".into(),
            root: hex::encode(tree(scope).root()),
            size: scope.len() as u64,
            created_at_ms: 1_000,
            expires_at_ms: 9_000,
        }
    }

    fn approved(scope: &[Leaf], index: u64) -> Approved {
        let proof = tree(scope).prove(index).expect("it is there");
        Approved { document: document(scope), index, binds_payload: false, proof, approvals: Vec::new() }
    }

    #[test]
    fn a_leaf_is_in_the_scope_at_its_place_and_nowhere_else() {
        let scope = scope(5);
        for (index, leaf) in scope.iter().enumerate() {
            let right = approved(&scope, index as u64);
            assert_eq!(right.includes(leaf), Ok(()));
            let bound = Leaf { payload_sha256: Some("ab".repeat(32)), ..leaf.clone() };
            assert_eq!(right.includes(&bound), Err(merkle::Error::OtherLeaf), "a payload is part of the leaf");
            let other = Leaf { kind: "gpu.reset".into(), ..leaf.clone() };
            assert_eq!(right.includes(&other), Err(merkle::Error::OtherLeaf));
            let elsewhere = Approved { index: (index as u64 + 1) % 5, ..right.clone() };
            assert!(elsewhere.includes(leaf).is_err());
            let past = Approved { index: 5, ..right.clone() };
            assert_eq!(past.includes(leaf), Err(merkle::Error::Malformed { index: 5, size: 5 }));
        }
    }

    #[test]
    fn a_proof_is_for_one_size_and_one_root() {
        let scope = scope(5);
        let right = approved(&scope, 3);
        let with = |change: &dyn Fn(&mut Document)| {
            let mut changed = right.clone();
            change(&mut changed.document);
            changed.includes(&scope[3])
        };
        for size in [0, 1, 3, 4, 9, u64::MAX] {
            assert!(with(&|it| it.size = size).is_err(), "{size}");
        }
        assert_eq!(with(&|it| it.root = "00".repeat(32)), Err(merkle::Error::OtherLeaf));
        let malformed = Err(merkle::Error::Malformed { index: 3, size: 5 });
        for root in ["", "zz", &"00".repeat(31)] {
            assert_eq!(with(&|it| it.root = root.to_owned()), malformed);
        }
        let truncated = Approved { proof: right.proof[..31].to_vec(), ..right.clone() };
        assert_eq!(truncated.includes(&scope[3]), malformed);
        let none = Approved { proof: Vec::new(), ..right };
        assert_eq!(none.includes(&scope[3]), malformed);
    }

    #[test]
    fn an_approval_is_for_every_word_of_the_document_and_for_its_own_times() {
        let key = SecretKey::from_seed([7; 32]);
        let document = document(&scope(3));
        let approval = Approval::sign(&key, &document, 2_000, 5_000);
        assert_eq!(approval.verify(&document), Ok(()));
        let changes: [&dyn Fn(&mut Document); 8] = [
            &|it| it.batch_id = BatchId::from_uuid(Uuid::from_u128(9)),
            &|it| it.tenant_id = TenantId::from_uuid(Uuid::from_u128(9)),
            &|it| it.reason += ".",
            &|it| it.requested_by = "bob".into(),
            &|it| it.root = "00".repeat(32),
            &|it| it.size += 1,
            &|it| it.created_at_ms += 1,
            &|it| it.expires_at_ms += 1,
        ];
        let wrong = Err(sign::Error::Wrong(sign::Purpose::Batch));
        for change in changes {
            let mut swapped = document.clone();
            change(&mut swapped);
            assert_eq!(approval.verify(&swapped), wrong, "{swapped:?}");
        }
        assert_eq!(Approval { approved_at_ms: 2_001, ..approval }.verify(&document), wrong);
        assert_eq!(Approval { expires_at_ms: 5_001, ..approval }.verify(&document), wrong);
        assert_eq!(Approval { approver: SecretKey::from_seed([8; 32]).public(), ..approval }.verify(&document), wrong);
    }
}
