//! Attested results, and certificates over their life, with real daemons.

use bc_proto::manifest::Trait;
use bc_tests::cluster::Cluster;
use bc_tests::cluster::node::Node;
use serde_json::Value;

use crate::admin;

fn fingerprints(listed: &Value) -> Vec<&str> {
    let items = listed.as_array().expect("a list");
    items.iter().map(|it| it["fingerprint"].as_str().expect("a fingerprint")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attested_kind_settles_with_the_node_s_signature_and_others_without() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    cluster
        .register(|manifest| {
            manifest.name = "test.count-attested".into();
            manifest.traits = [Trait::Attested].into();
        })
        .await;
    let (operator, node) = (admin(&cluster), cluster.nodes[0].id.clone());
    let listed = operator.json(&["node", "certificates", "node-0"]).await;
    for (kind, key, payload) in [
        ("test.count-attested", "good", Node::counted(0, 0)),
        // A failure is as signed as a success.
        ("test.count-attested", "bad", serde_json::json!({ "gpu": "GPU-none", "holdMs": 0 })),
        ("test.count", "plain", Node::counted(1, 0)),
    ] {
        let queued = cluster.api.run(&node, kind, key, payload).await;
        let settled = cluster.api.settled(&queued).await;
        assert_eq!(settled.attested, kind == "test.count-attested", "{settled:?}");
        let by: Vec<_> = settled.attested_by.iter().map(String::as_str).collect();
        assert_eq!(by, if settled.attested { fingerprints(&listed) } else { Vec::new() });
    }
    // A restart tells nothing new, and the control plane's own decision is nobody's word.
    let held = cluster.api.run_for(&node, "test.count-attested", "held", Node::counted(2, 60_000), 600).await;
    cluster.nodes[0].has_counted(2, 1).await;
    cluster.nodes[0].reboot();
    std::fs::remove_dir_all(cluster.nodes[0].path("state/kinds")).expect("fetched kinds");
    for file in cluster.nodes[0].journal() {
        std::fs::remove_file(file).expect("it was there");
    }
    cluster.nodes[0].start();
    let lost = cluster.api.settled(&held).await;
    assert_eq!((lost.state.as_str(), lost.reason.as_str(), lost.attested), ("failed", "journal-lost", false));
    assert_eq!(lost.reported_at, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_by_itself_and_a_revoked_one_ends_the_session() {
    let mut cluster = Cluster::start(1, 0).await;
    cluster.replicas[0].set("BETTER_COMPUTE_NODE_CERTIFICATE_VALIDITY", "30s");
    cluster.replicas[0].restart().await;
    let node = cluster.add_node().await;
    node.process().has_said("a session is open").await;
    // Of its 60 s, half of which lie before the join, a third is left after 10 s.
    node.process().has_said("certificate is renewed").await;
    cluster.replicas[0].set("BETTER_COMPUTE_NODE_CERTIFICATE_VALIDITY", "1h");
    cluster.replicas[0].restart().await;
    let operator = admin(&cluster);
    let listed = operator.json(&["node", "certificates", "node-0"]).await;
    assert!(fingerprints(&listed).len() >= 2, "{listed}");

    // The next session, of this process and of the next one, uses the new one.
    cluster.nodes[0].start();
    cluster.nodes[0].process().has_said("a session is open").await;
    let id = cluster.nodes[0].id.clone();
    let said = operator.run(&["node", "revoke", "node-0"]).await;
    assert!(said.code == Some(0) && said.err.contains("bcd join --again"), "{said:?}");
    cluster.nodes[0].process().has_said("run `bcd join --again`").await;
    assert!(!cluster.api.node(&id).await.connected);

    let token = cluster.api.join_token(Some(&id)).await;
    let gateways = [cluster.replicas[0].gateway_url()];
    cluster.nodes[0].enrol(&gateways, &token, true);
    assert_eq!(cluster.nodes[0].id, id);
    cluster.nodes[0].start();
    cluster.nodes[0].process().has_said("a session is open").await;
    assert_eq!(cluster.api.node(&id).await.incarnation, 2);
}
