//! What a node trusts outlives the daemon, and nothing but a root's word changes it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bc_proto::certificate::NODE_SCHEME;
use bc_proto::id::NodeId;
use bc_proto::sign::SecretKey;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519, SanType};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;

fn root(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32])
}

fn signed(version: u64, roots: &[u8], by: u8) -> SignedBundle {
    let roots = roots.iter().map(|seed| root(*seed).public()).collect();
    SignedBundle::sign(TrustBundle { version, roots, ..TrustBundle::NONE }, &[&root(by)])
}

type Damage = fn(&Joined);

/// A state directory with an identity that was told this.
struct Joined {
    folder: TempDir,
    card: Card,
}

impl Joined {
    fn new(first: Option<SignedBundle>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority_key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let authority = params.self_signed(&authority_key).expect("a certificate").pem();
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let issuer = Issuer::new(params, authority_key);
        let node = NodeId::from_uuid(Uuid::from_u128(7));
        let mut own = CertificateParams::default();
        let name = format!("{NODE_SCHEME}{node}/1");
        own.subject_alt_names = vec![SanType::URI(name.try_into().expect("ASCII"))];
        let own = own.signed_by(&key, &issuer).expect("a certificate").pem();
        let card = Card {
            node,
            incarnation: 1,
            name: "node-1".into(),
            gateways: Vec::new(),
            joined_ms: 1_000_000,
            trust: first.as_ref().map(|it| Pinned::to(&it.bundle)).unwrap_or_default(),
        };
        let key_pem = key.serialize_pem();
        let draft = identity::Draft::begin(folder.path(), &key_pem).expect("a folder");
        draft.commit(&key_pem, &(own + &authority), &authority, &card).expect("an identity");
        if let Some(first) = first {
            begin(folder.path(), &card, first).expect("written");
        }
        Self { folder, card }
    }

    /// As the next daemon finds it.
    fn open(&self) -> Trust {
        let card = identity::read(self.folder.path()).expect("an identity").card;
        Trust::open(self.folder.path(), &card)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(file::NAME)
    }
}

#[test]
fn a_bundle_outlives_the_daemon_and_is_for_its_user_alone() {
    let node = Joined::new(Some(signed(1, &[1], 1)));
    let trust = node.open();
    assert_eq!(trust.now().version, 1);
    assert!(trust.offer(signed(2, &[1, 2], 1)).expect("the old root vouches for it"));
    assert!(!trust.offer(signed(2, &[1, 2], 1)).expect("it is known"), "nothing changed");
    assert_eq!(fs::metadata(node.file()).expect("a file").permissions().mode() & 0o777, 0o600);
    let trust = node.open();
    assert_eq!(trust.now().version, 2);
    assert!(trust.offer(signed(3, &[2], 2)).expect("the new root vouches for it"));
    assert_eq!(*node.open().now(), signed(3, &[2], 2).bundle);
}

#[test]
fn a_bundle_that_is_refused_changes_nothing_here_nor_on_the_disk() {
    let node = Joined::new(Some(signed(5, &[1], 1)));
    let before = fs::read(node.file()).expect("a file");
    let trust = node.open();
    for (offered, why) in [
        (signed(4, &[1], 1), "version 4 would roll back version 5"),
        (signed(5, &[1, 2], 1), "version 5 says something else here"),
        (signed(6, &[2], 2), "no root that is trusted here has signed it"),
        (SignedBundle { signatures: Vec::new(), ..signed(6, &[1], 1) }, "no root that is trusted here has signed it"),
    ] {
        assert_eq!(trust.offer(offered).expect_err(why).to_string(), why);
    }
    trust.offered(b"{");
    trust.offered(b"");
    assert_eq!((trust.now().version, fs::read(node.file()).expect("a file")), (5, before));
}

