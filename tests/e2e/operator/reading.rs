//! Reading what happened: at once, at any replica, in every format, and when events are lost.

use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::{COUNT, Cluster};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::{admin, counted};

#[tokio::test(flavor = "multi_thread")]
async fn promise_20_what_was_queued_is_found_at_once_and_a_wait_ends_without_events() {
    let mut cluster = Cluster::start(2, 1).await;
    let first = admin(&cluster);
    let second = Operator::new(&cluster.replicas[1].api_url(), cluster.api.token());
    for gpu in 0..4 {
        let words = ["run", COUNT.name, "--node", "node-0", "--no-wait", "-o", "name", "--payload", &counted(gpu, 0)];
        let id = first.say(&words).await;
        let found = second.json(&["commands", "get", &id, "--node", "node-0"]).await;
        assert_eq!(found["id"], Value::from(id));
    }

    // Who may not read events gets none of them, which is every event lost.
    let words = ["token", "create", "--identity", "deaf", "--grant", "compute:nodes:read=*", "--grant"];
    let token = first.say(&[&words[..], &["compute:nodes:exec=*", "-o", "name"]].concat()).await;
    let deaf = Operator::new(&cluster.replicas[0].api_url(), &token);
    deaf.refused(&["events", "watch"], "PERMISSION_DENIED").await;
    let words = ["run", COUNT.name, "--node", "node-0", "--payload", &counted(4, 1_000)];
    assert!(deaf.say(&words).await.contains("\"attempt\": 1"));

    // And the replica that told them dies in the middle.
    let words = ["run", COUNT.name, "--node", "node-0", "--payload", &counted(5, 6_000)];
    let mut waits = first.start(&words);
    waits.has_said(": running").await;
    cluster.replicas[0].restart().await;
    assert_eq!(waits.ended().await.code(), Some(0), "{}", waits.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_shown_in_every_format_and_explained() {
    let mut cluster = Cluster::start(1, 2).await;
    cluster.nodes[1].process().has_said("a session is open").await;
    cluster.nodes[1].kill();
    let operator = admin(&cluster);
    let node = cluster.nodes[0].id.clone();
    // As the generic way has it; types come from the API's own description.
    let words = ["api", "commands.run", "kind=test.count", "idempotencyKey=0412", "notAfterSeconds=60"];
    let payload = format!("payload:={}", counted(0, 0));
    let queued = operator.say(&[&words[..], &[&format!("nodeId={node}"), &payload]].concat()).await;
    let queued: Value = serde_json::from_str(&queued).expect("JSON");
    assert_eq!((&queued["kind"], &queued["seq"]), (&COUNT.name.into(), &1.into()), "{queued}");
    let id = queued["id"].as_str().expect("an id");
    let watched = operator.say(&["commands", "watch", id, "--node", &node]).await;
    assert!(watched.contains("\"attempt\": 1"), "{watched}");
    let words = ["run", COUNT.name, "--node", "node-0", "-o", "name", "--payload", r#"{"gpu":"GPU-none"}"#];
    let failed = operator.run(&words).await;
    assert_eq!(failed.code, Some(2), "{failed:?}");
    let failed = failed.out.trim();

    let list = async |format: &str| operator.say(&["commands", "list", "--node", "node-0", "-o", format]).await;
    // Newest first.
    assert_eq!(list("name").await, format!("{failed}\n{id}"));
    assert_eq!(list("ndjson").await.lines().count(), 2);
    let json: Value = serde_json::from_str(&list("json").await).expect("JSON");
    assert_eq!((&json[0]["state"], &json[1]["result"]["attempt"]), (&"failed".into(), &1.into()), "{json}");
    let table = list("table").await;
    assert!(table.starts_with("ID") && table.contains("guest-failure") && table.lines().count() == 3, "{table}");
    let words = ["commands", "list", "--node", "node-0", "--state", "succeeded", "--limit", "1", "-o", "name"];
    assert_eq!(operator.say(&words).await, id);
    let got = operator.say(&["commands", "get", failed, "--node", "node-0"]).await;
    assert!(got.contains("the kind says why") && got.contains("GPU-none"), "{got}");

    let why = operator.say(&["commands", "explain", failed, "--node", "node-0"]).await;
    assert!(why.contains("it is over: failed, reason guest-failure") && why.contains("the node says: "), "{why}");
    let words = ["run", COUNT.name, "--node", "node-1", "--no-wait", "-o", "name", "--payload", &counted(0, 0)];
    let waits = operator.say(&words).await;
    let why = operator.json(&["commands", "explain", &waits, "--node", "node-1"]).await;
    let reasons = why["reasons"].to_string();
    assert!(
        reasons.contains("the node node-1 is not connected") && reasons.contains("its deadline passes"),
        "{reasons}"
    );
    // What waits is cancelled at once; what is over stays as it is.
    let cancel = operator.run(&["commands", "cancel", &waits, "--node", "node-1", "-o", "json"]).await;
    assert!(cancel.err.contains("it is cancelled") && cancel.out.contains("\"cancelled\""), "{cancel:?}");
    assert_eq!(operator.run(&["commands", "watch", &waits, "--node", "node-1"]).await.code, Some(6));
    let cancel = operator.run(&["commands", "cancel", failed, "--node", "node-0"]).await;
    assert!(cancel.code == Some(0) && cancel.err.contains("it was over already"), "{cancel:?}");

    resumes(&operator, id).await;
}

/// Events of one command: all of them, and then after each of them the rest.
async fn resumes(operator: &Operator, id: &str) {
    let all = lines(operator, &["--command", id, "--after", "0"], "command.settled").await;
    let topics: Vec<_> = all.iter().map(|event| event["topic"].as_str().unwrap_or_default()).collect();
    assert_eq!(topics, ["node.command.queued", "command.settled"]);
    for (at, event) in all.iter().enumerate().take(all.len() - 1) {
        let after = event["id"].as_str().expect("an id");
        let rest = lines(operator, &["--command", id, "--after", after], "command.settled").await;
        assert_eq!(rest, all[at + 1..]);
    }
    operator.refused(&["events", "watch", "--after", "x"], "INVALID_INPUT").await;
}

/// What `events watch` prints until it has printed this topic.
async fn lines(operator: &Operator, words: &[&str], last: &str) -> Vec<Value> {
    let mut command = Command::from(operator.command(&[&["events", "watch", "-o", "ndjson"], words].concat()));
    let mut watch = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let mut events: Vec<Value> = Vec::new();
    let read = async {
        while events.last().is_none_or(|event| event["topic"] != last) {
            let line = lines.next_line().await.expect("text").expect("it goes on");
            events.push(serde_json::from_str(&line).expect("JSON"));
        }
    };
    tokio::time::timeout(bc_tests::cluster::PATIENCE, read).await.expect("the events come");
    events
}
