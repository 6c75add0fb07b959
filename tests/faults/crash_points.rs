//! Crashes of each kind of process, at named points and in the middle of everything.

use bc_tests::cluster::{COUNT, COUNT_DESTRUCTIVE, COUNT_REBOOT, COUNT_SAFE, Cluster, Variant, node::Node};
use serde_json::json;

/// The points of the daemon's loop, as `daemon/src/faults.rs` names them, and which passing of each belongs to one command: the
/// records of its acceptance, its result and the acknowledgement; what is said of its acceptance, its start and its result.
const POINTS: [(&str, u32); 14] = [
    ("journal.before-save", 1),
    ("journal.after-save", 1),
    ("journal.before-save", 2),
    ("journal.after-save", 2),
    ("journal.before-save", 3),
    ("journal.after-save", 3),
    ("frame.before-send", 1),
    ("frame.after-send", 1),
    ("frame.after-send", 2),
    // Between the result's record and the frame that tells it.
    ("frame.before-send", 3),
    ("frame.after-send", 3),
    ("run.before-start", 1),
    ("run.after-start", 1),
    ("frame.before-send", 2),
];

#[tokio::test(flavor = "multi_thread")]
async fn promise_02_over_all_crash_points_of_the_daemon_a_command_runs_at_most_once() {
    over_all_points(COUNT, |outcome, count, point| match outcome {
        ("succeeded", "") => assert_eq!(count, 1, "{point}"),
        ("failed", "interrupted") => assert!(count <= 1, "{point}: {count} runs"),
        other => panic!("{point}: {other:?}"),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_03_over_all_crash_points_of_the_daemon_what_may_run_again_succeeds() {
    over_all_points(COUNT_SAFE, |outcome, count, point| {
        assert_eq!(outcome, ("succeeded", ""), "{point}");
        assert!((1..=2).contains(&count), "{point}: {count} runs");
    })
    .await;
}

async fn over_all_points(kind: Variant, check: impl Fn((&str, &str), usize, &str)) {
    let mut cluster = Cluster::start(1, 1).await;
    let node = cluster.nodes[0].id.clone();
    for (case, (point, n)) in POINTS.into_iter().enumerate() {
        let gpu = u32::try_from(case % 8).expect("few");
        let before = cluster.nodes[0].count(gpu);
        cluster.nodes[0].start_to_crash(point, n);
        let (key, payload) = (format!("{point}:{n}"), Node::counted(gpu, 0));
        let command = cluster.api.run(&node, kind.name, &key, payload.clone()).await;
        cluster.nodes[0].process().crashed().await;
        cluster.nodes[0].start();
        let settled = cluster.api.settled(&command).await;
        check((&settled.state, &settled.reason), cluster.nodes[0].count(gpu) - before, &key);
        let again = cluster.api.run(&node, kind.name, &key, payload).await;
        assert_eq!((again.id, again.state), (settled.id, settled.state), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_03_the_result_of_a_run_that_ends_while_nobody_listens_lands() {
    let mut cluster = Cluster::start(1, 1).await;
    let node = cluster.nodes[0].id.clone();
    // Between the result's record and the frame that tells it.
    cluster.nodes[0].start_to_crash("frame.before-send", 3);
    let command = cluster.api.run(&node, COUNT.name, "result", Node::counted(0, 0)).await;
    cluster.nodes[0].process().crashed().await;
    cluster.nodes[0].start();
    let settled = cluster.api.settled(&command).await;
    assert_eq!((settled.state.as_str(), cluster.nodes[0].count(0)), ("succeeded", 1), "{settled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_11_a_killed_replica_is_replaced_by_another() {
    let mut cluster = Cluster::start(2, 2).await;
    // Whichever replica has a node's session, one of the two is it.
    for killed in [0, 1] {
        let mut commands = Vec::new();
        for (gpu, node) in (killed * 2..).zip(&cluster.nodes) {
            let payload = Node::counted(u32::try_from(gpu).expect("few"), 500);
            commands.push(cluster.api.run(&node.id, COUNT.name, &format!("round-{killed}"), payload).await);
        }
        cluster.replicas[killed].kill();
        for (gpu, (node, command)) in (killed * 2..).zip(cluster.nodes.iter().zip(&commands)) {
            let settled = cluster.api.settled(command).await;
            assert_eq!(settled.state, "succeeded", "{settled:?}");
            assert_eq!(node.count(u32::try_from(gpu).expect("few")), 1);
        }
        cluster.replicas[killed].restart().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_02_a_killed_database_forgets_nothing_that_a_node_has() {
    let mut cluster = Cluster::start(1, 1).await;
    let node = cluster.nodes[0].id.clone();
    for gpu in 0..4 {
        let kind = if gpu % 2 == 0 { COUNT } else { COUNT_SAFE };
        let command = cluster.api.run(&node, kind.name, &format!("over-{gpu}"), Node::counted(gpu, 0)).await;
        cluster.database.kill();
        cluster.database.restart();
        let settled = cluster.api.settled(&command).await;
        assert_eq!(settled.state, "succeeded", "{settled:?}");
        assert_eq!(cluster.nodes[0].count(gpu), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_15_a_node_that_is_enrolled_again_runs_nothing_destructive_of_before() {
    let mut cluster = Cluster::start(1, 1).await;
    let node = cluster.nodes[0].id.clone();
    cluster.nodes[0].kill();
    let command = cluster.api.run(&node, COUNT_DESTRUCTIVE.name, "wipe", Node::counted(0, 0)).await;
    let harmless = cluster.api.run(&node, COUNT.name, "look", Node::counted(1, 0)).await;
    let token = cluster.api.join_token(Some(&node)).await;
    let gateways = vec![cluster.replicas[0].gateway_url()];
    cluster.nodes[0].enrol(&gateways, &token, true);
    cluster.nodes[0].start();
    let settled = cluster.api.settled(&command).await;
    assert_eq!((settled.state.as_str(), settled.reason.as_str()), ("expired", "node-replaced"));
    assert_eq!(cluster.api.settled(&harmless).await.state, "succeeded");
    assert_eq!((cluster.nodes[0].count(0), cluster.nodes[0].count(1)), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_01_coming_back_settles_a_reboot_whatever_crashed_around_it() {
    let mut cluster = Cluster::start(1, 1).await;
    let node = cluster.nodes[0].id.clone();
    let points = POINTS.into_iter().filter(|&(point, n)| n == 1 || point.starts_with("frame") && n == 2);
    for (case, (point, n)) in points.enumerate() {
        let gpu = u32::try_from(case % 8).expect("few");
        let before = cluster.nodes[0].count(gpu);
        cluster.nodes[0].start_to_crash(point, n);
        let key = format!("reboot {point}:{n}");
        let command = cluster.api.run(&node, COUNT_REBOOT.name, &key, Node::counted(gpu, 600_000)).await;
        cluster.nodes[0].process().crashed().await;
        cluster.nodes[0].reboot();
        cluster.nodes[0].start();
        let settled = cluster.api.settled(&command).await;
        assert_eq!((settled.state.as_str(), settled.result), ("succeeded", Some(json!({ "rebooted": true }))), "{key}");
        assert!(cluster.nodes[0].count(gpu) <= before + 1, "{key}");
    }
    // And the one that nothing crashed but the machine itself.
    let before = cluster.nodes[0].count(0);
    let command = cluster.api.run(&node, COUNT_REBOOT.name, "reboot", Node::counted(0, 600_000)).await;
    cluster.nodes[0].has_counted(0, before + 1).await;
    cluster.nodes[0].reboot();
    cluster.nodes[0].start();
    let settled = cluster.api.settled(&command).await;
    assert_eq!((settled.state.as_str(), settled.result), ("succeeded", Some(json!({ "rebooted": true }))));
    let last = cluster.api.run(&node, COUNT.name, "after", Node::counted(1, 0)).await;
    assert_eq!(cluster.api.settled(&last).await.state, "succeeded");
    assert_eq!(cluster.nodes[0].count(0), before + 1, "it ran before the boot and never again");
}
