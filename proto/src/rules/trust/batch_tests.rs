use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::batch::{Approval, Approved, Document, tree};
use crate::id::{BatchId, CommandId, NodeId, TenantId};
use crate::rules::approval::{Approver, Requirement};

const NOW_MS: u64 = 10_000_000;

fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

fn trust(unbatched_destructive_per_hour: u32) -> TrustBundle {
    let approver = |n| Approver { name: format!("approver {n}"), key: key(n).public(), groups: Vec::new() };
    let approvers = Some(Policy {
        approvers: vec![approver(1), approver(2)],
        require: vec![Requirement { group: None, count: 2 }],
    });
    TrustBundle { approvers, unbatched_destructive_per_hour, ..TrustBundle::NONE }
}

fn destructive() -> BTreeSet<Trait> {
    BTreeSet::from([Trait::Destructive])
}

/// A command of an approved batch; its leaf names the payload if `binds`.
fn deliver(binds: bool) -> Deliver {
    let node = NodeId::from_uuid(Uuid::from_u128(7));
    let payload = json!({ "n": 1 });
    let payload_sha256 = canonical::sha256_hex(&canonical::to_vec(&payload).expect("JSON"));
    let leaf = |subject: String, payload_sha256| Leaf { subject, kind: "node.reboot".into(), payload_sha256 };
    let scope = [leaf("node_x".into(), None), leaf(node.to_string(), binds.then_some(payload_sha256))];
    let tree = tree(&scope);
    let document = Document {
        batch_id: BatchId::from_uuid(Uuid::from_u128(1)),
        tenant_id: TenantId::from_uuid(Uuid::from_u128(2)),
        reason: "firmware".into(),
        requested_by: "requester".into(),
        root: hex::encode(tree.root()),
        size: 2,
        created_at_ms: NOW_MS,
        expires_at_ms: NOW_MS + 50_000,
    };
    let approvals = [1, 2].map(|n| Approval::sign(&key(n), &document, NOW_MS, NOW_MS + 10_000)).to_vec();
    let proof = tree.prove(1).expect("it is there");
    Deliver {
        command: CommandId::from_uuid(Uuid::from_u128(3)),
        seq: 1,
        node,
        incarnation: 1,
        kind: "node.reboot".into(),
        kind_digest: "ab".repeat(32),
        payload,
        not_after_ms: NOW_MS + 60_000,
        timeout_ms: 60_000,
        min_generation: None,
        signature: None,
        batch: Some(document.batch_id),
        approved: Some(Box::new(Approved { document, index: 1, binds_payload: binds, proof, approvals })),
        upload: None,
    }
}

type Change = &'static dyn Fn(&mut Deliver);

fn approved(deliver: &mut Deliver) -> &mut Approved {
    deliver.approved.as_mut().expect("it is approved")
}

fn judged(trust: &TrustBundle, deliver: &Deliver, unbatched: u32) -> Result<(), (Refusal, String)> {
    trust.batch(deliver, &destructive(), NOW_MS, unbatched).map_err(|it| (it.refusal, it.why))
}

#[test]
fn what_was_approved_passes_and_each_change_to_it_is_refused() {
    for binds in [false, true] {
        assert_eq!(judged(&trust(0), &deliver(binds), 0), Ok(()));
    }
    let mut other = deliver(false);
    other.payload = json!({ "n": 2 });
    assert_eq!(judged(&trust(0), &other, 0), Ok(()), "its leaf is for any payload");
    let attempts: [(&str, Change); 15] = [
        ("no approvals came with it", &|it| it.approved = None),
        ("no batch at all", &|it| (it.batch, it.approved) = (None, None)),
        ("approvals, and no batch", &|it| it.batch = None),
        ("another batch's approvals", &|it| it.batch = Some(BatchId::from_uuid(Uuid::from_u128(9)))),
        ("another node", &|it| it.node = NodeId::from_uuid(Uuid::from_u128(8))),
        ("another kind", &|it| it.kind = "disk.wipe".into()),
        ("another payload", &|it| it.payload = json!({ "n": 2 })),
        ("a payload that the leaf does not name", &|it| approved(it).binds_payload = false),
        ("another leaf's place", &|it| approved(it).index = 0),
        ("no proof", &|it| approved(it).proof.clear()),
        ("another root", &|it| approved(it).document.root = "00".repeat(32)),
        ("a longer time", &|it| approved(it).document.expires_at_ms += 1),
        ("one approval", &|it| approved(it).approvals.truncate(1)),
        ("one approval twice", &|it| approved(it).approvals[1] = approved(it).approvals[0]),
        ("an approver's own batch", &|it| approved(it).document.requested_by = "approver 1".into()),
    ];
    let mut seen = String::new();
    for (what, change) in attempts {
        let mut changed = deliver(true);
        change(&mut changed);
        let (refusal, why) = judged(&trust(0), &changed, 0).expect_err(what);
        assert_eq!(refusal, Refusal::BatchUnapproved, "{what}");
        seen += &format!("{what}: {why}\n");
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn batches_and_approvals_end() {
    let at = |now_ms| trust(0).batch(&deliver(true), &destructive(), now_ms, 0).map_err(|it| it.why);
    assert_eq!(at(NOW_MS + 9_999), Ok(()));
    let both =
        "2 approvals are missing; the approval of approver 1 has expired; the approval of approver 2 has expired";
    assert_eq!(at(NOW_MS + 10_000), Err(both.into()));
    assert_eq!(at(NOW_MS + 50_000), Err("the batch has expired".into()));
}

#[test]
fn only_destructive_kinds_under_a_policy_need_a_batch() {
    let mut alone = deliver(false);
    (alone.batch, alone.approved) = (None, None);
    assert_eq!(TrustBundle::NONE.batch(&alone, &destructive(), NOW_MS, 99), Ok(()));
    for traits in [BTreeSet::new(), BTreeSet::from([Trait::RetrySafe, Trait::SelfTerminating, Trait::Attested])] {
        assert_eq!(trust(0).batch(&alone, &traits, NOW_MS, 99), Ok(()));
    }
}

#[test]
fn breaking_the_glass_is_for_what_has_no_batch_and_so_often_an_hour() {
    let mut alone = deliver(false);
    (alone.batch, alone.approved) = (None, None);
    assert_eq!(judged(&trust(2), &alone, 1), Ok(()));
    let (refusal, why) = judged(&trust(2), &alone, 2).expect_err("the budget is used up");
    assert_eq!(
        (refusal, &*why),
        (Refusal::UnbatchedLimit, "2 destructive commands an hour are accepted outside batches")
    );
    // Taking the approvals away does not make it a command without a batch.
    let mut stripped = deliver(false);
    stripped.approved = None;
    assert_eq!(judged(&trust(2), &stripped, 0).expect_err("stripped").0, Refusal::BatchUnapproved);
    // What is approved does not touch the budget.
    assert_eq!(judged(&trust(2), &deliver(false), 2), Ok(()));
}
