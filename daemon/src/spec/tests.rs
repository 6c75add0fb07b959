//! Specs that come: which count, and what is left of them after a restart.

use std::fs;

use bc_proto::id::{AllocationId, NodeId};
use bc_proto::manifest::Role;
use bc_proto::rules::trust::{SignedBundle, TrustBundle};
use bc_proto::sign::{SecretKey, WorkerKey};
use bc_proto::spec::{Hold, HostSettings};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;

const NOW_MS: u64 = 1_000_000;

struct Bench {
    folder: TempDir,
    trust: Trust,
}

fn root() -> SecretKey {
    SecretKey::from_seed([1; 32])
}

fn node_key() -> SecretKey {
    SecretKey::from_seed([2; 32])
}

fn identity() -> Identity {
    Identity {
        node: NodeId::from_uuid(Uuid::from_u128(7)),
        incarnation: 3,
        role: Role::Host,
        boot: "boot-1".into(),
        version: "1.0.0".into(),
    }
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), trust: Trust::default() }
    }

    /// Trusts the root of command signing.
    fn signed() -> Self {
        let bench = Self::new();
        let bundle = TrustBundle { version: 1, roots: vec![root().public()], ..TrustBundle::NONE };
        assert!(bench.trust.offer(SignedBundle::sign(bundle, &[&root()])).expect("the first roots are taken"));
        bench
    }

    fn open(&self) -> Desired {
        let sign = Box::new(|body: &AllocationBoundBody| node_key().sign(body));
        Desired::open(self.folder.path(), identity(), sign, self.trust.clone()).expect("a disk")
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    }
}

fn spec(generation: u64) -> NodeSpec {
    let hold = Hold { allocation: AllocationId::from_uuid(Uuid::from_u128(9)), gpu: "GPU-a".into(), slot: None };
    let host = HostSettings { huge_pages_1g: Some(4), ..HostSettings::default() };
    NodeSpec { generation, holds: vec![hold], host, ..NodeSpec::default() }
}

fn document(spec: &NodeSpec) -> Vec<u8> {
    canonical::to_vec(spec).expect("JSON")
}

fn unsigned(document: Vec<u8>) -> v1::Spec {
    v1::Spec { document, signature: None }
}

/// Signed for this node as the control plane does.
fn signed(document: Vec<u8>, generation: u64, by: &SecretKey) -> v1::Spec {
    let worker = SecretKey::from_seed([5; 32]);
    let sha256 = canonical::sha256_hex(&document);
    let body = SpecBody { node: identity().node, generation, spec_sha256: &sha256 };
    let signature = WorkerKey::certify(by, worker.public(), NOW_MS).sign(&worker, &body, NOW_MS);
    v1::Spec { document, signature: Some(signature.into()) }
}

#[tokio::test]
async fn a_spec_counts_once_it_is_kept_and_an_older_one_changes_nothing() {
    let bench = Bench::new();
    let desired = bench.open();
    assert_eq!((desired.generation(), desired.held().is_free("GPU-a", &[])), (0, Ok(())));
    let document = document(&spec(2));
    assert_eq!(desired.offer(unsigned(document.clone()), NOW_MS).await, Offered::Applied(2));
    assert!(desired.held().is_free("GPU-a", &[]).is_err());
    let kept = fs::read(bench.folder.path().join("spec")).expect("it is kept");
    assert!(kept.ends_with(&document), "to the byte");

    let empty = |generation| unsigned(self::document(&NodeSpec { generation, ..NodeSpec::default() }));
    for generation in [1, 2] {
        assert_eq!(desired.offer(empty(generation), NOW_MS).await, Offered::Old);
    }
    for desired in [desired, bench.open()] {
        assert_eq!((desired.generation(), &*desired.held().now()), (2, &spec(2)));
        assert_eq!(desired.rejected(), None);
    }
    assert_eq!(bench.open().offer(empty(3), NOW_MS).await, Offered::Applied(3));
    assert_eq!(bench.open().held().is_free("GPU-a", &[]), Ok(()));
}

