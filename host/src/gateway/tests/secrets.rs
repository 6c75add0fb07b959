//! Secrets, from the vault's folder through a gateway to a node.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bc_proto::id::TenantId;
use bc_proto::manifest::Lane;
use bc_proto::rules::trust::TrustBundle;
use bc_proto::secret::{OneTimeKey, Purpose, Sealed};
use bc_proto::sign::body::{SealedSecretBody, SecretRequestBody};
use bc_proto::sign::{PublicKey, SecretKey, WorkerSignature};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::store::secret_exchanges::{self, Answer, Failure};
use crate::trust::Signer;
use crate::vault::Vault;

const VALUE: &str = "correct horse battery staple";

/// A folder of secrets, a vault over it, and the root that its signer stands for.
struct Sealing {
    folder: TempDir,
    root: PublicKey,
    vault: Vault,
}

impl Sealing {
    fn new(site: &Site, replica: &Replica) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        put(folder.path(), site.fleet.tenant, "db.password", VALUE);
        let root = SecretKey::from_seed([5; 32]);
        let public = root.public();
        let (signer, pool) = (Signer::new(root, site.world()), site.fleet.pool.clone());
        let vault = Vault::new(pool, replica.bus.clone(), site.world(), signer, folder.path().to_owned());
        Self { folder, root: public, vault }
    }
}

fn put(folder: &Path, tenant: TenantId, name: &str, value: &str) {
    let folder = folder.join(tenant.to_string());
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), value).expect("a file");
    fs::set_permissions(folder.join(name), Permissions::from_mode(0o600)).expect("its owner may");
}

/// A machine whose key signs.
struct Signing {
    machine: Machine,
    key: SecretKey,
}

impl Signing {
    async fn join(site: &Site, replica: &Replica) -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let token = site.token(None, None).await;
        let answer = replica.client(&site.authority, None).join(request(&token, &key)).await.expect("it may join");
        let answer = answer.into_inner();
        let peer = Peer { node: answer.node_id.parse().expect("an id"), incarnation: answer.incarnation };
        let secret = SecretKey::from_pem(&key.serialize_pem()).expect("an Ed25519 key");
        Self { machine: Machine::with(peer, &answer.certificate_chain[0], &key), key: secret }
    }

    fn ask(&self, command: CommandId, secret_ref: &str, one_time: &OneTimeKey) -> v1::SecretRequest {
        ask(&self.key, self.machine.node(), command, secret_ref, one_time)
    }
}

fn ask(
    key: &SecretKey,
    node: NodeId,
    command: CommandId,
    secret_ref: &str,
    one_time: &OneTimeKey,
) -> v1::SecretRequest {
    let one_time_key = hex::encode(one_time.public());
    let body = SecretRequestBody { command, node, secret_ref, one_time_key: &one_time_key };
    v1::SecretRequest {
        command_id: command.to_string(),
        secret_ref: secret_ref.into(),
        one_time_key: one_time.public().to_vec(),
        node_sig: key.sign(&body).as_bytes().to_vec(),
    }
}

async fn rows(site: &Site) -> i64 {
    sqlx::query_scalar("select count(*) from secret_exchanges").fetch_one(&site.fleet.pool).await.expect("a count")
}

