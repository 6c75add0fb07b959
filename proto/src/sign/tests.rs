//! The vectors, every error, and every byte of every envelope.

use ed25519_dalek::{Signature as Raw, Verifier as _, VerifyingKey};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;
use uuid::Uuid;

use super::body::{
    AllocationBoundBody, ApprovalBody, CancelBody, CommandBody, KindBody, ReleaseBody, SealedSecretBody,
    SecretRequestBody, SpecBody, TreeHeadBody, UpdateBody, WorkerKeyBody,
};
use super::*;
use crate::batch::{Approval, Document};
use crate::id::{AllocationId, BatchId, CommandId, NodeId, TenantId};
use crate::rules::approval::{Approver, Policy, Requirement};
use crate::rules::trust::{Publisher, SignedBundle, TrustBundle};

const NOW: u64 = 1_800_000_000_000;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32])
}

fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn document() -> Document {
    Document {
        batch_id: BatchId::from_uuid(uuid(3)),
        tenant_id: TenantId::from_uuid(uuid(4)),
        reason: "rack 7 \u{2192} retired".into(),
        requested_by: "ops".into(),
        root: "cd".repeat(32),
        size: 2,
        created_at_ms: NOW,
        expires_at_ms: NOW + 3_600_000,
    }
}

fn bundle() -> TrustBundle {
    let approver = |name: &str, seed| Approver { name: name.into(), key: key(seed).public(), groups: vec!["a".into()] };
    TrustBundle {
        version: 7,
        roots: vec![key(1).public(), key(9).public()],
        approvers: Some(Policy {
            approvers: vec![approver("anna", 4), approver("ben", 5)],
            require: vec![Requirement { group: Some("a".into()), count: 2 }],
        }),
        unbatched_destructive_per_hour: 3,
        publishers: vec![Publisher { name: "maker".into(), key: key(6).public() }],
        ..TrustBundle::NONE
    }
}

type Verify = Box<dyn Fn(&Signature) -> bool>;

/// Something that was signed: what the vectors hold of it, and what a verifier does with it.
struct Signed {
    purpose: Purpose,
    by: &'static str,
    seed: u8,
    body: Value,
    issued_at_ms: Option<u64>,
    bytes: Vec<u8>,
    signature: Signature,
    verify: Verify,
}

fn signed<B: Body + Clone + 'static>(by: &'static str, seed: u8, body: B) -> Signed {
    let signer = key(seed);
    let issued_at_ms = (by == "worker").then_some(NOW);
    let value = serde_json::to_value(&body).expect("JSON");
    let under = issued_at_ms.map_or_else(|| value.clone(), |at| json!({ "body": value, "issuedAtMs": at }));
    let mut bytes = format!("better-compute.v1.{}\0", B::PURPOSE).into_bytes();
    bytes.extend(canonical::to_vec(&under).expect("JSON"));
    let (signature, verify): (_, Verify) = if issued_at_ms.is_some() {
        let root = key(1);
        let made = WorkerKey::certify(&root, signer.public(), NOW - 1_000).sign(&signer, &body, NOW);
        let roots = [root.public()];
        let verify =
            move |it: &Signature| WorkerSignature { signature: *it, ..made }.verify(&body, &roots, NOW).is_ok();
        (made.signature, Box::new(verify))
    } else {
        let public = signer.public();
        (signer.sign(&body), Box::new(move |it: &Signature| public.verify(&body, it).is_ok()))
    };
    Signed { purpose: B::PURPOSE, by, seed, body: value, issued_at_ms, bytes, signature, verify }
}

/// One for each purpose.
fn all() -> Vec<Signed> {
    let (command, node) = (CommandId::from_uuid(uuid(1)), NodeId::from_uuid(uuid(2)));
    let hash = "ab".repeat(32).leak();
    let key_hex = "07".repeat(32).leak();
    vec![
        signed(
            "worker",
            2,
            CommandBody {
                command,
                node,
                incarnation: Some(3),
                kind: "node.wipe",
                kind_digest: hash,
                payload_sha256: hash,
                not_after_ms: NOW + 600_000,
                min_generation: None,
                batch: Some(BatchId::from_uuid(uuid(3))),
                upload: None,
            },
        ),
        signed("worker", 2, CancelBody { command, node }),
        signed("node", 3, UpdateBody { command, state: "succeeded", result_sha256: hash }),
        signed("worker", 2, SpecBody { node, generation: 12, spec_sha256: hash }),
        signed(
            "node",
            3,
            AllocationBoundBody {
                allocation: AllocationId::from_uuid(uuid(5)),
                node,
                incarnation: 3,
                gpu: "GPU-1".into(),
                generation: 12,
                bound_at_ms: NOW,
            },
        ),
        signed("approver", 4, ApprovalBody { batch: document(), approved_at_ms: NOW, expires_at_ms: NOW + 60_000 }),
        signed(
            "root",
            1,
            WorkerKeyBody { key: key(2).public(), not_before_ms: NOW - 1_000, not_after_ms: NOW + 86_399_000 },
        ),
        signed("root", 1, bundle()),
        signed("publisher", 6, KindBody { digest: hash }),
        signed("publisher", 6, ReleaseBody { version: "1.2.3", sha256: hash, target: "x86_64-unknown-linux-gnu" }),
        signed("node", 3, SecretRequestBody { command, node, secret_ref: "token", one_time_key: key_hex }),
        signed(
            "worker",
            2,
            SealedSecretBody { command, node, secret_ref: "token", one_time_key: key_hex, sealed_sha256: hash },
        ),
        signed("worker", 2, TreeHeadBody { size: 9, root: "cd".repeat(32) }),
    ]
}

