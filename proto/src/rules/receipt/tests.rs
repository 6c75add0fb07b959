//! A whole receipt, and every way in which it can be wrong.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::audit::{CancelRequested, Head};
use crate::batch::{Approval, Document, tree};
use crate::merkle::stored::{Frontier, Plan, leaf_hash};
use crate::receipt::{Logged, NotAReceipt, VERSION};
use crate::sign::{Purpose, SecretKey, WorkerKey};

const NOW: u64 = 1_800_000_000_000;

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// Who signs, and what is to be in the receipt. Tests change it before it is put together.
struct Case {
    root: SecretKey,
    worker: (WorkerKey, SecretKey),
    approver: SecretKey,
    node_key: SecretKey,
    queued: Queued,
    settled: Settled,
    document: Document,
    scope: Vec<Leaf>,
    /// What stands in the log beside: entries of others.
    others: u64,
}

const RESULT: &[u8] = br#"{"wiped":true}"#;
const CERTIFICATE: &[u8] = b"a certificate";

impl Case {
    fn new() -> Self {
        let key = |byte| SecretKey::from_seed([byte; 32]);
        let (root, worker, approver, node_key) = (key(1), key(2), key(3), key(4));
        let worker = (WorkerKey::certify(&root, worker.public(), NOW - 1_000), worker);
        let (tenant, node) = (TenantId::from_uuid(uuid(1)), NodeId::from_uuid(uuid(2)));
        let (command, batch) = (CommandId::from_uuid(uuid(3)), BatchId::from_uuid(uuid(4)));
        let scope: Vec<_> = ["disk.wipe", "node.reboot", "gpu.reset"]
            .map(|kind| Leaf { subject: node.to_string(), kind: kind.into(), payload_sha256: Some("ab".repeat(32)) })
            .into();
        let document = Document {
            batch_id: batch,
            tenant_id: tenant,
            reason: "retired".into(),
            requested_by: "ann".into(),
            root: hex::encode(tree(&scope).root()),
            size: 3,
            created_at_ms: NOW - 900,
            expires_at_ms: NOW + 900_000,
        };
        let mut queued = Queued {
            tenant,
            command,
            node,
            incarnation: 2,
            kind: "disk.wipe".into(),
            kind_digest: "cd".repeat(32),
            payload_sha256: "ab".repeat(32),
            not_after_ms: NOW + 600_000,
            min_generation: None,
            batch: Some(batch),
            requested_by: Some("ann".into()),
            upload: None,
            signature: None,
            at_ms: NOW - 800,
        };
        queued.signature = Some(worker.0.sign(&worker.1, &queued.signed_body(), NOW - 800));
        let mut settled = Settled {
            tenant,
            command,
            node,
            state: "succeeded".into(),
            reason: String::new(),
            result_sha256: Some(sha256_hex(RESULT)),
            decided_by: Decider::Node,
            node_sig: None,
            node_certificate_sha256: Some(sha256_hex(CERTIFICATE)),
            at_ms: NOW - 100,
        };
        settled.node_sig = settled.signed_body().map(|body| node_key.sign(&body));
        Self { root, worker, approver, node_key, queued, settled, document, scope, others: 5 }
    }

    fn batch(&self) -> Batch {
        Batch {
            tenant: self.queued.tenant,
            topic: "batch.approved".into(),
            batch: self.queued.batch,
            document_sha256: Some(sha256_hex(&canonical::to_vec(&self.document).expect("JSON"))),
            approval: Some(self.approval()),
            facts: json!({ "reason": "retired" }),
            at_ms: NOW - 900,
        }
    }

    fn cancel(&self) -> Entry {
        let Queued { tenant, command, node, .. } = self.queued;
        Entry::CancelRequested(CancelRequested { tenant, command, node, at_ms: NOW - 500 })
    }

    fn entries(&self) -> Vec<Entry> {
        let queued = Entry::CommandQueued(self.queued.clone());
        vec![Entry::Batch(self.batch()), queued, self.cancel(), Entry::CommandSettled(self.settled.clone())]
    }

    fn receipt(&self) -> Receipt {
        self.receipt_of(&self.entries().iter().map(Entry::bytes).collect::<Vec<_>>())
    }

