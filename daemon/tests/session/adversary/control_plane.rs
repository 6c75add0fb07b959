//! The honest signer, which no gateway ever is: what it signs, the attacker has, and its keys not.

use std::collections::BTreeSet;

use bc_proto::batch::{Approval, Approved, Document, Leaf, tree};
use bc_proto::canonical;
use bc_proto::id::{AllocationId, BatchId, NodeId, TenantId};
use bc_proto::manifest::Trait;
use bc_proto::rules::approval::{Approver, Policy, Requirement};
use bc_proto::rules::trust::{Publisher, SignedBundle, TrustBundle, command_body};
use bc_proto::sign::body::{CancelBody, SpecBody};
use bc_proto::sign::{Body, PublicKey, SecretKey, WorkerKey, WorkerSignature};
use bc_proto::spec::{Hold, NodeSpec};
use bc_proto::wire::{Deliver, v1};
use serde_json::json;
use uuid::Uuid;

use crate::bench::hostile;
use crate::gateway::{SERVER_TIME_MS as NOW, id, node_id};

pub(super) const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

pub(super) fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32])
}

/// Keys that stand in messages, and whose they are.
pub(super) fn names() -> Vec<(String, &'static str)> {
    let keys =
        [(1, "ROOT"), (3, "APPROVER-A"), (4, "APPROVER-B"), (5, "APPROVER-R"), (6, "PUBLISHER"), (9, "ATTACKER")];
    keys.map(|(seed, name)| (key(seed).public().to_string(), name)).to_vec()
}

pub(super) fn other_node() -> NodeId {
    NodeId::from_uuid(Uuid::from_u128(8))
}

/// What only destructive kinds' signatures cover is covered here.
pub(super) fn traits() -> BTreeSet<Trait> {
    BTreeSet::from([Trait::Destructive, Trait::SelfTerminating])
}

/// Whoever signs: the control plane, or somebody who would like to be it.
pub(super) struct ControlPlane {
    pub(super) worker: WorkerKey,
    secret: SecretKey,
}

impl ControlPlane {
    pub(super) fn honest() -> Self {
        Self::of(&key(1), NOW - HOUR)
    }

    /// Everything as it should be, but for the root.
    pub(super) fn attacker() -> Self {
        Self::of(&key(9), NOW - HOUR)
    }

    /// With a worker key that its root certified from then on for a day.
    pub(super) fn of(root: &SecretKey, from_ms: u64) -> Self {
        let secret = key(2);
        Self { worker: WorkerKey::certify(root, secret.public(), from_ms), secret }
    }

    /// With a worker key that the root itself certified for a week.
    pub(super) fn of_a_week() -> Self {
        let (root, secret, from_ms) = (key(1), key(2), NOW - HOUR);
        let not_after_ms = from_ms + 7 * DAY;
        let body = bc_proto::sign::body::WorkerKeyBody { key: secret.public(), not_before_ms: from_ms, not_after_ms };
        let worker = WorkerKey {
            not_after_ms,
            signature: root.sign(&body),
            ..WorkerKey::certify(&root, secret.public(), from_ms)
        };
        Self { worker, secret }
    }

    /// A worker's key that nobody certified, under a certificate that is another key's.
    pub(super) fn self_made() -> Self {
        let secret = key(9);
        Self { worker: WorkerKey { key: secret.public(), ..Self::honest().worker }, secret }
    }

    pub(super) fn sign_at<B: Body>(&self, body: &B, at_ms: u64) -> WorkerSignature {
        self.worker.sign(&self.secret, body, at_ms)
    }

    pub(super) fn sign<B: Body>(&self, body: &B) -> WorkerSignature {
        self.sign_at(body, NOW)
    }

    pub(super) fn signed_at(&self, deliver: Deliver, at_ms: u64) -> Deliver {
        let payload = canonical::sha256_hex(&canonical::to_vec(&deliver.payload).expect("JSON"));
        let signature = self.sign_at(&command_body(&deliver, &traits(), &payload), at_ms);
        Deliver { signature: Some(signature), ..deliver }
    }

    pub(super) fn signed(&self, deliver: Deliver) -> Deliver {
        self.signed_at(deliver, NOW)
    }

    /// A command whose runs are counted.
    pub(super) fn command(&self, seq: u64) -> Deliver {
        self.signed(counted(seq))
    }