#[test]
fn the_vectors_are_what_this_version_signs() {
    let all = all();
    let purposes: Vec<_> = all.iter().map(|it| it.purpose).collect();
    assert_eq!(purposes, Purpose::iter().collect::<Vec<_>>(), "one for each");
    let vectors: Vec<_> = all
        .iter()
        .map(|it| {
            let mut vector = json!({
                "purpose": it.purpose.to_string(), "by": it.by, "seed": hex::encode([it.seed; 32]),
                "publicKey": key(it.seed).public(), "body": it.body, "signedBytes": hex::encode(&it.bytes),
                "signature": it.signature,
            });
            if let Some(at) = it.issued_at_ms {
                vector["issuedAtMs"] = json!(at);
            }
            vector
        })
        .collect();
    let text = serde_json::to_string_pretty(&vectors).expect("JSON") + "\n";
    assert!(include_str!("../../vectors/sign.json") == text, "the vectors are others now:\n{text}");
    for it in &all {
        let raw = Raw::from_bytes(it.signature.as_bytes());
        let public = VerifyingKey::from_bytes(key(it.seed).public().as_bytes()).expect("a key");
        public.verify(&it.bytes, &raw).unwrap_or_else(|error| panic!("{}: {error}", it.purpose));
        assert!((it.verify)(&it.signature), "{}", it.purpose);
    }
}

#[test]
fn no_signature_for_one_purpose_verifies_for_another() {
    #[derive(Clone, serde::Serialize)]
    struct Same(CancelBody);
    impl Body for Same {
        const PURPOSE: Purpose = Purpose::Command;
    }
    let body = CancelBody { command: CommandId::from_uuid(uuid(1)), node: NodeId::from_uuid(uuid(2)) };
    let signature = key(1).sign(&body);
    assert_eq!(key(1).public().verify(&Same(body.clone()), &signature), Err(Error::Wrong(Purpose::Command)));
    assert_eq!(key(1).public().verify(&body, &signature), Ok(()));
    assert_eq!(key(2).public().verify(&body, &signature), Err(Error::Wrong(Purpose::CommandCancel)));
}

#[test]
fn keys_of_other_types_are_named_as_such() {
    macro_rules! read {
        ($name:literal) => {
            include_str!(concat!("../../vectors/keys/", $name, ".pem"))
        };
    }
    for (name, private, public) in [
        ("p256", read!("p256"), read!("p256.pub")),
        ("rsa", read!("rsa"), read!("rsa.pub")),
        ("x25519", read!("x25519"), read!("x25519.pub")),
    ] {
        assert_eq!(SecretKey::from_pem(private).map(drop), Err(KeyError::WrongType), "{name}");
        assert_eq!(PublicKey::from_pem(public), Err(KeyError::WrongType), "{name}");
        assert_eq!(SecretKey::from_pem(public).map(drop), Err(KeyError::NotPem("PRIVATE KEY")), "{name}");
        assert_eq!(PublicKey::from_pem(private), Err(KeyError::NotPem("PUBLIC KEY")), "{name}");
    }
    let ours = SecretKey::from_pem(read!("ed25519")).expect("as openssl writes it");
    assert_eq!(PublicKey::from_pem(read!("ed25519.pub")), Ok(ours.public()));
    assert_eq!(SecretKey::from_pem(&ours.to_pem()).expect("our own").public(), ours.public());
    assert_eq!(PublicKey::from_pem(&ours.public().to_pem()), Ok(ours.public()));
    for text in ["", "x", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"] {
        assert!(SecretKey::from_pem(text).is_err() && PublicKey::from_pem(text).is_err(), "{text}");
    }
    assert_eq!("12".parse::<PublicKey>(), Err(KeyError::NotHex));
    assert_eq!("zz".repeat(32).parse::<PublicKey>(), Err(KeyError::NotHex));
    // y = 2 is on no point of the curve.
    assert_eq!(format!("02{}", "00".repeat(31)).parse::<PublicKey>(), Err(KeyError::NotAPoint));
    assert!(!format!("{ours:?}").contains(&hex::encode(ours.to_pem())), "a secret is not shown");
}

