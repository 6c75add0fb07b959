//! Desired state with real processes: reservations, specs, and commands that presuppose them.

use std::process::Stdio;

use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::{COUNT, Cluster, PATIENCE};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::{admin, counted};

const GPU: &str = "GPU-51d00000-0000-4000-8000-000000000000";

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_becomes_active_by_the_node_s_word_and_outlives_a_restart() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let operator = admin(&cluster);
    let before = operator.json(&["node", "spec", "get", "node-0"]).await;
    assert_eq!((&before["generation"], &before["appliedGeneration"]), (&json!(0), &json!(0)));

    let made = operator.json(&["reservation", "create", GPU, "--node", "node-0"]).await;
    let id = made["id"].as_str().expect("an id");
    assert_eq!((&made["state"], &made["generation"]), (&json!("requested"), &json!(1)));
    let active = event(&operator, "reservation.active", |_| true).await;
    assert_eq!((&active["body"]["reservationId"], &active["body"]["gpu"]), (&made["id"], &json!(GPU)));
    let listed = operator.json(&["reservation", "list", "--node", "node-0", "--state", "active"]).await;
    let bound: Value = serde_json::from_str(listed[0]["bound"].as_str().expect("it is signed")).expect("JSON");
    assert_eq!((&bound["allocation"], &bound["node"]), (&made["id"], &json!(cluster.nodes[0].id)));
    operator.refused(&["reservation", "create", GPU, "--node", "node-0"], "is reserved by").await;

    // A command that presupposes a spec waits for it.
    let payload = counted(0, 0);
    let words = ["run", COUNT.name, "--node", "node-0", "--payload", &payload, "--min-generation", "2", "--no-wait"];
    let waits = operator.say(&[&words[..], &["-o", "name"]].concat()).await;
    let file = operator.file("spec.json", br#"{ "host": { "hugePages1g": 16 } }"#);
    operator.refused(&["node", "spec", "set", "node-0", "--file", &file, "--after", "0"], "CONFLICT").await;
    assert_eq!(cluster.nodes[0].count(0), 0, "it has not run");
    let set = operator.json(&["node", "spec", "set", "node-0", "--file", &file]).await;
    assert_eq!((&set["generation"], &set["document"]["holds"][0]["gpu"]), (&json!(2), &json!(GPU)));
    let ended = operator.run(&["commands", "watch", &waits, "--node", "node-0"]).await;
    assert_eq!((ended.code, cluster.nodes[0].count(0)), (Some(0), 1), "{ended:?}");

    // The setting takes a boot, and the node says so.
    let changed = event(&operator, "node.condition-changed", |it| it["body"]["type"] == "RebootRequired").await;
    assert_eq!(changed["body"]["message"], "huge pages of 1 GiB: wants 16, has 0");
    let shown = operator.say(&["node", "show", "node-0"]).await;
    assert!(shown.contains("RebootRequired: huge pages"), "{shown}");

    let node = &mut cluster.nodes[0];
    node.kill();
    let release = ["reservation", "release", id, "--node", "node-0"];
    let released = operator.json(&release).await;
    assert_eq!(released["state"], "released");
    node.start();
    // It comes with generation 2, gets 3, and says nothing of what it holds no more.
    event(&operator, "node.spec-applied", |it| it["body"]["generation"] == 3).await;
    let spec = operator.json(&["node", "spec", "get", "node-0"]).await;
    assert_eq!((&spec["appliedGeneration"], &spec["document"]["holds"]), (&json!(3), &json!([])));
    assert_eq!(operator.json(&["reservation", "list", "--node", "node-0"]).await[0]["state"], "released");
    let applied = events(&operator, "node.spec-applied", |it| it["body"]["generation"] == 3).await;
    let count = |topic: &str| applied.iter().filter(|it| it["topic"] == topic).count();
    assert_eq!((count("node.spec-applied"), count("reservation.binding-refused")), (3, 0), "each once: {applied:?}");
}

/// The first event of a topic that fits, since the beginning.
async fn event(operator: &Operator, topic: &str, fits: impl Fn(&Value) -> bool) -> Value {
    events(operator, topic, fits).await.pop().expect("there is one")
}

/// All events up to the first one of a topic that fits.
async fn events(operator: &Operator, topic: &str, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    let words = ["events", "watch", "-o", "ndjson", "--node", "node-0", "--after", "0"];
    let mut command = Command::from(operator.command(&words));
    let mut watch = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let mut events: Vec<Value> = Vec::new();
    let read = async {
        while !events.last().is_some_and(|event| event["topic"] == topic && fits(event)) {
            let line = lines.next_line().await.expect("text").expect("it goes on");
            events.push(serde_json::from_str(&line).expect("JSON"));
        }
    };
    let found = tokio::time::timeout(PATIENCE, read).await;
    assert!(found.is_ok(), "no {topic} among {events:?}");
    events
}