    pub(super) fn cancel(&self, seq: u64) -> WorkerSignature {
        self.sign(&CancelBody { command: id(seq), node: node_id() })
    }

    pub(super) fn spec(&self, node: NodeId, generation: u64) -> v1::Spec {
        let hold = Hold {
            allocation: AllocationId::from_uuid(Uuid::from_u128(u128::from(generation))),
            gpu: format!("GPU-{generation}"),
            slot: None,
        };
        let document = canonical::to_vec(&NodeSpec { generation, holds: vec![hold], ..NodeSpec::default() });
        let document = document.expect("JSON");
        let spec_sha256 = canonical::sha256_hex(&document);
        let signature = self.sign(&SpecBody { node, generation, spec_sha256: &spec_sha256 });
        v1::Spec { document, signature: Some(signature.into()) }
    }
}

/// The command before anybody signed it.
pub(super) fn counted(seq: u64) -> Deliver {
    hostile(seq, json!({ "mode": "effects" }))
}

/// A bundle of the honest root.
pub(super) fn bundle(version: u64) -> TrustBundle {
    TrustBundle { version, roots: vec![key(1).public()], ..TrustBundle::NONE }
}

/// The same, and two of three approvers for what is destructive.
pub(super) fn quorum(version: u64, unbatched_destructive_per_hour: u32) -> TrustBundle {
    let approver =
        |(name, seed): (&str, u8)| Approver { name: name.into(), key: key(seed).public(), groups: Vec::new() };
    let approvers = [("a", 3), ("b", 4), ("requester", 5)].map(approver).to_vec();
    let policy = Policy { approvers, require: vec![Requirement { group: None, count: 2 }] };
    TrustBundle { approvers: Some(policy), unbatched_destructive_per_hour, ..bundle(version) }
}

/// The same as [`bundle`], and a publisher.
pub(super) fn publishing(version: u64) -> TrustBundle {
    TrustBundle { publishers: vec![publisher(key(6).public())], ..bundle(version) }
}

pub(super) fn publisher(key: PublicKey) -> Publisher {
    Publisher { name: "publisher".into(), key }
}

pub(super) fn by_root(bundle: TrustBundle) -> SignedBundle {
    SignedBundle::sign(bundle, &[&key(1)])
}

/// A batch of two leaves, of which the first is this node's; `bound` names its payload.
pub(super) struct Batch {
    pub(super) scope: Vec<Leaf>,
    pub(super) document: Document,
    bound: bool,
}

impl Batch {
    pub(super) fn new(number: u128, bound: bool) -> Self {
        let deliver = counted(1);
        let payload = canonical::sha256_hex(&canonical::to_vec(&deliver.payload).expect("JSON"));
        let leaf = |node: NodeId, payload_sha256| Leaf {
            subject: node.to_string(),
            kind: deliver.kind.clone(),
            payload_sha256,
        };
        let scope = vec![leaf(node_id(), bound.then_some(payload)), leaf(other_node(), None)];
        let document = Document {
            batch_id: BatchId::from_uuid(Uuid::from_u128(number)),
            tenant_id: TenantId::from_uuid(Uuid::from_u128(1)),
            reason: "firmware".into(),
            requested_by: "requester".into(),
            root: hex::encode(tree(&scope).root()),
            size: scope.len() as u64,
            created_at_ms: NOW,
            expires_at_ms: NOW + 600_000,
        };
        Self { scope, document, bound }
    }

    pub(super) fn approval(&self, seed: u8) -> Approval {
        Approval::sign(&key(seed), &self.document, NOW, NOW + 600_000)
    }

    pub(super) fn approved(&self, index: u64) -> Approved {
        Approved {
            document: self.document.clone(),
            index,
            binds_payload: self.bound,
            proof: tree(&self.scope).prove(index).expect("it is there"),
            approvals: vec![self.approval(3), self.approval(4)],
        }
    }

    /// A command of it, approved and signed.
    pub(super) fn command(&self, seq: u64) -> Deliver {
        let deliver = Deliver { batch: Some(self.document.batch_id), ..counted(seq) };
        Deliver { approved: Some(Box::new(self.approved(0))), ..ControlPlane::honest().signed(deliver) }
    }
}