#[test]
fn each_way_in_which_a_worker_s_signature_does_not_count_has_its_own_error() {
    let (root, worker) = (key(1), key(2));
    let roots = [root.public()];
    let body = CancelBody { command: CommandId::from_uuid(uuid(1)), node: NodeId::from_uuid(uuid(2)) };
    let certified = WorkerKey::certify(&root, worker.public(), NOW);
    let at = |issued_at_ms| certified.sign(&worker, &body, issued_at_ms);
    assert_eq!(at(NOW).verify(&body, &roots, NOW), Ok(()));
    assert_eq!(at(NOW).verify(&body, &roots, NOW + 365 * WORKER_VALIDITY_MS), Ok(()), "its age is the body's business");
    assert_eq!(at(NOW).verify(&body, &[], NOW), Err(Error::UnknownRoot(root.public())));
    let expired = |issued_at_ms| Error::ExpiredWorkerKey {
        not_before_ms: NOW,
        not_after_ms: NOW + WORKER_VALIDITY_MS,
        issued_at_ms,
    };
    for issued_at_ms in [NOW - 1, NOW + WORKER_VALIDITY_MS + 1] {
        assert_eq!(at(issued_at_ms).verify(&body, &roots, NOW), Err(expired(issued_at_ms)));
    }
    let ahead = NOW + MAX_AHEAD_MS + 1;
    assert_eq!(at(ahead).verify(&body, &roots, NOW), Err(Error::ClockFarOff { issued_at_ms: ahead, now_ms: NOW }));
    assert_eq!(at(ahead).verify(&body, &roots, NOW + 1), Ok(()));
    // A certificate that its holder has stretched, and one that the root itself made too long.
    let stretched = WorkerKey { not_after_ms: NOW + WORKER_VALIDITY_MS + 1, ..certified };
    assert_eq!(stretched.verify(&roots), Err(Error::LongWorkerKey(WORKER_VALIDITY_MS + 1)));
    let early = WorkerKey { not_before_ms: NOW + 1, ..certified };
    assert_eq!(early.verify(&roots), Err(Error::Wrong(Purpose::WorkerKey)));
    let later = WorkerSignature { issued_at_ms: NOW + 1, ..at(NOW) };
    assert_eq!(later.verify(&body, &roots, NOW), Err(Error::Wrong(Purpose::CommandCancel)));
    assert_eq!(Signature::from_slice(&[]), Err(Error::Missing));
    assert_eq!(Signature::from_slice(&[1; 63]), Err(Error::Truncated(63)));
    assert_eq!(Signature::from_slice(&[1; 65]), Err(Error::Truncated(65)));
}

/// Whatever a flipped bit makes of an envelope's JSON: it does not parse, it means the same, or it is not believed.
fn flip<T: DeserializeOwned + PartialEq>(original: &T, text: &str, bit: u8, believed: impl Fn(&T) -> bool) {
    assert!(believed(original));
    for at in 0..text.len() {
        let mut bytes = text.as_bytes().to_vec();
        bytes[at] ^= 1 << bit;
        if let Ok(changed) = serde_json::from_slice::<T>(&bytes) {
            let same = changed == *original;
            assert!(same || !believed(&changed), "byte {at}, bit {bit}: {}", String::from_utf8_lossy(&bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_flipped_bit_anywhere_under_or_in_a_signature_is_found(bit in 0_u8..8) {
        for it in all() {
            let public = VerifyingKey::from_bytes(key(it.seed).public().as_bytes()).expect("a key");
            let raw = Raw::from_bytes(it.signature.as_bytes());
            for at in 0..it.bytes.len() {
                let mut bytes = it.bytes.clone();
                bytes[at] ^= 1 << bit;
                prop_assert!(public.verify(&bytes, &raw).is_err(), "{}: byte {at}, bit {bit}", it.purpose);
            }
            for at in 0..64 {
                let mut signature = *it.signature.as_bytes();
                signature[at] ^= 1 << bit;
                let signature = Signature::from_slice(&signature).expect("64 bytes");
                prop_assert!(!(it.verify)(&signature), "{}: byte {at} of the signature, bit {bit}", it.purpose);
            }
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_in_an_envelope_is_found(bit in 0_u8..8) {
        let (root, roots) = (key(1), [key(1).public()]);
        let worker = WorkerKey::certify(&root, key(2).public(), NOW);
        flip(&worker, &serde_json::to_string(&worker).expect("JSON"), bit, |it| it.verify(&roots).is_ok());

        let body = CancelBody { command: CommandId::from_uuid(uuid(1)), node: NodeId::from_uuid(uuid(2)) };
        let made = worker.sign(&key(2), &body, NOW);
        let text = serde_json::to_string(&made).expect("JSON");
        flip(&made, &text, bit, |it| it.verify(&body, &roots, NOW).is_ok());

        let approval = Approval::sign(&key(4), &document(), NOW, NOW + 1);
        let text = serde_json::to_string(&approval).expect("JSON");
        flip(&approval, &text, bit, |it| it.verify(&document()).is_ok());
        let text = serde_json::to_string(&document()).expect("JSON");
        flip(&document(), &text, bit, |it| approval.verify(it).is_ok());

        let trusted = TrustBundle { version: 1, roots: roots.to_vec(), ..TrustBundle::NONE };
        let bundle = SignedBundle::sign(bundle(), &[&root]);
        let text = serde_json::to_string(&bundle).expect("JSON");
        flip(&bundle, &text, bit, |it| matches!(it.clone().accept(&trusted), Ok(Some(_))));
    }
}
