//! Who may call what.

use serde_json::json;

use super::{Api, component, post, with};

#[tokio::test]
async fn the_matrix_of_grants_and_methods() {
    let api = Api::new().await;
    let (node, other) = (api.fleet.node().await, api.fleet.node().await);
    api.kind("diag.nvml").await;
    let run = api.call("commands.run", api.ask(&node, "diag.nvml", "k")).await.ok();
    let on_node = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    let on_other = json!({ "tenantId": api.tenant(), "nodeId": other.to_string() });
    let command = with(on_node.clone(), json!({ "commandId": run["id"] }));
    let tenant = json!({ "tenantId": api.tenant() });
    let kind = json!({ "name": "diag.nvml" });
    let methods = [
        ("commands.run", api.ask(&node, "diag.nvml", "k2")),
        ("commands.get", command.clone()),
        ("commands.list", on_node.clone()),
        ("commands.cancel", command),
        ("commands.list", tenant.clone()),
        ("runners.history", tenant.clone()),
        ("nodes.get", on_node.clone()),
        ("nodes.get", on_other.clone()),
        ("nodes.label", with(on_node.clone(), json!({ "labels": { "a": "b" } }))),
        ("nodes.list", tenant.clone()),
        ("nodes.createJoinToken", tenant.clone()),
        ("nodes.createJoinToken", on_node.clone()),
        ("nodes.certificates", on_node.clone()),
        ("nodes.revokeCertificate", on_node),
        ("kinds.get", kind.clone()),
        ("kinds.list", json!({})),
        ("kinds.retire", kind),
        ("tokens.list", tenant.clone()),
        ("nodes.delete", on_other),
    ];
    let here = format!("tenant/{}", api.tenant());
    let one = format!("compute-node/{node}");
    let callers: [(&str, &[(&str, &str)]); 8] = [
        ("nothing", &[]),
        ("reads one node", &[("compute:nodes:read", one.as_str())]),
        ("runs on one node", &[("compute:nodes:exec", one.as_str())]),
        ("writes nodes", &[("compute:nodes:write", "compute-node/*"), ("compute:nodes:join", here.as_str())]),
        ("joins nodes", &[("compute:nodes:join", here.as_str())]),
        ("reads kinds", &[("compute:kinds:read", "kind/*")]),
        ("writes other kinds", &[("compute:kinds:write", "kind/acme.*")]),
        ("everything", &[("compute:*", "*")]),
    ];
    let mut table = String::new();
    for (name, grants) in callers {
        let token = api.token_with(name, grants).await;
        table += &format!("{name}\n");
        for (method, ask) in &methods {
            let answer = api.call_as(&token, method, ask.clone()).await;
            let count = answer.body["items"].as_array().map_or(String::new(), |items| {
                if *method == "tokens.list" { String::new() } else { format!(" ({})", items.len()) }
            });
            let about = if ask["nodeId"] == json!(other.to_string()) { " of another node" } else { "" };
            table += &format!("    {method}{about}: {}{count}\n", answer.code());
        }
        let component = component::kind(&component::manifest("diag.nvml", "1.0.0", ""));
        let answer = api.send(post("/v1/kinds.register", &token, "application/wasm", component)).await;
        table += &format!("    kinds.register: {}\n", answer.code());
        let events = axum::http::Request::get(format!("/v1/events.watch?tenantId={}x", api.tenant()))
            .header("authorization", format!("Bearer {token}"));
        let answer = api.send(events.body(axum::body::Body::empty()).expect("a request")).await;
        assert_eq!(answer.code(), "INVALID_INPUT", "a stream that would begin never ends");
    }
    insta::assert_snapshot!(table);
}