#[tokio::test]
async fn a_spec_that_does_not_read_is_not_applied_and_says_so() {
    let bench = Bench::new();
    let desired = bench.open();
    desired.offer(unsigned(document(&spec(1))), NOW_MS).await;
    for (document, why) in [
        (&b"{"[..], "does not read"),
        (br#"{"generation":5,"holds":[],"fans":"loud"}"#, "unknown field `fans`"),
        (br#"{"generation":5,"holds":[{"gpu":"GPU-a"}]}"#, "missing field `allocation`"),
        (br#"{"holds":[]}"#, "missing field `generation`"),
        (br#"{"generation":0}"#, "generation 0"),
    ] {
        assert_eq!(desired.offer(unsigned(document.to_vec()), NOW_MS).await, Offered::Rejected);
        let said = desired.rejected().expect("a reason");
        assert!(said.contains(why), "{why}: {said}");
        assert_eq!((desired.generation(), bench.open().generation()), (1, 1));
    }
    assert_eq!(desired.offer(unsigned(document(&spec(2))), NOW_MS).await, Offered::Applied(2));
    assert_eq!(desired.rejected(), None, "what came after it is right");
}

#[tokio::test]
async fn with_roots_only_what_the_control_plane_signed_for_this_node_counts() {
    let bench = Bench::signed();
    let desired = bench.open();
    let good = signed(document(&spec(4)), 4, &root());
    let of = |change: &dyn Fn(&mut v1::Spec)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad
    };
    let other_node = {
        let (worker, sha256) = (SecretKey::from_seed([5; 32]), canonical::sha256_hex(&good.document));
        let body = SpecBody { node: NodeId::from_uuid(Uuid::from_u128(8)), generation: 4, spec_sha256: &sha256 };
        let signature = WorkerKey::certify(&root(), worker.public(), NOW_MS).sign(&worker, &body, NOW_MS);
        v1::Spec { document: good.document.clone(), signature: Some(signature.into()) }
    };
    for (bad, why) in [
        (unsigned(good.document.clone()), "there is no signature"),
        (signed(good.document.clone(), 4, &SecretKey::from_seed([9; 32])), "not trusted"),
        (signed(good.document.clone(), 5, &root()), "does not fit"),
        (of(&|it| it.document = document(&NodeSpec { generation: 4, ..NodeSpec::default() })), "does not fit"),
        (other_node, "does not fit"),
        (of(&|it| it.signature.as_mut().expect("signed").signature.truncate(63)), "must have 64 bytes"),
        (of(&|it| it.signature.as_mut().expect("signed").worker = None), "must be there"),
    ] {
        assert_eq!(desired.offer(bad, NOW_MS).await, Offered::Rejected, "{why}");
        let said = desired.rejected().expect("a reason");
        assert!(said.contains(why), "{why}: {said}");
    }
    assert_eq!(desired.offer(good.clone(), NOW_MS - 600_000).await, Offered::Rejected, "signed in the future");
    assert_eq!((desired.generation(), bench.files()), (0, vec![]));
    assert_eq!(desired.offer(good, NOW_MS).await, Offered::Applied(4));
}

#[tokio::test]
async fn no_byte_of_a_signed_spec_can_be_changed() {
    let bench = Bench::signed();
    let desired = bench.open();
    let good = signed(document(&spec(4)), 4, &root());
    for at in 0..good.document.len() {
        let mut bad = good.clone();
        bad.document[at] ^= 1;
        assert_eq!(desired.offer(bad, NOW_MS).await, Offered::Rejected, "byte {at}");
    }
    for at in 0..64 {
        let mut bad = good.clone();
        bad.signature.as_mut().expect("signed").signature[at] ^= 1;
        assert_eq!(desired.offer(bad, NOW_MS).await, Offered::Rejected, "byte {at} of the signature");
    }
    assert_eq!(desired.generation(), 0);
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_the_node_asks_again() {
    let bench = Bench::new();
    bench.open().offer(unsigned(document(&spec(2))), NOW_MS).await;
    let path = bench.folder.path().join("spec");
    let good = fs::read(&path).expect("it is kept");
    for (n, damage) in [good[..40].to_vec(), good[..good.len() - 1].to_vec(), b"x".to_vec(), vec![]].iter().enumerate()
    {
        fs::write(&path, damage).expect("it is written");
        let desired = bench.open();
        assert_eq!(desired.generation(), 0);
        let files = bench.files();
        assert_eq!(files.len(), n + 1, "{files:?}");
        assert!(files.iter().all(|name| name.starts_with("spec.damaged-")), "{files:?}");
    }
    assert_eq!(bench.open().offer(unsigned(document(&spec(2))), NOW_MS).await, Offered::Applied(2));
}

#[tokio::test]
async fn the_spec_of_another_node_says_nothing_here() {
    let bench = Bench::new();
    bench.open().offer(unsigned(document(&spec(9))), NOW_MS).await;
    let other = Identity { node: NodeId::from_uuid(Uuid::from_u128(8)), ..identity() };
    let sign = Box::new(|body: &AllocationBoundBody| node_key().sign(body));
    let other = Desired::open(bench.folder.path(), other, sign, bench.trust.clone()).expect("a disk");
    assert_eq!((other.generation(), bench.files().len()), (0, 1));
    assert_eq!(other.offer(unsigned(document(&spec(1))), NOW_MS).await, Offered::Applied(1));
}

#[tokio::test]
async fn what_cannot_be_kept_does_not_count() {
    let bench = Bench::new();
    let desired = bench.open();
    // The draft cannot be written where a folder lies.
    fs::create_dir(bench.folder.path().join("spec.new")).expect("a folder");
    assert_eq!(desired.offer(unsigned(document(&spec(2))), NOW_MS).await, Offered::Rejected);
    assert!(desired.rejected().expect("a reason").contains("cannot be kept"));
    assert_eq!((desired.generation(), desired.held().is_free("GPU-a", &[])), (0, Ok(())));
}

#[tokio::test]
async fn a_binding_names_what_is_held_and_carries_the_node_s_signature() {
    let bench = Bench::new();
    let desired = bench.open();
    assert_eq!(desired.bound(NOW_MS), []);
    desired.offer(unsigned(document(&spec(2))), NOW_MS).await;
    let bound = desired.bound(NOW_MS);
    let [bound] = bound.as_slice() else { panic!("one hold: {bound:?}") };
    let bound = Bound::try_from(bound.clone()).expect("it reads");
    let Identity { node, incarnation, .. } = identity();
    let allocation = spec(2).holds[0].allocation;
    let gpu = "GPU-a".to_owned();
    let body = AllocationBoundBody { allocation, node, incarnation, gpu, generation: 2, bound_at_ms: NOW_MS };
    assert_eq!(bound.body, body);
    node_key().public().verify(&body, &bound.signature).expect("the node's own");
    assert_eq!(bench.open().bound(NOW_MS).len(), 1, "after a restart too");
}
