//! A receipt of everything: order, approvals and attested result, shown to somebody who has nothing but the roots.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use bc_proto::manifest::{Lane, Trait};
use bc_proto::sign::SecretKey;
use bc_tests::cluster::node::Node;
use bc_tests::cluster::operator::{Operator, word};
use bc_tests::cluster::{Cluster, PATIENCE};
use serde_json::{Value, json};

use crate::signing::{make_root, pki};

/// A destructive kind whose results nodes sign.
const WIPE: &str = "test.wipe";

fn approver(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

/// Two of three people approve.
fn approvers() -> String {
    let people =
        [1, 2, 3].map(|number| format!("{{ name = 'person {number}', key = '{}' }}", approver(number).public()));
    format!("approvers = [{}]\nrequire = [{{ count = 2 }}]\n", people.join(", "))
}

/// Runs the kind under a batch that two approved, and waits until the log says so; answers the command's id.
async fn approved_wipe(cluster: &Cluster, operator: &Operator) -> String {
    let scope = ["--kind", WIPE, "--node", "node-0", "--reason", "rack 7 goes"];
    let batch = operator.say(&[&["batch", "create", "-o", "name"], &scope[..]].concat()).await;
    let payload = Node::counted(0, 0).to_string();
    let run = ["run", WIPE, "--node", "node-0", "--payload", &payload, "--key", "k", "--batch", &batch];
    assert_eq!(operator.run(&run).await.code, Some(7), "it is held");
    for number in [1, 2] {
        let key = operator.file("key.pem", approver(number).to_pem().as_bytes());
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is there");
        operator.say(&["batch", "approve", "--batch", &batch, "--key", &key, "--yes"]).await;
    }
    let command = &operator.json(&["commands", "list", "--node", "node-0"]).await[0];
    assert_eq!((&command["kind"], &command["requestedBy"]), (&json!(WIPE), &json!("admin")));
    let id = command["id"].as_str().expect("an id").to_owned();
    assert_eq!(operator.run(&["commands", "watch", &id, "--node", "node-0"]).await.code, Some(0));
    let logged = tokio::time::timeout(PATIENCE, async {
        // The batch, the command, two approvals, the end.
        while cluster.api.call::<Value>("audit.head", json!({})).await["size"] != 5 {
            tokio::task::yield_now().await;
        }
    });
    logged.await.expect("the log grows");
    id
}

/// One change to a receipt.
type Alter = fn(&mut Value);

/// Changes what an entry says, as whoever hands over the receipt could.
fn change_entry(receipt: &mut Value, entry: &str, field: &str, to: Value) {
    let entries = receipt["entries"].as_array_mut().expect("entries");
    let read = |it: &Value| serde_json::from_str::<Value>(it["body"].as_str().expect("text")).expect("an entry");
    let found = entries.iter_mut().find(|it| read(it)["entry"] == entry).expect("it is there");
    let mut body = read(found);
    assert_ne!(body[field], to);
    body[field] = to;
    found["body"] = body.to_string().into();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_shows_order_approvals_and_signed_result_to_somebody_without_a_server() {
    let mut root = String::new();
    let mut cluster = Cluster::start_with(1, 1, |folder| {
        let (file, public) = make_root(&folder.join("root"), &["init"]);
        root = public;
        pki(&file, &[]) + &approvers()
    })
    .await;
    cluster
        .register(|manifest| {
            manifest.name = WIPE.into();
            manifest.traits = [Trait::Destructive, Trait::Attested].into();
            manifest.lane = Lane::Provision;
        })
        .await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let admin = Operator::new(&cluster.replicas[0].api_url(), cluster.api.token());
    let command = approved_wipe(&cluster, &admin).await;
    assert_eq!(cluster.nodes[0].count(0), 1);
    let said = admin.say(&["audit", "verify", "--root", &root]).await;
    assert!(said.contains("5 entries"), "{said}");
    let file = word(&admin.path("receipt.json"));
    admin.say(&["audit", "receipt", &command, "--out", &file]).await;
    let text = std::fs::read_to_string(&file).expect("it was written");
    let receipt: Value = serde_json::from_str(&text).expect("JSON");
    let authority = word(&cluster.folder().join("control-plane/authority.pem"));

    let elsewhere = Operator::new("http://127.0.0.1:1", "bct_none");
    let verify = async |file: &str, root: &str| {
        let words = ["audit", "verify", "--receipt", file, "--root", root, "--node-authority", &authority, "--json"];
        elsewhere.run(&words).await
    };
    let said = verify(&file, &root).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let proven: Value = serde_json::from_str(&said.out).expect("JSON");
    let mut keys = [1, 2].map(|number| approver(number).public().to_string());
    keys.sort();
    assert_eq!(
        (&proven["command"], &proven["kind"], &proven["approvers"]),
        (&json!(command), &json!(WIPE), &json!(keys))
    );
    assert_eq!((&proven["headSigned"], &proven["commandSigned"]), (&json!(true), &json!(true)));
    let outcome = &proven["outcome"];
    assert_eq!((&outcome["state"], &outcome["attested"]), (&json!("succeeded"), &json!("yes")), "{outcome}");

    let other = make_root(&elsewhere.path("other"), &["init"]).1;
    let alterations: [(&str, &str, Alter); 9] = [
        ("the command", "proof", |it| {
            change_entry(it, "command-queued", "node", json!("node_00000000000000000000000000"));
        }),
        ("its signature", "proof", |it| change_entry(it, "command-queued", "signature", Value::Null)),
        ("the end", "proof", |it| change_entry(it, "command-settled", "state", json!("failed"))),
        ("what was said of the batch", "proof", |it| change_entry(it, "batch", "topic", json!("batch.rejected"))),
        ("the document", "document of the command's batch", |it| {
            it["approved"]["document"]["reason"] = json!("rack 8 goes");
        }),
        ("an approver", "approvals", |it| {
            it["approved"]["approvals"][0]["approver"] = json!(approver(3).public().to_string());
        }),
        ("an approval less", "those that were logged", |it| {
            it["approved"]["approvals"].as_array_mut().expect("approvals").pop();
        }),
        ("the result", "not the one that was logged", |it| it["result"] = json!("e30=")),
        ("the head", "head", |it| it["head"]["size"] = json!(6)),
    ];
    for (part, why, alter) in alterations {
        let mut altered = receipt.clone();
        alter(&mut altered);
        assert_ne!(altered, receipt, "{part}");
        let said = verify(&elsewhere.file("altered.json", altered.to_string().as_bytes()), &root).await;
        assert!(said.code == Some(9) && said.err.contains(why), "{part}: {said:?}");
    }
    let said = verify(&file, &other).await;
    assert!(said.code == Some(9) && said.err.contains("head.signature"), "another root: {said:?}");
}