    /// A receipt of these leaves: between them, before and after, stand others.
    fn receipt_of(&self, leaves: &[Vec<u8>]) -> Receipt {
        let mut log: Vec<Vec<u8>> = Vec::new();
        let mut places = Vec::new();
        for leaf in leaves {
            log.extend((0..self.others).map(|n| format!("other {n}").into_bytes()));
            places.push(log.len() as u64);
            log.push(leaf.clone());
        }
        log.push(b"the last".to_vec());
        let (mut frontier, mut kept) = (Frontier::default(), BTreeMap::new());
        for leaf in &log {
            kept.extend(frontier.push(leaf_hash(leaf)));
        }
        let size = frontier.size();
        let logged = |(&index, leaf): (&u64, &Vec<u8>)| Logged {
            index,
            body: String::from_utf8(leaf.clone()).expect("text"),
            proof: Plan::inclusion(index, size).and_then(|it| it.prove(&kept)).expect("it is in there"),
        };
        let mut head = Head { size, root: hex::encode(frontier.root()), signature: None };
        head.signature = Some(self.worker.0.sign(&self.worker.1, &head.body(), NOW - 50));
        Receipt {
            version: VERSION,
            head,
            entries: places.iter().zip(leaves).map(logged).collect(),
            approved: Some(self.approved()),
            result: Some(STANDARD.encode(RESULT)),
            node_certificate: Some(STANDARD.encode(CERTIFICATE)),
        }
    }

    fn approved(&self) -> Approved {
        Approved {
            document: self.document.clone(),
            index: 0,
            binds_payload: true,
            proof: tree(&self.scope).prove(0).expect("it is in there"),
            approvals: vec![self.approval()],
        }
    }

    fn approval(&self) -> Approval {
        Approval::sign(&self.approver, &self.document, NOW - 850, NOW + 850)
    }

    fn verify(&self, receipt: &Receipt) -> Result<Proven, Invalid> {
        let roots = [self.root.public()];
        let node = Some((self.queued.node, self.node_key.public()));
        verify(receipt, Trusted { roots: &roots, node, now_ms: NOW })
    }

    /// Verifies what these entries come to, with all proofs and signatures of the log in order.
    fn verify_entries(&self, entries: &[Entry]) -> Result<Proven, Invalid> {
        self.verify(&self.receipt_of(&entries.iter().map(Entry::bytes).collect::<Vec<_>>()))
    }
}

#[test]
fn a_whole_receipt_proves_order_approval_and_result() {
    let case = Case::new();
    let proven = case.verify(&case.receipt()).expect("it holds");
    assert_eq!((proven.command, proven.node, proven.batch), (case.queued.command, case.queued.node, case.queued.batch));
    assert!(proven.is_head_signed && proven.is_command_signed);
    assert_eq!(proven.approvers, [case.approver.public()]);
    let outcome = proven.outcome.expect("it ended");
    assert_eq!((outcome.state.as_str(), outcome.attested), ("succeeded", Attested::Yes));
    let unchecked = Trusted { roots: &[case.root.public()], node: None, now_ms: NOW };
    let outcome = verify(&case.receipt(), unchecked).expect("it holds").outcome;
    assert_eq!(outcome.map(|it| it.attested), Some(Attested::NotChecked));
}

#[test]
fn a_receipt_may_be_made_before_the_end_and_without_signatures() {
    let mut case = Case::new();
    case.queued.signature = None;
    case.queued.batch = None;
    let mut receipt = case.receipt_of(&[Entry::CommandQueued(case.queued.clone()).bytes()]);
    (receipt.approved, receipt.result, receipt.node_certificate) = (None, None, None);
    let proven = case.verify(&receipt).expect("it holds");
    assert!(proven.outcome.is_none() && !proven.is_command_signed && proven.is_head_signed);
    receipt.head.signature = None;
    assert_eq!(case.verify(&receipt), Err(Invalid::HeadUnsigned));
    let nobody = Trusted { roots: &[], node: None, now_ms: NOW };
    assert!(!verify(&receipt, nobody).expect("nobody is expected to sign").is_head_signed);
}

