//! Nodes and contexts.

use std::fs;
use std::path::Path;

use bc_tests::cluster::Cluster;
use bc_tests::cluster::operator::word;
use bc_tests::programs;
use serde_json::Value;

use crate::{admin, counted};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_join_are_labelled_listed_and_deleted() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let operator = admin(&cluster);
    let gateway = cluster.replicas[0].gateway_url();
    let token = word(&operator.path("join.token"));
    let said = operator.run(&["node", "create-join-token", "--to", &token, "--expires-in", "5m"]).await;
    assert!(said.code == Some(0) && said.out.is_empty() && said.err.contains(&gateway), "{said:?}");
    let (state, again) = (word(&operator.path("state")), word(&operator.path("again")));
    let join = |state: &str, name: &str| {
        ["node", "join", "--gateway", &gateway, "--token-file", &token, "--state-dir", state, "--name", name]
            .map(str::to_owned)
    };
    let joined = operator.say(&join(&state, "rack-7").each_ref().map(String::as_str)).await;
    assert!(joined.starts_with("rack-7 is node_") && joined.contains(&state), "{joined}");
    // A token is good once, and a machine that has joined stays what it is.
    operator.refused(&join(&again, "rack-8").each_ref().map(String::as_str), "used already").await;
    operator.refused(&join(&state, "rack-7").each_ref().map(String::as_str), "has joined already").await;
    assert!(!Path::new(&again).join("identity").exists());

    assert_eq!(operator.say(&["node", "list", "-o", "name"]).await, "node-0\nrack-7");
    let table = operator.say(&["node", "list"]).await;
    assert!(table.starts_with("NAME") && table.lines().count() == 3, "{table}");
    operator.say(&["node", "label", "rack=7", "row=b", "--node", "rack-7"]).await;
    let labelled = operator.json(&["node", "label", "row-", "--node", "rack-7"]).await;
    assert_eq!(labelled["labels"], serde_json::json!({ "rack": "7" }));
    assert_eq!(operator.say(&["node", "list", "-l", "rack=7", "-o", "name"]).await, "rack-7");
    let node = operator.json(&["node", "get", "node-0"]).await;
    assert_eq!((&node["id"], &node["connected"]), (&Value::from(cluster.nodes[0].id.clone()), &true.into()));

    // A certificate with the key of another node is of no use.
    let stolen = operator.path("stolen");
    copy(&cluster.nodes[0].path("state/identity"), &stolen.join("identity"));
    fs::copy(operator.path("state/identity/key.pem"), stolen.join("identity/key.pem")).expect("copied");
    let config = operator.file("bcd.toml", format!("gateways = [{gateway:?}]\nstate-dir = {stolen:?}\n").as_bytes());
    let mut bcd = programs::command("bcd");
    let refused = programs::run(bcd.args(["run", "--config", &config]));
    assert!(refused.code == Some(1) && refused.err.contains("damaged"), "{refused:?}");

    // What waits for a node ends with it, and so does its certificate.
    let words = ["run", "test.count", "--node", "rack-7", "--no-wait", "-o", "name", "--payload", &counted(0, 0)];
    operator.say(&words).await;
    operator.say(&["node", "delete", "rack-7"]).await;
    operator.refused(&["node", "get", "rack-7"], "no node is called").await;
    operator.say(&["node", "delete", "node-0"]).await;
    cluster.nodes[0].start();
    cluster.nodes[0].process().has_said("certificate is not accepted").await;
}

#[test]
fn contexts_are_added_chosen_and_shown_without_tokens() {
    let operator = bc_tests::cluster::operator::Operator::new("http://127.0.0.1:1", "bct_secret");
    let run = |words: &[&str]| programs::run(&mut operator.command(words));
    assert_eq!(run(&["context", "add", "lab", "--url", "https://lab.example"]).code, Some(0));
    assert_eq!(run(&["context", "list", "-o", "name"]).out, "here\nlab\n");
    assert_eq!(run(&["context", "use", "lab"]).code, Some(0));
    let shown = run(&["context", "show", "-o", "json"]).out;
    assert!(shown.contains("https://lab.example") && !shown.contains("bct_secret"), "{shown}");
    let gone = run(&["context", "use", "gone"]);
    assert!(gone.code == Some(1) && gone.err.contains("there is no context"), "{gone:?}");
}

/// A folder's files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("an entry");
        fs::copy(file.path(), to.join(file.file_name())).expect("copied");
    }
}
