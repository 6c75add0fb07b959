//! `workflows.…`, `nodes.quarantine` and `nodes.release`.

use bc_proto::id::NodeId;
use serde_json::{Value, json};

use super::{Api, component, with};

const WIPE: &str = "metal.disk.wipe";

/// An API with a node, and kinds of metal.
async fn start() -> (Api, NodeId) {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    for (name, traits) in
        [(WIPE, "traits = ['destructive', 'attested']"), ("diag.nvml", ""), ("acme.saw", "traits = ['destructive']")]
    {
        let component = component::kind(&component::manifest(name, "1.0.0", traits));
        api.register(component, "?activate=true&exposed=true").await.ok();
    }
    (api, node)
}

fn ask(api: &Api, node: NodeId) -> Value {
    json!({
        "tenantId": api.tenant(), "nodeId": node.to_string(), "reason": "back from rent", "idempotencyKey": "k",
        "steps": [{ "kind": WIPE, "payload": { "n": 1 } }, { "kind": "diag.nvml" }],
    })
}

#[tokio::test]
async fn a_workflow_sets_its_node_apart_and_is_shown_with_its_steps() {
    let (api, node) = start().await;
    let made = api.call("workflows.create", ask(&api, node)).await.ok();
    assert_eq!(
        (&made["state"], &made["attempt"], &made["requestedBy"]),
        (&json!("running"), &json!(1), &json!("admin"))
    );
    let steps: Vec<_> = made["steps"].as_array().expect("steps").iter().map(|it| (&it["step"], &it["state"])).collect();
    assert_eq!(steps, [(&json!("wipe"), &json!("waiting")), (&json!("diag.nvml"), &json!("waiting"))]);
    assert_eq!(made["steps"][0]["deadlineSeconds"], 3_600);
    assert_eq!(api.call("workflows.create", ask(&api, node)).await.ok()["id"], made["id"], "the same key");
    let other = api.call("workflows.create", with(ask(&api, node), json!({ "reason": "other" }))).await;
    assert_eq!((other.code(), &other.body["error"]["details"]["workflowId"]), ("CONFLICT", &made["id"]));
    let second = api.call("workflows.create", with(ask(&api, node), json!({ "idempotencyKey": "l" }))).await;
    assert_eq!(second.body["error"]["details"]["reason"], "workflow-running");

    let of = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    let listed = api.call("nodes.list", json!({ "tenantId": api.tenant() })).await.ok();
    assert_eq!(listed["items"][0]["quarantine"]["workflowId"], made["id"]);
    let gpu = json!({ "gpu": "GPU-51d00000-0000-4000-8000-000000000000", "idempotencyKey": "r" });
    let reserved = api.call("reservations.create", with(of.clone(), gpu)).await;
    assert_eq!(reserved.body["error"]["details"]["reason"], "node-quarantined", "{}", reserved.body);
    let sawed = api.call("commands.run", api.ask(&node, "acme.saw", "s")).await;
    assert_eq!(sawed.body["error"]["details"]["reason"], "node-quarantined");
    api.call("commands.run", api.ask(&node, "diag.nvml", "d")).await.ok();
    let released = api.call("nodes.release", of.clone()).await;
    assert_eq!(released.body["error"]["details"]["reason"], "workflow-running");

    let named = json!({ "tenantId": api.tenant(), "workflowId": made["id"] });
    let early = api.call("workflows.retry", named.clone()).await;
    assert_eq!(early.body["error"]["details"]["reason"], "not-stopped");
    let cancelled = api.call("workflows.cancel", named.clone()).await.ok();
    assert_eq!((&cancelled["state"], &cancelled["cancelRequestedBy"]), (&json!("running"), &json!("admin")));
    assert_eq!(api.call("workflows.get", named).await.ok(), cancelled);
    let page = api.call("workflows.list", with(of, json!({ "state": "running" }))).await.ok();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn what_is_wrong_with_a_workflow_is_named_before_anything_is_done() {
    let (api, node) = start().await;
    let mut said = Vec::new();
    for change in [
        json!({ "steps": [] }),
        json!({ "steps": [{ "kind": "diag.nvml" }, { "kind": WIPE }] }),
        json!({ "steps": [{ "kind": WIPE }, { "kind": WIPE }] }),
        json!({ "steps": [{ "kind": WIPE, "deadlineSeconds": 1 }] }),
        json!({ "steps": [{ "kind": WIPE, "payload": { "n": -1 } }, { "kind": "diag.nvml", "payload": { "m": 1 } }] }),
        json!({ "steps": [{ "kind": "metal.image.deploy" }] }),
        json!({ "steps": [{ "kind": "acme.saw" }] }),
        json!({ "reason": "" }),
        json!({ "wipe": true }),
    ] {
        let answer = api.call("workflows.create", with(ask(&api, node), change)).await;
        said.push(answer.words().replace(&node.to_string(), "NODE"));
    }
    insta::assert_snapshot!(said.join("\n"));
    let shown = api.call("nodes.get", json!({ "tenantId": api.tenant(), "nodeId": node.to_string() })).await.ok();
    assert_eq!(shown["quarantine"], Value::Null);
}

#[tokio::test]
async fn a_registered_wipe_that_signs_nothing_is_not_trusted_with_a_workflow() {
    let (api, node) = start().await;
    let component = component::kind(&component::manifest(WIPE, "1.0.1", "traits = ['destructive']"));
    api.register(component, "?activate=true&acceptWider=true").await.ok();
    let answer = api.call("workflows.create", ask(&api, node)).await;
    assert_eq!(answer.body["error"]["details"]["reason"], "unfit-kind", "{}", answer.body);
}

#[tokio::test]
async fn a_person_sets_a_node_apart_and_lets_it_go() {
    let (api, node) = start().await;
    let of = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    let apart = api.call("nodes.quarantine", with(of.clone(), json!({ "reason": "it smells" }))).await.ok();
    assert_eq!((&apart["quarantine"]["reason"], &apart["quarantine"]["by"]), (&json!("it smells"), &json!("admin")));
    let again = api.call("nodes.quarantine", with(of.clone(), json!({ "reason": "other" }))).await.ok();
    assert_eq!(again["quarantine"]["reason"], "it smells", "the first one stays");
    let reader = api.token_with("reader", &[("compute:nodes:read", "*")]).await;
    let denied = api.call_as(&reader, "nodes.release", of.clone()).await;
    assert_eq!(denied.code(), "PERMISSION_DENIED");
    for _ in 0..2 {
        assert_eq!(api.call("nodes.release", of.clone()).await.ok()["quarantine"], Value::Null);
    }
    let exec = api.token_with("exec", &[("compute:nodes:exec", "*"), ("compute:nodes:read", "*")]).await;
    let denied = api.call_as(&exec, "workflows.create", ask(&api, node)).await;
    assert_eq!(denied.body["error"]["details"]["permission"], "compute:batches:create", "{}", denied.body);
}