#[test]
fn every_wrong_part_is_an_error_of_its_own() {
    let case = Case::new();
    let change = |change: &dyn Fn(&mut Receipt)| {
        let mut receipt = case.receipt();
        change(&mut receipt);
        case.verify(&receipt).expect_err("it does not hold")
    };
    let wrong = |purpose| sign::Error::Wrong(purpose);
    let index = case.receipt().entries[1].index;
    let stranger = SecretKey::from_seed([9; 32]);
    assert_eq!(change(&|it| it.head.root.push('0')), Invalid::Root);
    assert_eq!(change(&|it| it.head.root.make_ascii_uppercase()), Invalid::Root);
    assert_eq!(change(&|it| it.head.signature = None), Invalid::HeadUnsigned);
    assert_eq!(change(&|it| it.head.size += 1), Invalid::Head(wrong(Purpose::TreeHead)));
    let inclusion = |error| Invalid::Inclusion { index, error };
    assert_eq!(change(&|it| it.entries[1].proof[7] ^= 1), inclusion(merkle::Error::OtherLeaf));
    assert_eq!(change(&|it| it.entries[1].body.push(' ')), inclusion(merkle::Error::OtherLeaf));
    let size = case.receipt().head.size;
    assert_eq!(change(&|it| it.entries[1].proof.clear()), inclusion(merkle::Error::Malformed { index, size }));
    assert_eq!(change(&|it| it.entries.swap(0, 1)), Invalid::Disorder(case.receipt().entries[0].index));
    assert_eq!(change(&|it| it.entries.insert(1, it.entries[1].clone())), Invalid::Disorder(index));
    assert_eq!(change(&|it| drop(it.entries.remove(1))), Invalid::NoOrder);
    assert_eq!(change(&|it| it.result = Some(STANDARD.encode(b"{}"))), Invalid::Result);
    assert_eq!(change(&|it| it.result = Some("?".into())), Invalid::Result);
    assert_eq!(change(&|it| it.result = None), Invalid::Result);
    assert_eq!(change(&|it| it.result = Some(String::new())), Invalid::Result);
    assert_eq!(change(&|it| it.node_certificate = None), Invalid::Certificate);
    assert_eq!(change(&|it| it.node_certificate = Some(STANDARD.encode(b"other"))), Invalid::Certificate);
    assert_eq!(change(&|it| drop(it.entries.pop())), Invalid::Result);
    let scope = Invalid::Scope(merkle::Error::OtherLeaf);
    assert_eq!(change(&|it| it.approved.as_mut().expect("there").binds_payload = false), scope);
    assert_eq!(change(&|it| it.approved.as_mut().expect("there").index = 1), scope);
    assert_eq!(change(&|it| it.approved.as_mut().expect("there").document.reason.push('!')), Invalid::OtherDocument);
    let forged = change(&|it| {
        let approvals = &mut it.approved.as_mut().expect("there").approvals;
        approvals[0].approver = stranger.public();
    });
    assert_eq!(forged, Invalid::Approval { approver: stranger.public(), error: wrong(Purpose::Batch) });
    assert_eq!(change(&|it| it.approved.as_mut().expect("there").approvals.clear()), Invalid::OtherApprovals);
    let later = |it: &mut Receipt| {
        let approvals = &mut it.approved.as_mut().expect("there").approvals;
        approvals.push(Approval::sign(&stranger, &case.document, NOW, NOW + 850));
    };
    assert_eq!(change(&later), Invalid::OtherApprovals);
    let roots = [stranger.public()];
    let other_root = verify(&case.receipt(), Trusted { roots: &roots, node: None, now_ms: NOW });
    assert_eq!(other_root, Err(Invalid::Head(sign::Error::UnknownRoot(case.root.public()))));
    let node = |id, key: &SecretKey| {
        let roots = [case.root.public()];
        verify(&case.receipt(), Trusted { roots: &roots, node: Some((id, key.public())), now_ms: NOW })
    };
    let other = NodeId::from_uuid(uuid(77));
    assert_eq!(node(other, &case.node_key), Err(Invalid::OtherNode(other)));
    assert_eq!(node(case.queued.node, &stranger), Err(Invalid::Attestation(wrong(Purpose::CommandUpdate))));
}

