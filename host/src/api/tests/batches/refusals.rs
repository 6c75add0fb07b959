//! What is refused, each with its own error.

use serde_json::{Value, json};

use super::*;
use crate::store::unix_ms;

#[tokio::test]
async fn each_rule_of_a_request_has_an_error_that_names_it() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let batch = api.batch(&[node], "b").await;
    let name = node.to_string();
    let other = bc_proto::id::NodeId::from_uuid(crate::testing::uuid()).to_string();
    let scope = |leaves: Value| json!({ "scope": leaves });
    let good = json!({ "subject": name, "kind": WIPE });
    let create = api.propose(&[node], "k");
    let reject = with(api.on_batch(&batch), json!({ "reason": "x" }));
    let list = json!({ "tenantId": api.tenant() });
    let long = "x".repeat(1_001);
    let cases: Vec<(&str, &Value, Value)> = vec![
        (
            "commandBatches.create",
            &create,
            json!({ "tenantId": "x", "reason": "", "idempotencyKey": "", "expiresInSeconds": 59 }),
        ),
        ("commandBatches.create", &create, json!({ "reason": long })),
        ("commandBatches.create", &create, json!({ "reason": "two\nlines" })),
        ("commandBatches.create", &create, json!({ "expiresInSeconds": 604_801 })),
        ("commandBatches.create", &create, json!({ "more": 1 })),
        ("commandBatches.create", &create, json!({ "scope": null })),
        ("commandBatches.create", &create, scope(json!([]))),
        ("commandBatches.create", &create, scope(json!([good, { "subject": "gpu-17", "kind": WIPE }]))),
        ("commandBatches.create", &create, scope(json!([good, { "subject": name, "kind": "" }]))),
        ("commandBatches.create", &create, scope(json!([good, { "subject": other, "kind": "not.there" }]))),
        ("commandBatches.create", &create, scope(json!([good, good]))),
        ("commandBatches.create", &create, scope(json!([{ "subject": name, "kind": WIPE, "payloadSha256": "ab" }]))),
        (
            "commandBatches.create",
            &create,
            scope(json!([{ "subject": name, "kind": WIPE, "payloadSha256": "AB".repeat(32) }])),
        ),
        ("commandBatches.create", &create, scope(json!([{ "subject": name, "kind": WIPE, "more": 1 }]))),
        ("commandBatches.get", &reject, json!({ "batchId": "x", "reason": null })),
        ("commandBatches.reject", &reject, json!({ "batchId": "x", "reason": "" })),
        ("commandBatches.list", &list, json!({ "state": "done", "limit": 201, "cursor": "x" })),
    ];
    let mut seen = String::new();
    for (method, base, change) in cases {
        let answer = api.call(method, with(base.clone(), change.clone())).await;
        let mut change = change.to_string();
        change.truncate(120);
        seen += &format!("{method} {change}\n    {}\n", answer.words());
    }
    let seen = seen.replace(&name, "node_here").replace(&other, "node_unknown");
    insta::assert_snapshot!(seen);
    let many: Vec<_> = (0..300).map(|n| json!({ "subject": format!("n{n}"), "kind": WIPE })).collect();
    let answer = api.call("commandBatches.create", with(create, scope(json!(many)))).await;
    let problems = answer.body["error"]["details"]["problems"].as_array().map(Vec::len);
    assert_eq!(problems, Some(100), "and no more");
}

#[tokio::test]
async fn an_approval_that_does_not_count_is_refused_with_its_own_error() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let (batch, other) = (api.batch(&[node], "b").await, api.batch(&[node], "other").await);
    let document =
        |batch: &Value| -> Document { serde_json::from_value(batch["document"].clone()).expect("a document") };
    let ms = |seconds: i64| unix_ms(at(seconds));
    let sign = |number: u8, batch: &Value, from: u64, until: u64| {
        json!(Approval::sign(&approver_key(number), &document(batch), from, until))
    };
    let good = sign(1, &batch, ms(100), ms(200));
    let cases = [
        ("a stranger's key", sign(9, &batch, ms(100), ms(200))),
        ("the requester's own", sign(4, &batch, ms(100), ms(200))),
        ("expired", sign(1, &batch, ms(50), ms(100))),
        ("from the future", sign(1, &batch, ms(100_000), ms(200_000))),
        ("another batch's", sign(1, &other, ms(100), ms(200))),
        ("a later end than was signed", with(good.clone(), json!({ "expiresAtMs": ms(300) }))),
        ("another's key under it", with(good.clone(), json!({ "approver": approver_key(2).public() }))),
        ("an end that no JSON keeps", sign(1, &batch, ms(100), u64::MAX)),
        ("a truncated signature", with(good.clone(), json!({ "signature": "ab".repeat(63) }))),
        ("no signature", with(good.clone(), json!({ "signature": "" }))),
        ("no key", with(good.clone(), json!({ "approver": "00" }))),
        ("more than an approval", with(good.clone(), json!({ "more": 1 }))),
    ];
    let mut seen = String::new();
    for (what, approval) in cases {
        let ask = with(api.on_batch(&batch), json!({ "approval": approval }));
        let answer = api.call("commandBatches.approve", ask).await;
        assert!(answer.status.is_client_error(), "{what}: {}", answer.body);
        seen += &format!("{what}\n    {}\n", answer.words());
    }
    insta::assert_snapshot!(seen);
    assert_eq!(api.get_batch(&batch).await["approvals"], json!([]), "none was kept");
    let unknown =
        with(api.on_batch(&batch), json!({ "approval": good, "batchId": format!("batch_{}", "0".repeat(26)) }));
    assert_eq!(api.call("commandBatches.approve", unknown).await.code(), "NOT_FOUND");
}

