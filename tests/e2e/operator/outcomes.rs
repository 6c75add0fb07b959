//! What became of a command, as an exit code.

use bc_tests::cluster::{COUNT, Cluster};
use rustix::process::Signal;

use crate::{admin, counted};

#[tokio::test(flavor = "multi_thread")]
async fn promise_10_every_outcome_of_a_real_command_has_its_exit_code() {
    let mut cluster = Cluster::start(1, 2).await;
    cluster.nodes[1].process().has_said("a session is open").await;
    cluster.nodes[1].kill();
    // No node grants anything to this one, so a node that is told to run it fetches it and does not admit it.
    cluster
        .register(|manifest| {
            manifest.name = "site.ungranted".into();
            manifest.module = "site".into();
        })
        .await;
    let operator = admin(&cluster);
    let (quick, long, broken) = (counted(0, 0), counted(1, 60_000), r#"{"gpu":"GPU-none"}"#);
    let run = ["run", COUNT.name, "--node", "node-0", "--payload"];
    let with = |words: &[&'static str], rest: &[&str]| -> Vec<String> {
        words.iter().chain(rest).map(|word| (*word).to_owned()).collect()
    };
    let exits = async |words: Vec<String>, code: i32, part: &str| {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let said = operator.run(&words).await;
        let where_it_stands = if code == 0 { &said.out } else { &said.err };
        assert!(said.code == Some(code) && where_it_stands.contains(part), "{words:?}: {code} {part:?}: {said:?}");
        assert!(code == 1 || said.err.starts_with("key: "), "the key comes first: {said:?}");
        assert!(code == 0 || said.out.is_empty(), "only results go to standard output: {said:?}");
    };
    let absent = ["run", COUNT.name, "--node", "node-1", "--not-after", "10s", "--payload"];
    let ungranted = ["run", "site.ungranted", "--node", "node-0", "--payload"];
    let cancelled = async {
        let mut waits = operator.start(&["run", COUNT.name, "--node", "node-0", "--key", "off", "--payload", &long]);
        waits.has_said(": running").await;
        let so_far = waits.said();
        let id = so_far.split_whitespace().find(|word| word.starts_with("cmd_")).expect("it says which command");
        let said = operator.run(&["commands", "cancel", id, "--node", "node-0"]).await;
        assert!(said.code == Some(0) && said.err.contains("it was asked to stop"), "{said:?}");
        assert_eq!(waits.ended().await.code(), Some(6), "{}", waits.said());
    };
    tokio::join!(
        exits(with(&run, &[&quick]), 0, "\"attempt\": 1"),
        exits(with(&run, &[broken]), 2, "guest-failure"),
        exits(with(&ungranted, &[&quick]), 3, "KIND_UNAVAILABLE"),
        exits(with(&absent, &[&quick]), 5, "it never ran"),
        exits(with(&run, &[&long, "--wait-timeout", "1s"]), 124, "the command goes on"),
        exits(with(&["run", "site.unknown", "--node", "node-0"], &[]), 1, "UNSUPPORTED"),
        exits(with(&["run", COUNT.name, "--node", "node-0"], &[]), 1, "INVALID_INPUT"),
        cancelled,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_wait_leaves_the_command_running() {
    let cluster = Cluster::start(1, 1).await;
    let operator = admin(&cluster);
    let mut waits =
        operator.start(&["run", COUNT.name, "--node", "node-0", "--key", "mine", "--payload", &counted(0, 6_000)]);
    waits.has_said(": running").await;
    waits.signal(Signal::INT);
    assert_eq!(waits.ended().await.code(), Some(130));
    let said = waits.said();
    let advice = said.lines().find(|line| line.contains("commands watch")).expect("it says how to go on").trim();
    assert!(said.contains("better-compute commands cancel cmd_"), "{said}");
    // What it advises works as it stands, and the command was not called off.
    let words: Vec<_> = advice.split_whitespace().skip_while(|word| *word != "commands").collect();
    let found = operator.json(&[&["commands", "get"], &words[2..]].concat()).await;
    assert!(found["settledAt"].is_null() && found["cancelRequestedAt"].is_null(), "{found}");
    assert!(operator.say(&words).await.contains("\"attempt\": 1"));
    // The same key is the same command.
    let again = ["run", COUNT.name, "--node", "node-0", "--key", "mine", "--payload", &counted(0, 6_000), "-o", "name"];
    assert_eq!(operator.say(&again).await, words[2]);
    assert_eq!(cluster.nodes[0].count(0), 1);
}