#[test]
fn a_damaged_missing_or_old_file_takes_nothing_until_a_known_root_says_it_again() {
    let damage: [(&str, Damage); 5] = [
        ("gone", |node| fs::remove_file(node.file()).expect("it was there")),
        ("empty", |node| fs::write(node.file(), "").expect("written")),
        ("one digit changed", |node| {
            let text = fs::read_to_string(node.file()).expect("a file");
            fs::write(
                node.file(),
                text.replace("\"unbatchedDestructivePerHour\":0", "\"unbatchedDestructivePerHour\":9"),
            )
            .expect("written");
        }),
        ("an old one", |node| begin(node.folder.path(), &node.card, signed(1, &[1], 1)).expect("written")),
        ("another life's", |node| {
            let card = Card { incarnation: 9, ..node.card.clone() };
            begin(node.folder.path(), &card, signed(2, &[1], 1)).expect("written");
        }),
    ];
    for (what, damage) in damage {
        let node = Joined::new(Some(signed(1, &[1], 1)));
        node.open().offer(signed(2, &[1], 1)).expect("it may");
        damage(&node);
        let trust = node.open();
        assert!(trust.now().is_lost, "{what}");
        assert!(trust.now().cancel(&cancel_body(), None, 0).is_err(), "{what}: nothing passes");
        assert!(trust.offer(signed(1, &[1], 1)).is_err(), "{what}: no rollback");
        assert!(trust.offer(signed(9, &[3], 3)).is_err(), "{what}: a stranger");
        assert!(trust.offer(signed(2, &[1], 1)).expect("the same again"), "{what}");
        assert!(!trust.now().is_lost && !node.open().now().is_lost, "{what}");
    }
}

fn cancel_body() -> bc_proto::sign::body::CancelBody {
    bc_proto::sign::body::CancelBody {
        command: bc_proto::id::CommandId::from_uuid(Uuid::nil()),
        node: NodeId::from_uuid(Uuid::nil()),
    }
}

#[test]
fn a_bundle_that_cannot_be_written_does_not_count() {
    let node = Joined::new(Some(signed(1, &[1], 1)));
    let trust = node.open();
    fs::create_dir(node.folder.path().join("trust.json.new")).expect("a folder in its way");
    fs::write(node.folder.path().join("trust.json.new/x"), "").expect("written");
    assert!(matches!(trust.offer(signed(2, &[1], 1)), Err(NotTaken::NotKept(_))));
    assert_eq!(trust.now().version, 1);
}

#[test]
fn a_node_that_was_told_nothing_trusts_nothing_and_takes_the_first_roots() {
    let node = Joined::new(None);
    let trust = node.open();
    assert_eq!((*trust.now()).clone(), TrustBundle::NONE);
    trust.told(u64::MAX);
    assert_eq!(trust.floor_ms(), 0, "a gateway alone says the time");
    assert!(trust.offer(signed(1, &[1], 1)).expect("the first"));
    assert_eq!(node.open().now().roots.len(), 1);
}

#[test]
fn server_time_has_a_floor_that_outlives_the_daemon_and_that_no_gateway_pushes_far() {
    const HOUR: u64 = 3_600_000;
    let node = Joined::new(Some(signed(1, &[1], 1)));
    let joined = node.card.joined_ms;
    let trust = node.open();
    assert_eq!(trust.floor_ms(), joined);
    trust.told(joined + 90_000);
    assert_eq!(node.open().floor_ms(), joined + 90_000);
    trust.told(0);
    assert_eq!(node.open().floor_ms(), joined + 90_000, "what is written down does not go back");
    // A gateway that says any time at all.
    trust.told(u64::MAX);
    assert_eq!((trust.floor_ms(), node.open().floor_ms()), (joined + HOUR, joined + HOUR));
    // A signature says the true time.
    trust.seen(joined + 5 * HOUR);
    assert!(node.open().floor_ms() >= joined + 5 * HOUR);
    trust.seen(joined);
    assert!(trust.floor_ms() >= joined + 5 * HOUR);
}
