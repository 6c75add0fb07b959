//! Upgrades of the daemon: real binaries of other versions, real processes, and a service manager that starts what ends.
//!
//! **Invariant:** a release is a file of its own with a digest of its own. Good ones are the built `bcd` with another version in it.

mod releases;
mod rollouts;

use bc_tests::cluster::node::Node;
use bc_tests::cluster::{COUNT, COUNT_SAFE};
use serde_json::json;

use self::releases::{CURRENT, KIND, Release, broken, cluster, good, settled, wait_confirmed};

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_succeeds_when_the_new_version_has_a_session_that_lasts() {
    let mut cluster = cluster(1).await;
    let release = good(&cluster, "2").await;
    let command = cluster.api.run(&cluster.nodes[0].id, KIND, "up", release.payload()).await;
    let ended = settled(&mut cluster, 0, &command).await;
    assert_eq!((ended.state.as_str(), ended.reason.as_str()), ("succeeded", ""), "{ended:?}");
    let result = ended.result.expect("it has one");
    assert_eq!(result, json!({ "from": CURRENT, "to": release.version, "sha256": release.sha256, "changed": true }));
    let id = cluster.nodes[0].id.clone();
    assert_eq!(cluster.api.node(&id).await.bcd_version, Some(release.version.clone()));

    // A start of the installed binary goes on as the release, and once more changes nothing.
    cluster.nodes[0].start();
    let again = cluster.api.run(&id, KIND, "again", release.payload()).await;
    let again = settled(&mut cluster, 0, &again).await;
    assert_eq!((again.state.as_str(), &again.result.expect("one")["changed"]), ("succeeded", &json!(false)));
    assert_eq!(cluster.api.node(&id).await.bcd_version, Some(release.version));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_does_not_work_rolls_back_by_itself() {
    let mut cluster = cluster(1).await;
    let id = cluster.nodes[0].id.clone();
    for how in ["exits", "hangs", "no-session"] {
        let release = broken(&cluster, how).await;
        let command = cluster.api.run(&id, KIND, how, release.payload()).await;
        let ended = settled(&mut cluster, 0, &command).await;
        assert_eq!((ended.state.as_str(), ended.reason.as_str()), ("failed", "rolled-back"), "{how}: {ended:?}");
        assert_eq!(cluster.api.node(&id).await.bcd_version.as_deref(), Some(CURRENT), "{how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_it_should_be_is_not_staged() {
    let mut cluster = cluster(1).await;
    let id = cluster.nodes[0].id.clone();
    let unknown = Release { version: "9.0.0".into(), sha256: "ab".repeat(32) };
    let damaged = good(&cluster, "3").await;
    releases::damage(&cluster, &damaged).await;
    let misnamed = broken(&cluster, "misnamed").await;
    for (release, code) in [(unknown, "not-found"), (damaged, "wrong-digest"), (misnamed, "wrong-version")] {
        let command = cluster.api.run(&id, KIND, code, release.payload()).await;
        let ended = settled(&mut cluster, 0, &command).await;
        let result = ended.result.clone().unwrap_or_default();
        assert_eq!((ended.state.as_str(), &result["code"]), ("failed", &json!(code)), "{ended:?}");
    }
    let older = json!({ "version": "0.9.0", "sha256": "ab".repeat(32) });
    let command = cluster.api.run(&id, KIND, "older", older).await;
    let ended = settled(&mut cluster, 0, &command).await;
    assert_eq!(ended.result.expect("it says why")["code"], "downgrade");

    // Nobody vouches for anything, and this node's operator does not allow that.
    cluster.nodes[0].configure("allow-unsigned = false");
    let config = cluster.nodes[0].path("bcd.toml");
    let text = std::fs::read_to_string(&config).expect("it is there").replacen("allow-unsigned = true\n", "", 1);
    std::fs::write(config, text).expect("it is written");
    cluster.nodes[0].start();
    let release = good(&cluster, "4").await;
    let command = cluster.api.run(&id, KIND, "untrusted", release.payload()).await;
    let ended = settled(&mut cluster, 0, &command).await;
    assert_eq!(ended.result.expect("it says why")["code"], "untrusted");
}

/// Every point of a way to another version, as `daemon/src/faults.rs` names them, and which passing of it.
const POINTS: [(&str, u32); 13] = [
    // Each process counts anew. The installed one comes here at every start but the first, when it has nothing to choose from.
    ("slots.before-exec", 1),
    ("release.before-keep", 1),
    ("release.after-keep", 1),
    // Staged, and then on trial.
    ("slots.before-write", 1),
    ("slots.after-write", 1),
    ("intent.before-carry-out", 1),
    ("intent.after-carry-out", 1),
    ("slots.before-write", 2),
    ("slots.after-write", 2),
    ("restart.before-exec", 1),
    // In the new process.
    ("confirm.before", 1),
    ("journal.before-save", 3),
    ("journal.after-save", 3),
];

#[tokio::test(flavor = "multi_thread")]
async fn promise_02_over_all_crash_points_of_an_upgrade_nothing_runs_twice_and_the_node_comes_back() {
    let mut cluster = cluster(1).await;
    let id = cluster.nodes[0].id.clone();
    for (case, (point, n)) in POINTS.into_iter().enumerate() {
        let gpu = u32::try_from(case % 8).expect("few");
        let before = cluster.nodes[0].count(gpu);
        // Each goes up, by a file of its own.
        let release = good(&cluster, &format!("1{}", char::from(b'a' + u8::try_from(case).expect("few")))).await;
        cluster.nodes[0].start_to_crash(point, n);
        let counted = cluster.api.run(&id, COUNT.name, &format!("count {point}:{n}"), Node::counted(gpu, 0)).await;
        let safe = Node::counted((gpu + 1) % 8, 200);
        let safe = cluster.api.run(&id, COUNT_SAFE.name, &format!("safe {point}:{n}"), safe).await;
        let command = cluster.api.run(&id, KIND, &format!("{point}:{n}"), release.payload()).await;
        let ended = settled(&mut cluster, 0, &command).await;
        let outcome = (ended.state.as_str(), ended.reason.as_str());
        let expected = [("succeeded", ""), ("failed", "rolled-back"), ("failed", "interrupted")];
        assert!(expected.contains(&outcome), "{point}:{n}: {ended:?}");
        let counted = settled(&mut cluster, 0, &counted).await;
        let runs = cluster.nodes[0].count(gpu) - before;
        assert!(runs <= 1, "{point}:{n}: {runs} runs");
        assert_eq!(counted.state == "succeeded", runs == 1 && counted.reason.is_empty(), "{point}:{n}: {counted:?}");
        let safe = settled(&mut cluster, 0, &safe).await;
        assert_eq!((safe.state.as_str(), safe.reason.as_str()), ("succeeded", ""), "{point}:{n}");
        // Whichever version it is, it serves.
        wait_confirmed(&mut cluster, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_03_what_runs_when_an_upgrade_comes_runs_to_its_end_and_its_result_lands() {
    let mut cluster = cluster(1).await;
    let id = cluster.nodes[0].id.clone();
    let release = good(&cluster, "2").await;
    let (once, safe) = (Node::counted(0, 3_000), Node::counted(1, 3_000));
    let once = cluster.api.run(&id, COUNT.name, "once", once).await;
    let safe = cluster.api.run(&id, COUNT_SAFE.name, "safe", safe).await;
    cluster.nodes[0].has_counted(0, 1).await;
    cluster.nodes[0].has_counted(1, 1).await;
    let command = cluster.api.run(&id, KIND, "up", release.payload()).await;
    let ended = settled(&mut cluster, 0, &command).await;
    assert_eq!((ended.state.as_str(), ended.reason.as_str()), ("succeeded", ""), "{ended:?}");
    for (command, gpu) in [(once, 0), (safe, 1)] {
        let command = settled(&mut cluster, 0, &command).await;
        assert_eq!((command.state.as_str(), cluster.nodes[0].count(gpu)), ("succeeded", 1), "{command:?}");
    }
}