#[tokio::test]
async fn a_secret_is_sealed_for_the_node_whose_command_names_it() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let sealing = Sealing::new(&site, &replica);
    let vault = replica.stop.child_token();
    sealing.vault.clone().start(&vault);
    let node = Signing::join(&site, &replica).await;
    let mut link = node.machine.open(&site.authority, &replica).await.expect("it may enter");
    let command = work(&site, &replica, &mut link, node.machine.node(), &["db.password"]).await;

    let one_time = OneTimeKey::from_seed(&[3; 32]);
    let one_time_key = hex::encode(one_time.public());
    let mut client = replica.client(&site.authority, Some(&node.machine.identity));
    let answer = client.exchange_secret(node.ask(command, "db.password", &one_time)).await.expect("a secret");
    let v1::SealedSecret { encapsulated_key, ciphertext, signature } = answer.into_inner();
    let sealed = Sealed { encapsulated_key, ciphertext };
    let signature = WorkerSignature::try_from(signature.expect("it is signed")).expect("a signature");
    let (node, secret_ref) = (node.machine.node(), "db.password");
    let sealed_sha256 = sealed.sha256_hex();
    let body =
        SealedSecretBody { command, node, secret_ref, one_time_key: &one_time_key, sealed_sha256: &sealed_sha256 };
    let trusted = TrustBundle { roots: vec![sealing.root], ..TrustBundle::NONE };
    let now_ms = crate::store::unix_ms(site.world().now());
    trusted.sealed_secret(&body, Some(&signature), now_ms).expect("the vault signed it");
    for other in [
        SealedSecretBody { secret_ref: "other", ..body.clone() },
        SealedSecretBody { sealed_sha256: &"00".repeat(32), ..body.clone() },
        SealedSecretBody { one_time_key: &"00".repeat(32), ..body.clone() },
        SealedSecretBody { command: CommandId::from_uuid(uuid()), ..body.clone() },
        SealedSecretBody { node: NodeId::from_uuid(uuid()), ..body.clone() },
    ] {
        trusted.sealed_secret(&other, Some(&signature), now_ms).expect_err("it is signed for something else");
    }
    let opened = one_time.open(&sealed, Purpose { command, node, secret_ref }).expect("it is for this node");
    assert_eq!(opened.expose(), VALUE);
    assert_eq!(rows(&site).await, 0, "nothing stays");
}

/// Queues a command and takes its delivery.
async fn work(site: &Site, replica: &Replica, link: &mut Link, node: NodeId, refs: &[&str]) -> CommandId {
    let kind = site.fleet.kind(Lane::Control, &[]).await;
    let refs: serde_json::Map<_, _> = refs.iter().map(|it| ((*it).to_owned(), json!(it))).collect();
    let id = site.queue(NewCommand { payload: json!({ "secretRefs": refs }), ..command(&node, kind) }).await;
    replica.tell_work(node);
    assert_eq!(link.delivered().await.command_id, id.to_string());
    id
}

#[tokio::test]
async fn whatever_does_not_fit_is_refused_and_says_why() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let sealing = Sealing::new(&site, &replica);
    put(sealing.folder.path(), TenantId::from_uuid(uuid()), "theirs", VALUE);
    put(sealing.folder.path(), site.fleet.tenant, "exposed", VALUE);
    let exposed = sealing.folder.path().join(site.fleet.tenant.to_string()).join("exposed");
    fs::set_permissions(exposed, Permissions::from_mode(0o644)).expect("its owner may");
    sealing.vault.clone().start(&replica.stop);
    let (node, other) = (Signing::join(&site, &replica).await, Signing::join(&site, &replica).await);
    let mut link = node.machine.open(&site.authority, &replica).await.expect("it may enter");
    let mut theirs = other.machine.open(&site.authority, &replica).await.expect("it may enter");
    let id = node.machine.node();
    let named = work(&site, &replica, &mut link, id, &["db.password", "gone", "theirs", "exposed"]).await;
    let foreign = work(&site, &replica, &mut theirs, other.machine.node(), &["db.password"]).await;
    let waiting = site.hold(id, site.fleet.kind(Lane::Control, &[]).await).await;
    let one_time = || OneTimeKey::from_seed(&[3; 32]);

    let good = node.ask(named, "db.password", &one_time());
    let zero = v1::SecretRequest { one_time_key: vec![0; 32], ..good.clone() };
    let swapped = v1::SecretRequest { one_time_key: OneTimeKey::from_seed(&[4; 32]).public().to_vec(), ..good.clone() };
    let cases = [
        ("no command", v1::SecretRequest { command_id: "cmd".into(), ..good.clone() }),
        ("a path", v1::SecretRequest { secret_ref: "../db.password".into(), ..good.clone() }),
        ("a short key", v1::SecretRequest { one_time_key: vec![1; 31], ..good.clone() }),
        ("no signature", v1::SecretRequest { node_sig: Vec::new(), ..good.clone() }),
        ("a command of another node", node.ask(foreign, "db.password", &one_time())),
        ("a command that is not in flight", node.ask(waiting, "db.password", &one_time())),
        ("not named", node.ask(named, "db.other", &one_time())),
        ("no such secret", node.ask(named, "gone", &one_time())),
        ("another tenant's", node.ask(named, "theirs", &one_time())),
        ("others may read it", node.ask(named, "exposed", &one_time())),
        ("the key was swapped on the way", swapped),
        ("a key that is none", zero),
        ("signed by another node", ask(&other.key, id, named, "db.password", &one_time())),
    ];
    let mut said = String::new();
    let mut client = replica.client(&site.authority, Some(&node.machine.identity));
    for (what, request) in cases {
        let status = client.exchange_secret(request).await.expect_err(what);
        said += &format!("{what}: {:?}: {}\n", status.code(), status.message());
    }
    let plain = site.machine(&replica).await;
    let mut plain_link = plain.open(&site.authority, &replica).await.expect("it may enter");
    let command = work(&site, &replica, &mut plain_link, plain.node(), &["db.password"]).await;
    let request = ask(&node.key, plain.node(), command, "db.password", &one_time());
    let status =
        replica.client(&site.authority, Some(&plain.identity)).exchange_secret(request).await.expect_err("a P-256 key");
    said += &format!("a node with another type of key: {:?}: {}\n", status.code(), status.message());
    let status = replica.client(&site.authority, None).exchange_secret(good.clone()).await.expect_err("nobody");
    said += &format!("no certificate: {:?}: {}\n", status.code(), status.message());
    insta::assert_snapshot!(said);
    client.exchange_secret(good.clone()).await.expect("what fits is answered all the while");

    link.say(update(named, v1::Report::Succeeded)).await;
    site.reaches(named, "succeeded").await;
    let over = client.exchange_secret(good).await.expect_err("the command is over");
    assert_eq!((over.code(), over.message()), (Code::FailedPrecondition, "the command is not in flight at this node"));
    assert_eq!(rows(&site).await, 0, "nothing stays");
}

