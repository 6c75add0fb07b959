//! Which bundles are taken, and what a bundle lets pass.

use std::collections::BTreeSet;

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::id::{BatchId, CommandId, NodeId};
use crate::sign::WorkerKey;

const NOW: u64 = 1_800_000_000_000;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32])
}

fn bundle(version: u64, roots: &[u8]) -> TrustBundle {
    TrustBundle { version, roots: roots.iter().map(|seed| key(*seed).public()).collect(), ..TrustBundle::NONE }
}

fn signed(bundle: TrustBundle, by: &[u8]) -> SignedBundle {
    let keys: Vec<_> = by.iter().map(|seed| key(*seed)).collect();
    SignedBundle::sign(bundle, &keys.iter().collect::<Vec<_>>())
}

#[test]
fn a_rotation_goes_from_the_old_root_over_both_to_the_new_one_and_never_back() {
    let old = signed(bundle(1, &[1]), &[1]).accept(&TrustBundle::NONE).expect("the first").expect("it is new");
    let both = signed(bundle(2, &[1, 2]), &[1]).accept(&old).expect("the old one vouches").expect("it is new");
    let new = signed(bundle(3, &[2]), &[2]).accept(&both).expect("both are trusted").expect("it is new");
    assert_eq!(new, bundle(3, &[2]));
    let skipped = signed(bundle(3, &[2]), &[2]).accept(&old);
    assert_eq!(skipped, Err(NotTrusted::NoTrustedRoot), "nobody vouches for it here");
    let back = signed(bundle(2, &[1, 2]), &[1, 2]).accept(&new);
    assert_eq!(back, Err(NotTrusted::RolledBack { offered: 2, current: 3 }));
    let gone = signed(bundle(4, &[1]), &[1]).accept(&new);
    assert_eq!(gone, Err(NotTrusted::NoTrustedRoot), "the old root's word counts no more");
    let none = signed(bundle(4, &[]), &[1]).accept(&new);
    assert_eq!(none, Err(NotTrusted::NoTrustedRoot), "signing is not switched off by a stranger");
}

#[test]
fn the_same_version_is_known_or_a_contradiction() {
    let current = bundle(2, &[1]);
    assert_eq!(signed(bundle(2, &[1]), &[1]).accept(&current), Ok(None));
    assert_eq!(signed(bundle(2, &[1]), &[]).accept(&current), Ok(None), "nothing is taken, so nobody need vouch");
    let other = TrustBundle { unbatched_destructive_per_hour: 9, ..bundle(2, &[1]) };
    assert_eq!(signed(other, &[1]).accept(&current), Err(NotTrusted::SameVersion(2)));
}

#[test]
fn a_forged_bundle_is_refused_whatever_it_claims() {
    let current = bundle(1, &[1]);
    let wrong = Err(NotTrusted::Signature(sign::Error::Wrong(sign::Purpose::TrustBundle)));
    // A stranger's signature under the root's name, and the root's under something else.
    let mut forged = signed(bundle(2, &[1, 9]), &[9]);
    forged.signatures[0].root = key(1).public();
    assert_eq!(forged.accept(&current), wrong);
    let mut moved = signed(bundle(2, &[1]), &[1]);
    moved.bundle = bundle(2, &[1, 9]);
    assert_eq!(moved.accept(&current), wrong);
    // The first roots vouch for themselves.
    assert_eq!(signed(bundle(1, &[1]), &[9]).accept(&TrustBundle::NONE), Err(NotTrusted::NoTrustedRoot));
    assert_eq!(signed(bundle(1, &[1]), &[]).accept(&TrustBundle::NONE), Err(NotTrusted::NoTrustedRoot));
    assert!(signed(bundle(1, &[]), &[]).accept(&TrustBundle::NONE).is_ok(), "limits without roots");
}

#[test]
fn what_is_left_of_a_lost_bundle_lets_nothing_pass_and_takes_what_its_roots_say() {
    let lost = TrustBundle::lost(5, vec![key(1).public()]);
    let refused = lost.signature(&deliver(), &BTreeSet::new(), NOW).expect_err("nothing passes");
    assert_eq!(refused.refusal, Refusal::BadSignature);
    assert!(refused.why.contains("damaged or gone"), "{}", refused.why);
    let body = CancelBody { command: deliver().command, node: deliver().node };
    assert_eq!(lost.cancel(&body, None, NOW), Err(sign::Error::TrustLost));
    assert_eq!(signed(bundle(3, &[1]), &[1]).accept(&lost), Err(NotTrusted::RolledBack { offered: 3, current: 4 }));
    assert_eq!(signed(bundle(5, &[2]), &[2]).accept(&lost), Err(NotTrusted::NoTrustedRoot));
    assert_eq!(signed(bundle(5, &[1]), &[1]).accept(&lost), Ok(Some(bundle(5, &[1]))), "the same again");
    assert!(TrustBundle::lost(5, Vec::new()).signature(&deliver(), &BTreeSet::new(), NOW).is_err());
}

type Change = fn(&mut Deliver);

fn deliver() -> Deliver {
    Deliver {
        command: CommandId::from_uuid(Uuid::from_u128(1)),
        seq: 1,
        node: NodeId::from_uuid(Uuid::from_u128(2)),
        incarnation: 3,
        kind: "node.wipe".into(),
        kind_digest: "ab".repeat(32),
        payload: json!({ "b": 1, "a": [1.5, "é"] }),
        not_after_ms: NOW + 1,
        timeout_ms: 60_000,
        min_generation: Some(4),
        signature: None,
        batch: Some(BatchId::from_uuid(Uuid::from_u128(5))),
        approved: None,
        upload: None,
    }
}

#[test]
fn every_change_to_a_signed_command_is_found() {
    let trust = bundle(1, &[1]);
    let traits = BTreeSet::from([Trait::Destructive]);
    let worker = WorkerKey::certify(&key(1), key(2).public(), NOW);
    let hash = payload_sha256(&deliver());
    let signature = worker.sign(&key(2), &command_body(&deliver(), &traits, &hash), NOW);
    let good = Deliver { signature: Some(signature), ..deliver() };
    trust.signature(&good, &traits, NOW).expect("it is as it was signed");
    let changes: [(&str, Change); 10] = [
        ("unsigned", |it| it.signature = None),
        ("command", |it| it.command = CommandId::from_uuid(Uuid::from_u128(9))),
        ("node", |it| it.node = NodeId::from_uuid(Uuid::from_u128(9))),
        ("incarnation", |it| it.incarnation = 4),
        ("kind", |it| it.kind = "node.look".into()),
        ("digest", |it| it.kind_digest = "ac".repeat(32)),
        ("payload", |it| it.payload["b"] = json!(2)),
        ("deadline", |it| it.not_after_ms += 1),
        ("generation", |it| it.min_generation = None),
        ("batch", |it| it.batch = None),
    ];
    for (what, change) in changes {
        let mut altered = good.clone();
        change(&mut altered);
        let refused = trust.signature(&altered, &traits, NOW).expect_err(what);
        assert_eq!(refused.refusal, Refusal::BadSignature, "{what}");
    }
    // Not signed, since each follows from what is, or is the gateway's business.
    let mut free = good.clone();
    (free.seq, free.timeout_ms) = (7, 1);
    trust.signature(&free, &traits, NOW).expect("still the same");
    assert!(trust.signature(&good, &BTreeSet::new(), NOW).is_err(), "for a harmless kind no life is signed");
}
