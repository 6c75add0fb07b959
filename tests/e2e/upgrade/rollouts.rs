//! Rollouts over several nodes.

use bc_host::api::types::Rollout;
use serde_json::{Value, json};

use super::releases::{Release, broken, cluster, good, serve};

async fn ask(cluster: &bc_tests::cluster::Cluster, method: &str, body: Value) -> Rollout {
    cluster.api.call(method, body).await
}

/// Returns when a rollout stands like this; nodes are served meanwhile.
async fn stands(cluster: &mut bc_tests::cluster::Cluster, id: &str, state: &str) -> Rollout {
    let bc_tests::cluster::Cluster { api, nodes, .. } = cluster;
    let [first, second, third] = nodes.as_mut_slice() else { panic!("three nodes") };
    let reached = async {
        loop {
            let rollout: Rollout = api.call("rollouts.get", json!({ "rolloutId": id })).await;
            if rollout.state == state {
                return rollout;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        rollout = tokio::time::timeout(2 * bc_tests::cluster::PATIENCE, reached) => rollout.expect("in time"),
        () = async { tokio::join!(serve(first), serve(second), serve(third)); } => unreachable!("they serve for ever"),
    }
}

fn start(release: &Release, key: &str) -> Value {
    json!({ "sha256": release.sha256, "idempotencyKey": key, "maxUnavailable": 1, "waves": [34] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_stops_at_the_first_failure_and_another_one_reaches_all() {
    let mut cluster = cluster(3).await;
    let release = broken(&cluster, "exits").await;
    let begun = ask(&cluster, "rollouts.start", start(&release, "bad")).await;
    let paused = stands(&mut cluster, &begun.id, "paused").await;
    assert_eq!(paused.reason, "too-many-failures");
    let steps: Vec<_> = paused.nodes.iter().map(|it| (it.step.as_str(), it.reason.as_str())).collect();
    assert_eq!(steps, [("failed", "rolled-back"), ("waiting", ""), ("waiting", "")]);
    let over = ask(&cluster, "rollouts.cancel", json!({ "rolloutId": begun.id })).await;
    assert_eq!(over.state, "cancelled");

    let release = good(&cluster, "2").await;
    let begun = ask(&cluster, "rollouts.start", start(&release, "good")).await;
    let again = ask(&cluster, "rollouts.start", start(&release, "good")).await;
    assert_eq!(again.id, begun.id, "the same key is the same rollout");
    // A replica that dies at each of its points is followed by one that goes on.
    for point in ["rollout.before-write", "rollout.after-write"] {
        cluster.replicas[0].start_to_crash(point).await;
        cluster.replicas[0].process().crashed().await;
        cluster.replicas[0].restart().await;
    }
    let done = stands(&mut cluster, &begun.id, "done").await;
    assert!(done.nodes.iter().all(|it| it.step == "succeeded"), "{:?}", done.nodes);
    for node in &cluster.nodes {
        assert_eq!(cluster.api.node(&node.id).await.bcd_version.as_ref(), Some(&release.version));
    }
}
