//! A gateway alone: what it relays, and what it must not hold.

use bc_tests::cluster::node::Node;
use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::{COUNT, COUNT_DESTRUCTIVE, Cluster};
use bc_tests::programs;

use crate::signing::{make_root, pki, succeeds, trusted};

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_alone_relays_what_others_signed_and_does_not_start_with_what_signs() {
    let mut file = String::new();
    let mut cluster = Cluster::start_with(1, 0, |folder| {
        file = make_root(&folder.join("root"), &["init"]).0;
        pki(&file, &[])
    })
    .await;
    let mut gateway = cluster.start_gateway().await;
    cluster.add_node_at(&[gateway.gateway_url()]).await;
    assert_eq!(trusted(&cluster.nodes[0]).bundle.version, 1, "told by a gateway that signed nothing of it");
    succeeds(&cluster, "one", COUNT.name).await;
    succeeds(&cluster, "two", COUNT_DESTRUCTIVE.name).await;
    let nobody = Operator::new(&gateway.api_url(), cluster.api.token());
    nobody.refused(&["node", "list"], "no answer").await;

    // It loses nothing by being started anew.
    gateway.kill();
    let queued = cluster.api.run(&cluster.nodes[0].id, COUNT.name, "three", Node::counted(1, 0)).await;
    gateway.restart().await;
    cluster.nodes[0].start();
    assert_eq!(cluster.api.settled(&queued).await.state, "succeeded");
    assert_eq!(cluster.nodes[0].count(1), 1);

    let mut command = programs::command("better-compute");
    command.args(["server", "--no-api", "--database-url", &cluster.database.url(), "--command-signing", &file]);
    let said = programs::run(command.arg("--state-dir").arg(cluster.folder().join("control-plane")));
    assert!(said.code == Some(1) && said.err.contains("must not hold what signs"), "{said:?}");
}
