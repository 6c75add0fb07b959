//! Bad requests: each field's rule, for each method, and what is no request at all.

use axum::body::Body;
use axum::http::{Method, Request, header};
use serde_json::{Value, json};

use super::{Api, post, with};

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of every method's fields")]
async fn every_field_has_a_rule_and_an_error_that_names_it() {
    let api = Api::new().await;
    let node = api.fleet.node().await.to_string();
    let tenant = api.tenant();
    let command = crate::testing::command(&api.fleet.node().await, [0; 32]).id.to_string();
    let on_node = json!({ "tenantId": tenant, "nodeId": node });
    let on_command = with(on_node.clone(), json!({ "commandId": command }));
    let run = with(on_node.clone(), json!({ "kind": "diag.nvml", "idempotencyKey": "k" }));
    let token = json!({ "tenantId": tenant, "identity": "i", "label": "l" });
    let long = "x".repeat(201);
    let bad_ids = |fields: &[&str]| -> Vec<Value> {
        let mut changes = Vec::new();
        for field in fields {
            changes.extend([json!({ *field: null }), json!({ *field: "node_x" }), json!({ *field: 7 })]);
        }
        changes.push(json!({ "more": 1 }));
        changes
    };
    let mut cases: Vec<(&str, &Value, Vec<Value>)> = vec![
        ("commands.run", &run, bad_ids(&["tenantId", "nodeId"])),
        ("commands.get", &on_command, bad_ids(&["tenantId", "nodeId", "commandId"])),
        ("commands.cancel", &on_command, bad_ids(&["commandId"])),
        ("commands.list", &on_node, bad_ids(&["nodeId"]).split_off(1)),
        ("nodes.get", &on_node, bad_ids(&["nodeId"])),
        ("nodes.delete", &on_node, bad_ids(&["nodeId"])),
        ("nodes.label", &on_node, bad_ids(&["nodeId"])),
        ("tokens.list", &on_node, vec![json!({}), json!({ "nodeId": null, "tenantId": null })]),
    ];
    let changes = vec![
        json!({ "kind": null }),
        json!({ "kind": "" }),
        json!({ "kind": "a\u{0}" }),
        json!({ "kind": long }),
        json!({ "idempotencyKey": null }),
        json!({ "idempotencyKey": "" }),
        json!({ "idempotencyKey": long }),
        json!({ "idempotencyKey": "a\nb" }),
        json!({ "notAfterSeconds": 9 }),
        json!({ "notAfterSeconds": 3601 }),
        json!({ "notAfterSeconds": -1 }),
        json!({ "notAfterSeconds": "600" }),
        json!({ "notAfterSeconds": 60.5 }),
        json!({ "batchId": "batch_x" }),
        json!({ "nodeId": "x", "kind": "", "notAfterSeconds": 1 }),
    ];
    cases.push(("commands.run", &run, changes));
    let changes = vec![
        json!({ "state": "done" }),
        json!({ "limit": 0 }),
        json!({ "limit": 201 }),
        json!({ "cursor": "x" }),
        json!({ "cursor": "" }),
    ];
    cases.push(("commands.list", &on_node, changes));
    let changes = vec![json!({ "batchId": "x" }), json!({ "kind": "" }), json!({ "gateway": "berlin-1" })];
    cases.push(("commands.list", &on_node, changes));
    let tenant_only = json!({ "tenantId": tenant });
    let changes = vec![
        json!({ "gateway": "" }),
        json!({ "gateway": "berlin-1" }),
        json!({ "cursor": "Nw" }),
        json!({ "kind": long }),
    ];
    cases.push(("commands.list", &tenant_only, changes));
    let changes = vec![json!({ "gateway": "" }), json!({ "limit": 201 }), json!({ "cursor": "x" })];
    cases.push(("runners.history", &tenant_only, changes));
    let changes = vec![
        json!({ "limit": 0 }),
        json!({ "cursor": "x" }),
        json!({ "labels": { "": "x" } }),
        json!({ "labels": { "a": long } }),
        json!({ "labels": { "a": null } }),
        json!({ "labels": [] }),
    ];
    cases.push(("nodes.list", &tenant_only, changes));
    let changes = vec![
        json!({ "labels": {} }),
        json!({ "labels": { "a": 1 } }),
        json!({ "labels": { long.as_str(): "x" } }),
        json!({ "labels": { "a": "b\u{0}" } }),
    ];
    cases.push(("nodes.label", &on_node, changes));
    let changes = vec![
        json!({ "nodeId": "x" }),
        json!({ "expiresInSeconds": 59 }),
        json!({ "expiresInSeconds": 86_401 }),
        json!({ "allowedKinds": [] }),
        json!({ "allowedKinds": ["diag.nvml", ""] }),
        json!({ "allowedKinds": "diag.nvml" }),
    ];
    cases.push(("nodes.createJoinToken", &tenant_only, changes));
    let changes = vec![
        json!({ "nodeId": "x" }),
        json!({ "fingerprint": "x" }),
        json!({ "fingerprint": "ab".repeat(31) }),
        json!({ "fingerprint": 7 }),
        json!({ "fingerprints": [] }),
    ];
    cases.push(("nodes.revokeCertificate", &on_node, changes));
    cases.push(("nodes.certificates", &on_node, vec![json!({ "nodeId": "x" }), json!({ "fingerprint": "x" })]));
    let changes = vec![
        json!({ "identity": "" }),
        json!({ "identity": "a\u{0}" }),
        json!({ "label": null }),
        json!({ "label": "" }),
        json!({ "expiresInSeconds": 59 }),
        json!({ "expiresInSeconds": u64::MAX }),
        json!({ "grants": [{ "permission": "compute:nodes:fly", "resource": "*" }] }),
        json!({ "grants": [{ "permission": "compute:*", "resource": "node/*" }] }),
        json!({ "grants": [{ "permission": "compute:*" }] }),
        json!({ "grants": [{ "permission": "compute:*", "resource": "*", "more": 1 }] }),
        json!({ "grants": vec![json!({ "permission": "compute:*", "resource": "*" }); 101] }),
    ];
    cases.push(("tokens.create", &token, changes));
    let revoke = json!({ "tenantId": tenant, "id": "0123456789abcdef" });
    cases.push(("tokens.revoke", &revoke, vec![json!({ "id": "x" }), json!({ "id": null })]));
    let empty = json!({});
    cases.push(("tokens.whoami", &empty, vec![json!({ "more": 1 })]));
    cases.push(("kinds.list", &empty, vec![json!({ "all": 1 }), json!({ "more": 1 })]));

    let mut seen = String::new();
    for (method, base, changes) in cases {
        for change in changes {
            let answer = api.call(method, with(base.clone(), change.clone())).await;
            assert!(answer.status.is_client_error(), "{method} {change}: {}", answer.body);
            let change = change.to_string();
            let change = if change.len() > 120 { &change[..120] } else { &change };
            seen += &format!("{method} {change}\n    {}\n", answer.words().replace(&node, "node_…"));
        }
    }
    insta::assert_snapshot!(seen);
}

