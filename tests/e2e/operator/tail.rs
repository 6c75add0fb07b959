//! What a command's programs write, followed while they run.

use std::fs;

use bc_tests::{cluster::Cluster, inspected};
use serde_json::json;

use crate::admin;

/// A cluster whose node runs the kind that runs scripts.
async fn with_scripts() -> Cluster {
    let mut cluster = Cluster::start(2, 1).await;
    cluster.api.register(inspected("test.program").bytes).await;
    let node = &mut cluster.nodes[0];
    let file = node.path("bcd.toml");
    let config = fs::read_to_string(&file).expect("the node has a configuration");
    let grant = "[grants.'test.program']\nprocess = { programs = [{ program = 'sh', argv = ['-c', '*'] }] }\n";
    fs::write(&file, config + grant).expect("it can be written");
    node.kill();
    node.start();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_followed_while_it_runs_and_from_any_place() {
    let cluster = with_scripts().await;
    let operator = admin(&cluster);
    let go = cluster.folder().join("go");
    let script = format!(
        "echo first; echo oh >&2; while [ ! -e {go} ]; do sleep 0.05; done; printf 'l\\303\\244st'",
        go = go.display()
    );
    let payload = json!({ "script": script }).to_string();
    let words = ["run", "test.program", "--node", "node-0", "--no-wait", "-o", "name", "--payload", &payload];
    let id = operator.say(&words).await;
    let tail = ["commands", "tail", &id, "--node", "node-0"];

    let mut follows = operator.start(&[&tail[..], &["--follow"]].concat());
    // Both are there before the program goes on: it waits for the file.
    follows.has_said("oh").await;
    let so_far = operator.run(&tail).await;
    assert_eq!((so_far.out.as_str(), so_far.err.as_str(), so_far.code), ("first\n", "oh\n", Some(0)));
    fs::write(&go, "").expect("it can be written");
    assert_eq!(follows.ended().await.code(), Some(0), "{}", follows.said());
    assert!(follows.said().contains("test.program: succeeded"), "{}", follows.said());

    // Afterwards as well, whole, and from where somebody was cut off.
    let all = operator.run(&tail).await;
    assert_eq!((all.out.as_str(), all.err.as_str(), all.code), ("first\nläst", "oh\n", Some(0)));
    let rest = operator.run(&[&tail[..], &["--after", "1.6.3"]].concat()).await;
    assert_eq!((rest.out.as_str(), rest.err.as_str()), ("läst", ""));
    let pieces = operator.run(&[&tail[..], &["--after", "1.7.0", "-o", "ndjson"]].concat()).await;
    let piece: serde_json::Value = serde_json::from_str(pieces.out.lines().last().expect("a piece")).expect("JSON");
    assert_eq!((&piece["stream"], &piece["offset"]), (&json!("stdout"), &json!(7)), "{pieces:?}");
    let wrong = operator.run(&[&tail[..], &["--after", "7"]].concat()).await;
    assert!(wrong.code == Some(1) && wrong.err.contains("three numbers"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_05_what_is_too_much_to_follow_is_told_whole_by_the_result() {
    let cluster = with_scripts().await;
    let operator = admin(&cluster);
    let payload = json!({ "script": "head -c 3000000 /dev/zero | tr '\\0' x" }).to_string();
    let result = operator.json(&["run", "test.program", "--node", "node-0", "--payload", &payload]).await;
    assert_eq!(result["result"]["bytes"], 3_000_000, "{result}");
    let id = result["id"].as_str().expect("it has an id");
    let tail = operator.run(&["commands", "tail", id, "--node", "node-0", "-f"]).await;
    assert_eq!(tail.code, Some(0), "{}", tail.err);
    assert!(tail.out.len() <= 1024 * 1024 && tail.out.bytes().all(|byte| byte == b'x'), "{} bytes", tail.out.len());
}
