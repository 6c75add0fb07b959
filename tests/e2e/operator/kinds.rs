//! Kinds at the control plane, and what completions know.

use bc_tests::cluster::operator::word;
use bc_tests::cluster::{COUNT, Cluster};
use bc_tests::{programs, repacked};
use serde_json::Value;

use crate::{admin, counted};

#[tokio::test(flavor = "multi_thread")]
async fn kinds_are_pushed_listed_activated_and_retired() {
    let cluster = Cluster::start(1, 1).await;
    let operator = admin(&cluster);
    let version = |version: &str| {
        let packed = repacked("test.count", |manifest| {
            manifest.name = "test.fresh".into();
            manifest.version = version.parse().expect("a version");
        });
        operator.file(&format!("{version}.wasm"), &packed.bytes)
    };
    let (one, two) = (version("1.0.0"), version("1.1.0"));
    let pushed = operator.json(&["kind", "push", &one, &two, "--expose"]).await;
    let digest = |kind: &Value| kind["digest"].as_str().expect("a digest").to_owned();
    let (first, second) = (digest(&pushed[0]), digest(&pushed[1]));
    let run = ["run", "test.fresh", "--node", "node-0", "--payload", &counted(0, 0)];
    // Nobody chose a version yet.
    operator.refused(&run, "UNSUPPORTED").await;
    let active = async || operator.json(&["kind", "get", "test.fresh"]).await["version"].clone();
    for (chosen, version) in [(&second, "1.1.0"), (&first, "1.0.0")] {
        operator.say(&["kind", "activate", chosen]).await;
        assert_eq!(active().await, version);
        operator.say(&run).await;
    }
    // The same bytes change nothing; other bytes are another version.
    assert_eq!(digest(&operator.json(&["kind", "push", &one]).await[0]), first);
    let other = repacked("test.count", |manifest| {
        manifest.name = "test.fresh".into();
        manifest.summary = "The same version with other bytes".into();
    });
    operator.refused(&["kind", "push", &operator.file("other.wasm", &other.bytes)], "CONFLICT").await;
    operator.refused(&["kind", "push", &operator.file("bad.wasm", b"no component")], "INVALID_INPUT").await;
    operator.refused(&["kind", "push", &word(&operator.path("none.wasm"))], "cannot be read").await;
    operator.refused(&["kind", "get", "test.none"], "NOT_FOUND").await;

    operator.say(&["kind", "retire", "test.fresh"]).await;
    operator.refused(&run, "UNSUPPORTED").await;
    let names = operator.say(&["kind", "list", "-o", "name"]).await;
    assert!(names.lines().any(|name| name == COUNT.name) && !names.contains("test.fresh"), "{names}");
    let all = operator.say(&["kind", "list", "--all"]).await;
    assert!(all.starts_with("NAME") && all.contains("test.fresh") && all.contains("retired"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_know_the_nodes_and_kinds_that_there_are() {
    let cluster = Cluster::start(1, 1).await;
    let operator = admin(&cluster);
    let complete = async |words: &[&str]| {
        let mut command = operator.command(&[&["--", "better-compute"], words].concat());
        command.env("COMPLETE", "fish");
        tokio::task::spawn_blocking(move || programs::run(&mut command)).await.expect("it runs").out
    };
    let nodes = complete(&["run", COUNT.name, "--node", "no"]).await;
    assert!(nodes.contains("node-0"), "{nodes}");
    let kinds = complete(&["run", "test.count-"]).await;
    assert!(kinds.contains("test.count-safe") && kinds.contains("counted outside"), "{kinds}");
    assert!(complete(&["commands", "list", "--node", "x"]).await.is_empty());
    assert_eq!(complete(&["context", "use", ""]).await.split_whitespace().next(), Some("here"));
}
