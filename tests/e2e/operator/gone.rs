//! A node that never comes back.

use std::time::Duration;

use bc_proto::quantity::Span;
use bc_tests::cluster::Cluster;
use bc_tests::cluster::node::Node;

/// What a command may wait for its node at least.
const NOT_AFTER: Duration = Duration::from_secs(10);
/// How long the kind may run.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Between two sweeps.
const SWEEP: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn promise_04_what_a_node_had_that_is_gone_for_good_is_over_by_its_deadline_and_a_sweep() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster
        .register(|manifest| {
            manifest.name = "test.count-brief".into();
            manifest.timeout = Span(TIMEOUT);
        })
        .await;
    let node = cluster.nodes[0].id.clone();
    cluster.nodes[0].start_to_crash("run.after-start", 1);
    let run = async |key: &str, gpu| {
        cluster.api.run_for(&node, "test.count-brief", key, Node::counted(gpu, 60_000), 10).await
    };
    let had = run("had", 0).await;
    cluster.nodes[0].process().crashed().await;
    let never_sent = run("never sent", 1).await;
    let (had, never_sent) = tokio::join!(cluster.api.settled(&had), cluster.api.settled(&never_sent));
    assert_eq!((had.state.as_str(), had.reason.as_str()), ("failed", "timeout"), "{had:?}");
    assert_eq!((never_sent.state.as_str(), never_sent.reason.as_str()), ("expired", "not_after"), "{never_sent:?}");
    for (command, limit) in [(&had, NOT_AFTER + TIMEOUT), (&never_sent, NOT_AFTER)] {
        let took = command.settled_at.expect("it is over") - command.created_at;
        // A sweep begins on time and then takes its moment.
        assert!(took >= limit && took <= limit + SWEEP + Duration::from_secs(2), "{took}: {command:?}");
    }
    assert_eq!(cluster.nodes[0].count(1), 0);
}
