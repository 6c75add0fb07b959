//! The transparency log: verified by somebody who does not take the server's word for it.

use bc_tests::cluster::node::Node;
use bc_tests::cluster::operator::{Operator, word};
use bc_tests::cluster::{COUNT_DESTRUCTIVE, Cluster, PATIENCE};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::admin;

/// Runs a destructive command to its end, and waits until the log says so; answers its id.
async fn destroyed(cluster: &Cluster) -> String {
    let node = cluster.nodes[0].id.clone();
    let command = cluster.api.run(&node, COUNT_DESTRUCTIVE.name, "wipe", Node::counted(0, 0)).await;
    let logged = tokio::time::timeout(PATIENCE, async {
        while cluster.api.call::<Value>("audit.head", json!({})).await["size"] != 2 {
            tokio::task::yield_now().await;
        }
    });
    logged.await.expect("the log grows");
    command.id
}

/// Changes the database as somebody does who owns it: no trigger is asked.
async fn behind_its_back(cluster: &Cluster, change: &str) {
    let mut db = PgConnection::connect(&cluster.database.url()).await.expect("a superuser");
    let change = format!("set session_replication_role = replica; {change}");
    sqlx::raw_sql(AssertSqlSafe(change)).execute(&mut db).await.expect("a superuser may");
}

async fn fails(operator: &Operator, words: &[&str], why: &str) {
    let said = operator.run(words).await;
    assert!(said.code == Some(9) && said.err.contains(why), "{words:?}: {why}: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_only_grew_verifies_and_one_that_was_tampered_with_exits_9() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let admin = admin(&cluster);
    let verify = ["audit", "verify"];
    assert!(admin.say(&verify).await.contains("0 entries"), "an empty log is whole");
    let command = destroyed(&cluster).await;
    let said = admin.say(&verify).await;
    assert!(said.contains("2 entries") && said.contains("only grew since it had 0"), "{said}");
    let again = admin.json(&["audit", "head"]).await;
    assert_eq!((again["size"].as_u64(), again.get("signature")), (Some(2), None));
    let entries = admin.say(&["audit", "entries"]).await;
    assert!(entries.contains("command-queued") && entries.contains("command-settled"), "{entries}");
    let first = &admin.json(&["audit", "entries", "--limit", "1"]).await[0];
    assert!(first["body"].as_str().is_some_and(|body| body.contains(&command)), "{first}");

    // A receipt is checked by somebody whose server does not answer.
    let file = word(&admin.path("receipt.json"));
    admin.say(&["audit", "receipt", &command, "--out", &file]).await;
    let elsewhere = Operator::new("http://127.0.0.1:1", "bct_none");
    let offline = ["audit", "verify", "--receipt", &file];
    let proven = elsewhere.say(&offline).await;
    assert!(proven.contains(&command) && proven.contains("it ended succeeded"), "{proven}");
    assert!(proven.contains("nobody signed"), "what is not proven is said: {proven}");
    let found: Value = serde_json::from_str(&elsewhere.say(&[&offline[..], &["--json"]].concat()).await).expect("JSON");
    assert_eq!((&found["ok"], &found["outcome"]["state"]), (&json!(true), &json!("succeeded")));
    let root = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";
    fails(&elsewhere, &[&offline[..], &["--root", root]].concat(), "not signed").await;
    let text = std::fs::read_to_string(&file).expect("it was written");
    let forged = elsewhere.file("forged.json", text.replace("succeeded", "cancelled").as_bytes());
    fails(&elsewhere, &["audit", "verify", "--receipt", &forged], "proves nothing").await;
    elsewhere.refused(&["audit", "verify", "--receipt", "/nowhere"], "cannot be read").await;
    elsewhere.refused(&verify, "no answer").await;

    // What one entry says is changed.
    let text = "convert_to(replace(convert_from(body, 'UTF8'), 'succeeded', 'cancelled'), 'UTF8')";
    behind_its_back(&cluster, &format!("update log_entries set body = {text}")).await;
    fails(&admin, &verify, "entry 1: its hash is not that of what it says").await;
    let said = admin.run(&[&verify[..], &["--json"]].concat()).await;
    let said: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(said["ok"], false);

    // The whole log is made anew, with all hashes and the head: only who saw it before can tell, since nobody signs here.
    let rewritten = r"
        update log_entries set leaf_hash = sha256('\x00'::bytea || body);
        update log_nodes set hash = sha256('\x01'::bytea || (select leaf_hash from log_entries where index = 0)
                                                         || (select leaf_hash from log_entries where index = 1));
        delete from log_heads where size = 1;
        update log_heads set root = (select hash from log_nodes where level = 1)";
    behind_its_back(&cluster, rewritten).await;
    fails(&admin, &verify, "the log was rewritten").await;
    let stranger = crate::admin(&cluster);
    assert!(stranger.run(&verify).await.err.contains("could have made another one"), "it says what it cannot know");

    // The log is cut.
    behind_its_back(&cluster, "delete from log_heads").await;
    fails(&admin, &verify, "the log had 2 entries the last time").await;
}