#[tokio::test]
async fn a_command_outside_the_scope_is_refused_and_nothing_is_queued() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let elsewhere = api.fleet.node().await;
    let batch = api.batch(&[node], "b").await;
    let run = with(api.ask(&node, WIPE, "k"), json!({ "batchId": batch["batchId"] }));
    for (change, code) in [
        (json!({ "kind": "test.other" }), "INVALID_INPUT"),
        (json!({ "kind": "diag.nvml" }), "INVALID_INPUT"),
        (json!({ "nodeId": elsewhere.to_string() }), "INVALID_INPUT"),
        (json!({ "batchId": "batch_x" }), "INVALID_INPUT"),
        (json!({ "batchId": format!("batch_{}", "0".repeat(26)) }), "NOT_FOUND"),
    ] {
        let answer = api.call("commands.run", with(run.clone(), change.clone())).await;
        assert_eq!(answer.code(), code, "{change}: {}", answer.body);
    }
    let queued = api.fleet.events().await.into_iter().filter(|(topic, _)| topic == "node.command.queued");
    assert_eq!(queued.count(), 0);
    api.call("commands.run", run).await.ok();
}

#[tokio::test]
async fn a_batch_is_its_tenants_own() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let batch = api.batch(&[node], "b").await;
    let (_, stranger) = super::super::bootstrap::admin(&api.fleet.pool, "another", &super::super::fixed(2, 0))
        .await
        .expect("a database");
    let theirs = api.call_as(&stranger, "tokens.whoami", json!({})).await.ok()["tenantId"].clone();
    let approval = Approval::sign(
        &approver_key(1),
        &serde_json::from_value(batch["document"].clone()).expect("a document"),
        unix_ms(at(100)),
        unix_ms(at(200)),
    );
    for tenant in [json!(api.tenant()), theirs.clone()] {
        let on_batch = with(api.on_batch(&batch), json!({ "tenantId": tenant }));
        for (method, change) in [
            ("commandBatches.get", json!({})),
            ("commandBatches.reject", json!({ "reason": "x" })),
            ("commandBatches.approve", json!({ "approval": approval })),
        ] {
            let answer = api.call_as(&stranger, method, with(on_batch.clone(), change)).await;
            assert_eq!(answer.code(), "NOT_FOUND", "{method} {tenant}");
        }
    }
    let list = api.call_as(&stranger, "commandBatches.list", json!({ "tenantId": theirs })).await.ok();
    assert_eq!(list["items"], json!([]));
    // Nor does its scope reach into another tenant.
    let ask = with(api.propose(&[node], "k"), json!({ "tenantId": theirs }));
    let answer = api.call_as(&stranger, "commandBatches.create", ask).await;
    assert_eq!(answer.words(), "400 INVALID_INPUT scope[0].subject: must be a node of the tenant");
}

#[tokio::test]
async fn each_method_needs_its_permission() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let batch = api.batch(&[node], "b").await;
    let (read, here) = ("compute:nodes:read", format!("tenant/{}", api.tenant()));
    let document = serde_json::from_value(batch["document"].clone()).expect("a document");
    let approval = Approval::sign(&approver_key(1), &document, unix_ms(at(100)), unix_ms(at(200)));
    let methods = [
        ("commandBatches.create", api.propose(&[node], "k")),
        ("commandBatches.get", api.on_batch(&batch)),
        ("commandBatches.list", json!({ "tenantId": api.tenant() })),
        ("commandBatches.approve", with(api.on_batch(&batch), json!({ "approval": approval }))),
        ("commandBatches.reject", with(api.on_batch(&batch), json!({ "reason": "x" }))),
    ];
    let mut table = String::new();
    for (name, grants) in [
        ("nothing", &[][..]),
        ("creates, sees no node", &[("compute:batches:create", here.as_str())]),
        ("creates", &[("compute:batches:create", here.as_str()), (read, "compute-node/*")]),
        ("reads", &[("compute:batches:read", here.as_str())]),
        ("approves", &[("compute:batches:approve", here.as_str())]),
    ] {
        let token = api.token_with(name, grants).await;
        table += &format!("{name}\n");
        for (method, ask) in &methods {
            table += &format!("    {method}: {}\n", api.call_as(&token, method, ask.clone()).await.code());
        }
    }
    insta::assert_snapshot!(table);
}
