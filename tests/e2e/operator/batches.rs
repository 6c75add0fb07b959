//! Destructive commands that people approve, with keys of their own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use bc_proto::sign::SecretKey;
use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::{COUNT, COUNT_DESTRUCTIVE, COUNT_PROVISION, Cluster};
use serde_json::Value;
use tempfile::TempDir;

use crate::{admin, counted};

fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

/// Commands are signed, and batches take two of `a` and one of `b`; `admin` is in `a` as well. With the folder of the root's key.
fn settings() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("root.pem");
    std::fs::write(&root, key(100).to_pem()).expect("the root's key is written");
    std::fs::set_permissions(&root, Permissions::from_mode(0o600)).expect("it is its owner's alone");
    let people = [("ann", 1, "a"), ("abe", 2, "a"), ("bob", 3, "b"), ("admin", 4, "a")];
    let approvers = people.map(|(name, number, group)| {
        format!("{{ name = '{name}', key = '{}', groups = ['{group}'] }}", key(number).public())
    });
    let require = "[{ group = 'a', count = 2 }, { group = 'b', count = 1 }]";
    let root = toml::Value::from(root.to_str().expect("paths of tests are text"));
    (folder, format!("[pki]\ncommand-signing = {root}\napprovers = [{}]\nrequire = {require}\n", approvers.join(", ")))
}

/// A person's key in a file of theirs.
fn pem(operator: &Operator, number: u8) -> String {
    private(&operator.file(&format!("key-{number}.pem"), key(number).to_pem().as_bytes()))
}

/// Makes a file its owner's alone.
fn private(file: &str) -> String {
    std::fs::set_permissions(file, Permissions::from_mode(0o600)).expect("it is there");
    file.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destructive_command_waits_for_three_keys_and_then_runs_once() {
    let (_root, settings) = settings();
    let mut cluster = Cluster::start_with(1, 1, |_| settings.clone()).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let operator = admin(&cluster);
    let payload = counted(0, 0);
    let run = ["run", COUNT_DESTRUCTIVE.name, "--node", "node-0", "--payload", &payload];
    operator.refused(&run, "only in an approved batch").await;
    operator.say(&["run", COUNT.name, "--node", "node-0", "--payload", &counted(1, 0)]).await;

    let kind = ["--kind", COUNT_DESTRUCTIVE.name, "--node", "node-0"];
    let create = [&["batch", "create", "--reason", "rack 7 goes", "--key", "b", "-o", "name"], &kind[..]].concat();
    let batch = operator.say(&create).await;
    assert_eq!(operator.say(&create).await, batch, "the same key is the same batch");
    let held = operator.run(&[&run[..], &["--batch", &batch, "--key", "k"]].concat()).await;
    assert!(held.code == Some(7) && held.err.contains("held until its batch is approved"), "{held:?}");
    let command = operator.json(&["commands", "list", "--node", "node-0", "--state", "pending"]).await[0].clone();
    assert_eq!((&command["awaitingApproval"], &command["batchId"]), (&true.into(), &Value::from(batch.clone())));
    let id = command["id"].as_str().expect("an id");
    let why = operator.say(&["commands", "explain", id, "--node", "node-0"]).await;
    assert!(why.contains(&format!("held until {batch} has its approvals")), "{why}");

    // Its session has been sent a later command of the lane meanwhile.
    operator.say(&["run", COUNT_PROVISION.name, "--node", "node-0", "--payload", &counted(2, 0)]).await;

    let approve = async |number: u8, rest: &[&str]| {
        let key = pem(&operator, number);
        operator.run(&[&["batch", "approve", "--batch", &batch, "--key", &key], rest].concat()).await
    };
    // Nothing is signed that nobody said yes to.
    let silent = approve(1, &[]).await;
    assert!(silent.code == Some(1) && silent.err.contains("nobody is there to say yes"), "{silent:?}");
    assert!(
        silent.err.contains("rack 7 goes") && silent.err.contains(&cluster.nodes[0].id),
        "the scope is shown: {silent:?}"
    );
    let own = approve(4, &["--yes"]).await;
    assert!(own.code == Some(1) && own.err.contains("asked for the batch and cannot approve it"), "{own:?}");
    let stranger = approve(9, &["--yes"]).await;
    assert!(stranger.code == Some(1) && stranger.err.contains("is not an approver's key"), "{stranger:?}");
    let other_key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    let open = operator.file("open.pem", key(1).to_pem().as_bytes());
    operator.refused(&["batch", "approve", "--batch", &batch, "--key", &open, "--yes"], "chmod 600").await;
    let other_key = private(&operator.file("p256.pem", other_key.as_bytes()));
    operator
        .refused(&["batch", "approve", "--batch", &batch, "--key", &other_key, "--yes"], "not an Ed25519 key")
        .await;

    assert_eq!(approve(1, &["--yes", "-o", "name"]).await.code, Some(0));
    // One of them signs on a machine without a network.
    let export = operator.say(&["batch", "export", &batch]).await;
    let (file, out) = (operator.file("batch.json", export.as_bytes()), operator.path("approval.json"));
    let out = out.to_str().expect("text");
    let bob = pem(&operator, 3);
    let tampered = operator.file("tampered.json", export.replace(COUNT_DESTRUCTIVE.name, COUNT.name).as_bytes());
    let offline = |file| ["batch", "approve", "--file", file, "--key", &bob, "--out", out, "--yes"];
    operator.refused(&offline(&tampered), "Do not sign this").await;
    operator.refused(&["batch", "submit", out], "cannot be read").await;
    operator.say(&offline(&file)).await;
    operator.say(&["batch", "submit", out]).await;
    assert_eq!(cluster.nodes[0].count(0), 0, "two of three");
    let shown = operator.say(&["batch", "show", &batch]).await;
    assert!(shown.contains("ann until") && shown.contains("bob until") && shown.contains("1 more"), "{shown}");

    let third = approve(2, &["--yes", "--json"]).await;
    assert!(third.code == Some(0) && third.out.contains("\"approved\""), "{third:?}");
    let watched = operator.run(&["commands", "watch", id, "--node", "node-0"]).await;
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert_eq!(operator.run(&[&run[..], &["--batch", &batch, "--key", "k"]].concat()).await.code, Some(0));
    assert_eq!(cluster.nodes[0].count(0), 1, "it ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_batch_cancels_what_waits_in_it() {
    let (_root, settings) = settings();
    let cluster = Cluster::start_with(1, 1, |_| settings.clone()).await;
    let operator = admin(&cluster);
    let payload = counted(0, 0);
    let create =
        ["batch", "create", "--reason", "r", "--kind", COUNT_DESTRUCTIVE.name, "--node", "node-0", "-o", "name"];
    let batch = operator.say(&create).await;
    let run =
        ["run", COUNT_DESTRUCTIVE.name, "--node", "node-0", "--payload", &payload, "--batch", &batch, "--key", "k"];
    assert_eq!(operator.run(&run).await.code, Some(7));
    operator.say(&["batch", "reject", &batch, "--reason", "wrong rack"]).await;
    let said = operator.run(&run).await;
    assert!(said.code == Some(6) && said.err.contains("batch-rejected"), "{said:?}");
    operator.refused(&[&run[..8], &["--key", "another"]].concat(), "is rejected; propose another batch").await;
    let listed = operator.say(&["batch", "list", "--state", "rejected"]).await;
    assert!(listed.contains(&batch), "{listed}");
    assert_eq!(operator.say(&["batch", "list", "--state", "open"]).await, "none");
    assert_eq!(cluster.nodes[0].count(0), 0);
}
