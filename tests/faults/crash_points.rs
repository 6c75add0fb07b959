//! Crashes of each kind of process, at named points and in the middle of everything.

use bc_tests::cluster::{COUNT, COUNT_DESTRUCTIVE, COUNT_SAFE, Cluster, node::Node};

/// The points of the daemon's loop, as `daemon/src/faults.rs` names them. How often each is passed before the crash: the first
/// times belong to the command's acceptance, the next to its result.
const POINTS: [&str; 6] = [
    "journal.before-save",
    "journal.after-save",
    "frame.before-send",
    "frame.after-send",
    "run.before-start",
    "run.after-start",
];

#[tokio::test(flavor = "multi_thread")]
async fn promise_02_over_all_crash_points_of_the_daemon_a_command_runs_at_most_once() {
    let mut cluster = Cluster::start(1, 1).await;
    for (case, point) in POINTS.iter().enumerate() {
        let gpu = u32::try_from(case).expect("few");
        cluster.nodes[0].start_to_crash(point, 1);
        let node = cluster.nodes[0].id.clone();
        let command = cluster.api.run(&node, COUNT.name, &format!("once-{point}"), Node::counted(gpu, 0)).await;
        cluster.nodes[0].process().crashed().await;
        cluster.nodes[0].start();
        let settled = cluster.api.settled(&command).await;
        let count = cluster.nodes[0].count(gpu);
        match (settled.state.as_str(), settled.reason.as_str()) {
            ("succeeded", "") => assert_eq!(count, 1, "{point}"),
            ("failed", "interrupted") => assert!(count <= 1, "{point}: {count} runs"),
            other => panic!("{point}: {other:?}"),
        }
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
