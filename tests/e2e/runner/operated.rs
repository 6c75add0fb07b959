//! What an operator sees and does about gateways whose runners lease.

use bc_tests::cluster::operator::Operator;
use serde_json::json;

use super::gateway::{Gateway, LOGIN, SLUG, pid};

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_set_up_and_given_back_without_sql() {
    let gateway = Gateway::start().await;
    let operator = operator(&gateway);
    let node = gateway.node.as_str();
    let shown = operator.json(&["runner", "show", node]).await;
    assert_eq!((&shown["slug"], &shown["logins"]), (&json!(SLUG), &json!([LOGIN])));

    assert_eq!(operator.json(&["runner", "disallow", node, LOGIN]).await["logins"], json!([]));
    operator.refused(&["runner", "allow", node, "nobody-here"], "grant better_compute_runner to \"nobody-here\"").await;
    assert_eq!(operator.json(&["runner", "set", node, "--none"]).await["slug"], json!(null));
    operator.refused(&["runner", "set", node, "--slug=-x"], "slug: must have 1 to 63").await;
    operator.refused(&["runner", "set", node, "--slug", "Berlin"], "slug: must have 1 to 63").await;
    assert_eq!(operator.json(&["runner", "set", node, "--slug", SLUG]).await["slug"], json!(SLUG));
    assert_eq!(operator.json(&["runner", "allow", node, LOGIN]).await["logins"], json!([LOGIN]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_listed_explained_followed_and_called_off_like_any_other() {
    let mut gateway = Gateway::start().await;
    let operator = operator(&gateway);
    let node = gateway.node.clone();
    let hangs = gateway.queue("hang", json!({ "file": gateway.word("hang.pid") })).await;
    let explain = ["commands", "explain", &hangs.id, "--node", &node];
    let said = operator.say(&explain).await;
    assert!(said.contains("no runner has leased it yet: is `bcd runner --gateway berlin-1` up?"), "{said}");

    let _runner = gateway.runner("one", &[]);
    gateway.output(&hangs, |text| text.contains("hangs")).await;
    let listed = operator.json(&["commands", "list", "--gateway", SLUG]).await;
    assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&json!(hangs.id), &json!("running")));
    operator.refused(&["commands", "list", "--gateway", "munich-9"], "there is no gateway munich-9").await;
    let said = operator.say(&explain).await;
    assert!(said.contains("bcd-runner one started it") && said.contains("the lease runs out"), "{said}");
    let shown = operator.json(&["runner", "show", &node]).await;
    assert_eq!(shown["leases"][0]["commandId"], json!(hangs.id));
    operator.refused(&["runner", "set", &node, "--none"], "runners have commands of it").await;
    let tailed = operator.run(&["commands", "tail", &hangs.id, "--node", &node]).await;
    assert_eq!(tailed.out, "hangs\n", "{tailed:?}");

    assert!(pid(&gateway.path("hang.pid")).is_some());
    operator.say(&["commands", "cancel", &hangs.id, "--node", &node]).await;
    let over = gateway.over(&hangs).await;
    assert_eq!(over.settled.state, "cancelled");
    let history = operator.json(&["runner", "history", "--gateway", SLUG]).await;
    assert_eq!((&history[0]["status"], &history[0]["stdout"]), (&json!("failed"), &json!("hangs\n")));
}

fn operator(gateway: &Gateway) -> Operator {
    Operator::new(&gateway.cluster.replicas[0].api_url(), gateway.cluster.api.token())
}