/// What a gateway checks is for the vault's convenience: one that is owned writes whatever it likes.
#[tokio::test]
async fn a_vault_believes_no_gateway() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let sealing = Sealing::new(&site, &replica);
    let (node, other) = (Signing::join(&site, &replica).await, Signing::join(&site, &replica).await);
    let mut link = node.machine.open(&site.authority, &replica).await.expect("it may enter");
    let id = node.machine.node();
    let named = work(&site, &replica, &mut link, id, &["db.password"]).await;
    let held = site.hold(id, site.fleet.kind(Lane::Control, &[]).await).await;
    let one_time = OneTimeKey::from_seed(&[3; 32]);
    let forged = SecretKey::from_seed([9; 32]);
    let cases = [
        ("as it is", node.ask(named, "db.password", &one_time), &node, id),
        ("the gateway's own key", ask(&forged, id, named, "db.password", &one_time), &node, id),
        ("another node's certificate", node.ask(named, "db.password", &one_time), &other, id),
        (
            "as another node",
            ask(&other.key, other.machine.node(), named, "db.password", &one_time),
            &other,
            other.machine.node(),
        ),
        ("not named", node.ask(named, "db.other", &one_time), &node, id),
        ("not in flight", node.ask(held, "db.password", &one_time), &node, id),
    ];
    let now = site.world().now();
    for (what, request, certificate, node) in cases {
        let exchange = uuid();
        let new = secret_exchanges::NewExchange {
            id: exchange,
            node,
            command: request.command_id.parse().expect("an id"),
            secret_ref: &request.secret_ref,
            one_time_key: &request.one_time_key,
            node_sig: &request.node_sig,
            fingerprint: certificate.machine.fingerprint,
            expires_at: now + Duration::from_mins(1),
        };
        secret_exchanges::create(&mut *site.fleet.db().await, new, now).await.expect("a row");
        assert_eq!(sealing.vault.answer().await.expect("a database"), 1, "{what}");
        let answer = secret_exchanges::answer(&mut *site.fleet.db().await, exchange).await.expect("a database");
        let refused = answer == Some(Answer::Failed(Failure::Refused));
        assert_eq!(refused, what != "as it is", "{what}: {answer:?}");
    }
    assert_eq!(sealing.vault.answer().await.expect("a database"), 0, "each is answered once");

    // The next request takes with it what nobody waits for.
    let late = now + Duration::from_mins(2);
    let request = node.ask(named, "db.password", &one_time);
    let new = secret_exchanges::NewExchange {
        id: uuid(),
        node: id,
        command: named,
        secret_ref: &request.secret_ref,
        one_time_key: &request.one_time_key,
        node_sig: &request.node_sig,
        fingerprint: node.machine.fingerprint,
        expires_at: late + Duration::from_secs(10),
    };
    secret_exchanges::create(&mut *site.fleet.db().await, new, late).await.expect("a row");
    assert_eq!(rows(&site).await, 1);
}