/// A log whose every proof holds, and that says what cannot be: what the control plane itself would have to forge.
#[test]
fn a_log_that_contradicts_itself_proves_nothing() {
    let case = Case::new();
    let [batch, queued, cancel, settled] = case.entries().try_into().expect("four");
    let index = |at: u64| (case.others + 1) * at + case.others;
    let verify = |entries: &[&Entry]| {
        let entries: Vec<Entry> = entries.iter().copied().cloned().collect();
        case.verify_entries(&entries).expect_err("it does not hold")
    };
    assert_eq!(verify(&[&batch, &queued, &queued, &settled]), Invalid::Twice(index(2)));
    assert_eq!(verify(&[&batch, &queued, &settled, &settled]), Invalid::Twice(index(3)));
    assert_eq!(verify(&[&batch, &settled, &queued]), Invalid::EndedBefore(index(1)));
    let Entry::CancelRequested(mut stray) = cancel else { panic!("a cancel") };
    stray.command = CommandId::from_uuid(uuid(88));
    let stray = Entry::CancelRequested(stray);
    assert_eq!(verify(&[&batch, &queued, &stray, &settled]), Invalid::Stray(index(2)));
    let other = Entry::Batch(Batch { batch: Some(BatchId::from_uuid(uuid(89))), ..case.batch() });
    assert_eq!(verify(&[&other, &queued, &settled]), Invalid::Stray(index(0)));
    let nameless = Entry::Batch(Batch { batch: None, ..case.batch() });
    assert_eq!(verify(&[&nameless, &queued, &settled]), Invalid::Stray(index(0)));
    let document = Entry::Batch(Batch { document_sha256: Some("00".repeat(32)), ..case.batch() });
    assert_eq!(verify(&[&document, &queued, &settled]), Invalid::OtherDocument);
    let moved = Entry::CommandQueued(Queued { incarnation: 3, ..case.queued.clone() });
    assert_eq!(verify(&[&batch, &moved, &settled]), Invalid::Order(sign::Error::Wrong(Purpose::Command)));
    let better = Entry::CommandSettled(Settled { state: "failed".into(), ..case.settled.clone() });
    let forged = Invalid::Attestation(sign::Error::Wrong(Purpose::CommandUpdate));
    assert_eq!(verify(&[&batch, &queued, &better]), forged);
    let unknown = case.verify(&case.receipt_of(&[br#"{"entry":"tea"}"#.to_vec()]));
    assert_eq!(unknown, Err(Invalid::NotAnEntry(index(0))));
}

#[test]
fn what_is_no_receipt_is_told_from_one_that_does_not_hold() {
    let good = serde_json::to_value(Case::new().receipt()).expect("JSON");
    let parse = |value: &Value| Receipt::parse(value.to_string().as_bytes());
    assert!(parse(&good).is_ok());
    assert!(matches!(Receipt::parse(b"%PDF"), Err(NotAReceipt::Form(_))));
    let mut newer = good.clone();
    newer["version"] = json!(2);
    assert!(matches!(parse(&newer), Err(NotAReceipt::Version(2))));
    let mut more = good.clone();
    more["note"] = json!("x");
    assert!(matches!(parse(&more), Err(NotAReceipt::Form(_))));
    let mut shouted = good;
    let proof = shouted["entries"][0]["proof"].as_str().expect("text").to_uppercase();
    shouted["entries"][0]["proof"] = json!(proof);
    assert!(matches!(parse(&shouted), Err(NotAReceipt::OtherForm)));
}

/// All leaves of a JSON value.
fn leaves<'a>(value: &'a mut Value, into: &mut Vec<&'a mut Value>) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|it| leaves(it, into)),
        Value::Array(items) => items.iter_mut().for_each(|it| leaves(it, into)),
        leaf => into.push(leaf),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn no_byte_of_a_receipt_can_be_changed(leaf in any::<Index>(), at in any::<Index>(), bit in 0_u32..7) {
        let case = Case::new();
        let mut value = serde_json::to_value(case.receipt()).expect("JSON");
        let mut all = Vec::new();
        leaves(&mut value, &mut all);
        let leaf = leaf.index(all.len());
        match &mut *all[leaf] {
            Value::String(text) => {
                let mut bytes = std::mem::take(text).into_bytes();
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
                *text = String::from_utf8(bytes).expect("ASCII stays ASCII");
            }
            Value::Number(number) => *number = (number.as_u64().expect("whole") ^ (1 << bit)).into(),
            Value::Bool(flag) => *flag = !*flag,
            other => panic!("{other}"),
        }
        let holds = Receipt::parse(value.to_string().as_bytes()).is_ok_and(|it| case.verify(&it).is_ok());
        prop_assert!(!holds, "{value}");
    }
}
