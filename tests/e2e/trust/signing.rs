//! Signed commands and the trust bundle.

use std::path::Path;

use bc_host::api::types::Command;
use bc_proto::rules::trust::SignedBundle;
use bc_tests::cluster::node::Node;
use bc_tests::cluster::{COUNT, COUNT_DESTRUCTIVE, Cluster, until};
use bc_tests::programs;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Makes a root in a folder; answers the file of its key, and its public half.
pub(crate) fn make_root(folder: &Path, words: &[&str]) -> (String, String) {
    let mut command = programs::command("better-compute");
    let said = programs::run(command.args(["pki"]).args(words).arg("--json").arg("--out").arg(folder));
    assert_eq!(said.code, Some(0), "{said:?}");
    let made: Value = serde_json::from_str(&said.out).expect("JSON");
    let text = |key: &str| made[key].as_str().map(str::to_owned);
    (text("keyFile").expect("a file"), text("root").or(text("newRoot")).expect("a root"))
}

/// The settings under which it signs.
pub(crate) fn pki(key_file: &str, roots: &[&str]) -> String {
    format!("[pki]\ncommand-signing = '{key_file}'\ncommand-signing-roots = {roots:?}\n")
}

/// What the node has written down of whom it trusts.
pub(crate) fn trusted(node: &Node) -> SignedBundle {
    let text = std::fs::read_to_string(node.path("state/trust.json")).unwrap_or_default();
    let line = text.lines().next().unwrap_or("{}");
    let kept: Value = serde_json::from_str(line).expect("JSON");
    serde_json::from_value(kept["signed"].clone()).unwrap_or_default()
}

/// Runs a kind on the first node to its success.
pub(crate) async fn succeeds(cluster: &Cluster, key: &str, kind: &str) {
    let queued = cluster.api.run(&cluster.nodes[0].id, kind, key, Node::counted(0, 0)).await;
    let ended = cluster.api.settled(&queued).await;
    assert_eq!((ended.state.as_str(), ended.reason.as_str()), ("succeeded", ""), "{key}: {:?}", ended.result);
}

/// Whoever has the database, and no key.
async fn change(cluster: &Cluster, sql: &str) {
    let mut db = PgConnection::connect(&cluster.database.url()).await.expect("it runs");
    let changed = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await.expect("SQL without a mistake");
    assert!(changed.rows_affected() > 0, "{sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signing_control_plane_is_obeyed_and_what_it_did_not_sign_is_not() {
    let mut cluster = Cluster::start_with(1, 1, |folder| pki(&make_root(&folder.join("root"), &["init"]).0, &[])).await;
    assert_eq!(trusted(&cluster.nodes[0]).bundle.version, 1, "told by the join");
    succeeds(&cluster, "one", COUNT.name).await;
    succeeds(&cluster, "two", COUNT_DESTRUCTIVE.name).await;

    // While the node is away its commands wait as rows, and somebody changes them.
    cluster.nodes[0].kill();
    let mut changed: Vec<(Command, &str)> = Vec::new();
    for (key, sql) in [
        (
            "unsigned",
            "update commands set signature = null, worker_key = null where id = (select max(id::text)::uuid from commands)",
        ),
        (
            "payload",
            "update commands set payload = '{\"gpu\":\"GPU-7\"}' where id = (select max(id::text)::uuid from commands)",
        ),
    ] {
        let payload = Node::counted(1, 0);
        changed.push((cluster.api.run(&cluster.nodes[0].id, COUNT.name, key, payload).await, key));
        change(&cluster, sql).await;
    }
    cluster.nodes[0].start();
    for (command, key) in changed {
        let ended = cluster.api.settled(&command).await;
        assert_eq!((ended.state.as_str(), ended.reason.as_str()), ("rejected", "BAD_SIGNATURE"), "{key}: {ended:?}");
    }
    succeeds(&cluster, "after a restart", COUNT.name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_is_rotated_under_a_node_that_stays_and_one_that_was_away() {
    let mut roots = Vec::new();
    let mut cluster = Cluster::start_with(1, 2, |folder| {
        let old = make_root(&folder.join("old"), &["init"]);
        let new = make_root(&folder.join("new"), &["rotate", "--root", &old.0]);
        let settings = pki(&old.0, &[]);
        roots = vec![old, new];
        settings
    })
    .await;
    let [(old_file, old), (new_file, new)] = &roots[..] else { panic!("two roots") };
    cluster.nodes[1].kill();
    for (key, settings, version) in [
        ("the old one", pki(old_file, &[]), 1),
        ("both", pki(old_file, &[new]), 2),
        ("the new one signs", pki(new_file, &[old]), 2),
        ("the new one", pki(new_file, &[]), 3),
    ] {
        if version > 1 {
            cluster.resettle(&settings).await;
        }
        let node = &cluster.nodes[0];
        until("the node trusts it", || trusted(node).bundle.version == version).await;
        succeeds(&cluster, key, COUNT.name).await;
    }
    assert_eq!(trusted(&cluster.nodes[0]).bundle.roots, [new.parse().expect("a key")]);

    // It was told of neither step, and is led through both.
    cluster.nodes[1].start();
    let node = &cluster.nodes[1];
    until("the node trusts it", || trusted(node).bundle.version == 3).await;
    let queued = cluster.api.run(&node.id, COUNT.name, "late", Node::counted(0, 0)).await;
    assert_eq!(cluster.api.settled(&queued).await.state, "succeeded");

    // A node that lost what it knew takes nothing that nobody vouches for, and asks for it again.
    cluster.nodes[0].kill();
    std::fs::write(cluster.nodes[0].path("state/trust.json"), "").expect("written");
    cluster.nodes[0].start();
    cluster.nodes[0].process().has_said("the trust bundle cannot be read").await;
    succeeds(&cluster, "found again", COUNT.name).await;
}