#[tokio::test]
async fn what_is_no_request_is_refused_in_the_same_shape() {
    let api = Api::new().await;
    let path = "/v1/commands.get";
    let json = "application/json";
    let mut seen = String::new();
    for (content_type, body) in [
        (json, "{"),
        (json, "{} {}"),
        (json, "nonsense"),
        (json, "[]"),
        (json, "\"text\""),
        (json, "{\"tenantId\":\"a\",\"tenantId\":\"b\"}"),
        (json, "\u{feff}{}"),
        ("text/plain", "{}"),
        ("", "{}"),
        ("application/json; charset=utf-8", "{}"),
        ("text/plain", ""),
    ] {
        let answer = api.send(post(path, &api.token, content_type, body)).await;
        seen += &format!("{content_type} {body}\n    {}\n", answer.words());
    }
    let deep = "[".repeat(200_000);
    seen += &format!("deep\n    {}\n", api.send(post(path, &api.token, json, format!("{{\"x\":{deep}"))).await.words());
    for (method, path) in [
        (Method::GET, "/v1/commands.get"),
        (Method::DELETE, "/v1/events.watch"),
        (Method::POST, "/v1/commands.nothing"),
        (Method::GET, "/"),
        (Method::POST, "/healthz"),
    ] {
        let request = Request::builder().method(&method).uri(path).header(header::AUTHORIZATION, "Bearer x");
        let answer = api.send(request.body(Body::empty()).expect("a request")).await;
        seen += &format!("{method} {path}\n    {}\n", answer.words());
    }
    insta::assert_snapshot!(seen);
}

#[tokio::test]
async fn a_replica_over_an_older_schema_is_not_ready_and_says_what_to_do() {
    let api = Api::new().await;
    let forget = "delete from _sqlx_migrations where version = (select max(version) from _sqlx_migrations)";
    sqlx::query(forget).execute(&api.fleet.pool).await.expect("a migration is forgotten");
    let ready = Request::get("/readyz").body(Body::empty()).expect("a request");
    let words = api.send(ready).await.words();
    assert!(words.starts_with("503 UNAVAILABLE the database's schema is older than this program"), "{words}");
    assert!(words.contains("Restart this replica"), "{words}");
}

#[tokio::test]
async fn a_database_that_is_away_is_unavailable_and_nothing_leaks() {
    let api = Api::new().await;
    let health = |path| Request::get(path).body(Body::empty()).expect("a request");
    assert_eq!(api.send(health("/readyz")).await.code(), "ok");
    api.fleet.pool.close().await;
    let expected = "503 UNAVAILABLE the database cannot be reached; try again";
    assert_eq!(api.call("tokens.whoami", json!({})).await.words(), expected);
    assert_eq!(api.send(health("/readyz")).await.words(), expected);
    assert_eq!(api.send(health("/healthz")).await.code(), "ok");
}
