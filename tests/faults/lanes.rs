//! Lanes of real nodes: full ones, hung ones, and many that come back at once.

use std::collections::HashMap;

use bc_host::api::types::Command;
use bc_proto::rules::lane::LIMITS;
use bc_tests::cluster::{COUNT, COUNT_BULK, COUNT_PROVISION, Cluster, node::Node, until};

#[tokio::test(flavor = "multi_thread")]
async fn promise_08_after_all_replicas_died_at_once_pending_work_flows_in_order_within_its_credits() {
    let mut cluster = Cluster::start(2, 8).await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    let kinds = [COUNT, COUNT_PROVISION, COUNT_BULK, COUNT_PROVISION, COUNT_BULK, COUNT_BULK];
    let mut commands = Vec::new();
    for node in &cluster.nodes {
        for (gpu, kind) in (0..12).zip(kinds.into_iter().cycle()) {
            let payload = Node::counted(gpu % 8, 50);
            commands.push((kind.lane, cluster.api.run(&node.id, kind.name, &format!("pending-{gpu}"), payload).await));
        }
    }
    for node in &mut cluster.nodes {
        node.start();
    }
    // It has begun, and is far from done.
    let ran = |node: &Node| (0..8).map(|gpu| node.count(gpu)).sum::<usize>();
    until("something runs", || cluster.nodes.iter().any(|node| ran(node) > 0)).await;
    for replica in &mut cluster.replicas {
        replica.kill();
    }
    for replica in &mut cluster.replicas {
        replica.restart().await;
    }
    let mut lanes: HashMap<_, Vec<Command>> = HashMap::new();
    for (lane, command) in &commands {
        let settled = cluster.api.settled(command).await;
        assert_eq!((settled.state.as_str(), settled.reason.as_str()), ("succeeded", ""), "{settled:?}");
        lanes.entry((settled.node_id.clone(), *lane)).or_default().push(settled);
    }
    for node in &cluster.nodes {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|gpu| node.count(gpu)), [2, 2, 2, 2, 1, 1, 1, 1], "{}", node.id);
    }
    for ((node, lane), commands) in lanes {
        assert!(commands.is_sorted_by_key(|it| it.seq), "as they were queued");
        assert!(commands.is_sorted_by_key(|it| it.dispatched_at), "{node} {lane:?}: {commands:#?}");
        let limit = LIMITS.get(lane) as usize;
        for command in &commands {
            let at = command.dispatched_at;
            let in_flight = commands.iter().filter(|it| it.dispatched_at <= at && it.settled_at > at).count();
            assert!(in_flight <= limit, "{node} {lane:?}: {in_flight} of {limit} at {at:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_13_a_cancel_does_not_wait_behind_the_full_lane_of_what_it_cancels() {
    let cluster = Cluster::start(1, 1).await;
    let (api, node) = (&cluster.api, &cluster.nodes[0]);
    let queue =
        async |gpu| api.run(&node.id, COUNT_BULK.name, &format!("long-{gpu}"), Node::counted(gpu, 600_000)).await;
    let running = [queue(0).await, queue(1).await];
    node.has_counted(0, 1).await;
    node.has_counted(1, 1).await;
    let waiting = [queue(2).await, queue(3).await];
    // One that waits is cancelled at once, and never starts.
    assert_eq!(api.cancel(&waiting[0]).await.state, "cancelled");
    api.cancel(&running[0]).await;
    assert_eq!(api.settled(&running[0]).await.state, "cancelled");
    assert_eq!(api.get(&running[1]).await.settled_at, None, "the other one goes on");
    // Its worker comes back, for the next in line.
    node.has_counted(3, 1).await;
    for command in [&running[1], &waiting[1]] {
        api.cancel(command).await;
        assert_eq!(api.settled(command).await.state, "cancelled");
    }
    assert_eq!([0, 1, 2, 3].map(|gpu| node.count(gpu)), [1, 1, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_14_commands_that_hang_in_the_driver_delay_no_other_lane() {
    let mut cluster = Cluster::start(1, 1).await;
    let Cluster { api, nodes, .. } = &mut cluster;
    let node = &mut nodes[0];
    node.hang_driver(true);
    let mut hung = Vec::new();
    for gpu in 0..3 {
        let payload = Node::counted(gpu, 0);
        hung.push(api.run(&node.id, COUNT_BULK.name, &format!("hung-{gpu}"), payload).await);
    }
    node.hangs(2).await;
    node.hang_driver(false);
    for gpu in 3..8 {
        let kind = if gpu % 2 == 0 { COUNT } else { COUNT_PROVISION };
        let command = api.run(&node.id, kind.name, &format!("quick-{gpu}"), Node::counted(gpu, 0)).await;
        assert_eq!(api.settled(&command).await.state, "succeeded");
    }
    for command in &hung {
        assert_eq!(api.get(command).await.settled_at, None, "it hangs, or waits for a worker");
    }
    // The workers come back, and the third one gets one.
    let _pipe = node.release();
    for command in &hung {
        assert_eq!(api.settled(command).await.state, "succeeded");
    }
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|gpu| node.count(gpu)), [1; 8]);
}
