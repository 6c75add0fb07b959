//! Two daemons of one identity at once.

use bc_tests::cluster::{COUNT, Cluster, node::Node};

#[tokio::test(flavor = "multi_thread")]
async fn promise_09_a_second_daemon_on_one_state_directory_does_not_start() {
    let mut cluster = Cluster::start(1, 1).await;
    let Cluster { api, nodes, .. } = &mut cluster;
    let first = api.run(&nodes[0].id, COUNT.name, "first", Node::counted(0, 0)).await;
    assert_eq!(api.settled(&first).await.state, "succeeded");
    let mut second = nodes[0].second_daemon();
    assert_eq!(second.ended().await.code(), Some(1), "{}", second.said());
    let next = api.run(&nodes[0].id, COUNT.name, "next", Node::counted(1, 0)).await;
    assert_eq!(api.settled(&next).await.state, "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_09_two_machines_with_one_identity_run_a_command_once_between_them() {
    let mut cluster = Cluster::start(2, 1).await;
    let Cluster { api, nodes, .. } = &mut cluster;
    let one = &mut nodes[0];
    let ran = api.run(&one.id, COUNT.name, "earlier", Node::counted(7, 0)).await;
    assert_eq!(api.settled(&ran).await.state, "succeeded");
    one.kill();
    let mut other = one.twin("twin");
    one.start();
    other.start();
    // Each that says hello ends the session of the one before, which then comes back: they take turns.
    for gpu in 0..7 {
        let command = api.run(&one.id, COUNT.name, &format!("turn-{gpu}"), Node::counted(gpu, 300)).await;
        let settled = api.settled(&command).await;
        let count = one.count(gpu) + other.count(gpu);
        match (settled.state.as_str(), settled.reason.as_str()) {
            ("succeeded", "") => assert_eq!(count, 1, "{settled:?}"),
            (_, "journal-lost") => assert!(count <= 1, "{count} runs: {settled:?}"),
            other => panic!("{other:?}"),
        }
    }
}
