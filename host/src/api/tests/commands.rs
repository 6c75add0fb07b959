//! `commands.run`, `get` and `list`.

use bc_proto::id::CommandId;
use bc_proto::manifest::Lane;
use bc_proto::rules::state::State;
use serde_json::{Value, json};
use sqlx::types::Uuid;
use tokio::task::JoinSet;

use super::cancel::in_every_state;
use super::{Answer, Api, MAX_PAYLOAD, component, with};
use crate::queue::enqueue::NewCommand;
use crate::queue::enqueue_many;
use crate::store::node_certificates::{self, NewCertificate};
use crate::store::nodes::{self, NewNode};
use crate::testing::{at, command, uuid};

fn problems(answer: &Answer) -> String {
    let listed = answer.body["error"]["details"]["problems"].as_array().expect("problems");
    listed.iter().map(|it| format!("{it}\n")).collect()
}

#[tokio::test]
async fn promise_20_get_right_after_run_finds() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    api.kind("diag.nvml").await;
    let ask = with(api.ask(&node, "diag.nvml", "k"), json!({ "payload": { "n": 3 }, "notAfterSeconds": 60 }));
    let run = api.call("commands.run", ask).await.ok();
    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "commandId": run["id"] });
    assert_eq!(api.call("commands.get", reference).await.ok(), run);
    let list = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    assert_eq!(api.call("commands.list", list).await.ok(), json!({ "items": [run.clone()] }));
    assert_eq!(run["state"], "pending");
    assert_eq!(run["seq"], 1);
    assert_eq!(run["payload"], json!({ "n": 3 }));
    assert_eq!(
        (&run["lane"], &run["retrySafe"], &run["destructive"]),
        (&json!("control"), &json!(false), &json!(false))
    );
    assert_eq!((&run["createdAt"], &run["notAfter"]), (&json!("2027-01-15T08:01:40Z"), &json!("2027-01-15T08:02:40Z")));
    assert!(run["idempotencyKey"].as_str().is_some_and(|key| key.starts_with("api:") && key.len() == 36));
    assert_eq!(run.get("result"), None);
}

#[tokio::test]
async fn the_same_key_is_the_same_command_whatever_became_of_its_kind() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    api.kind("diag.nvml").await;
    api.kind("acme.fan").await;
    let ask = api.ask(&node, "diag.nvml", "k");
    let first = api.call("commands.run", ask.clone()).await.ok();
    assert_eq!(api.call("commands.run", ask.clone()).await.ok(), first);
    for change in [json!({ "kind": "acme.fan" }), json!({ "payload": { "n": 1 } }), json!({ "kind": "not.there" })] {
        let answer = api.call("commands.run", with(ask.clone(), change)).await;
        assert_eq!(answer.code(), "CONFLICT", "{}", answer.body);
        assert_eq!(answer.body["error"]["details"]["commandId"], first["id"]);
    }
    let other_caller = api.token_with("other", &[("compute:nodes:*", "compute-node/*")]).await;
    let other = api.call_as(&other_caller, "commands.run", ask.clone()).await.ok();
    assert_ne!(other["id"], first["id"], "a key is its caller's own");
    api.call("kinds.retire", json!({ "name": "diag.nvml" })).await.ok();
    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "commandId": first["id"] });
    let cancelled = api.call("commands.cancel", reference).await.ok();
    assert_eq!(api.call("commands.run", ask.clone()).await.ok(), cancelled, "it is answered as it stands now");
    let fresh = api.call("commands.run", with(ask, json!({ "idempotencyKey": "k2" }))).await;
    assert_eq!(fresh.code(), "UNSUPPORTED");
}

#[tokio::test]
async fn eight_at_once_with_one_key_are_one_command() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    api.kind("diag.nvml").await;
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let request = super::post(
            "/v1/commands.run",
            &api.token,
            "application/json",
            api.ask(&node, "diag.nvml", "k").to_string(),
        );
        let router = api.router();
        calls.spawn(async move {
            super::read(tower::ServiceExt::oneshot(router, request).await.expect("infallible")).await
        });
    }
    let ids: Vec<Value> = calls.join_all().await.into_iter().map(|answer| answer.ok()["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(api.fleet.events().await.len(), 1);
}

#[tokio::test]
async fn only_kinds_that_are_accepted_run() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    for name in ["diag.nvml", "gpu.reset"] {
        api.kind(name).await;
    }
    api.register(component::kind(&component::manifest("acme.fan", "1.0.0", "")), "?activate=true").await.ok();
    let mut codes = Vec::new();
    for (at, kind) in ["diag.nvml", "gpu.reset", "acme.fan", "inventory.refresh", "not.there"].into_iter().enumerate() {
        let answer = api.call("commands.run", api.ask(&node, kind, &at.to_string())).await;
        codes.push(format!("{kind}: {}", answer.code()));
    }
    api.register(component::kind(&component::manifest("acme.fan", "1.0.0", "")), "?exposed=true").await.ok();
    let answer = api.call("commands.run", api.ask(&node, "acme.fan", "exposed")).await;
    codes.push(format!("acme.fan, exposed: {}", answer.code()));
    assert_eq!(
        codes,
        [
            "diag.nvml: ok",
            "gpu.reset: UNSUPPORTED",
            "acme.fan: UNSUPPORTED",
            "inventory.refresh: UNSUPPORTED",
            "not.there: UNSUPPORTED",
            "acme.fan, exposed: ok",
        ]
    );
}

#[tokio::test]
async fn the_schema_and_the_kind_itself_check_the_payload() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    let picky = component::picky(&component::manifest("diag.nvml", "1.0.0", ""));
    api.register(picky, "?activate=true").await.ok();
    let broken = component::broken(&component::manifest("logs.collect", "1.0.0", ""));
    api.register(broken, "?activate=true").await.ok();
    let mut seen = String::new();
    for payload in [json!({ "n": -1, "m": 2 }), json!([]), json!({ "n": 1 })] {
        let ask = with(api.ask(&node, "diag.nvml", "k"), json!({ "payload": payload }));
        let answer = api.call("commands.run", ask).await;
        seen += &format!("{}\n{}\n", answer.words(), problems(&answer));
    }
    let answer = api.call("commands.run", api.ask(&node, "logs.collect", "k")).await;
    seen += &answer.words();
    insta::assert_snapshot!(seen);
    assert_eq!(answer.body["error"]["details"]["reason"], "validate-failed");
    assert!(api.fleet.events().await.is_empty(), "nothing was queued");
    api.call("commands.run", api.ask(&node, "diag.nvml", "k")).await.ok();
}

#[tokio::test]
async fn a_payload_is_as_large_as_its_canonical_json() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    let manifest = "[payload]\ntype = 'object'\n";
    let text = format!(
        "name = 'diag.nvml'\nversion = '1.0.0'\nsummary = 'x'\nmodule = 'test'\nlane = 'control'\ntimeout = '1m'\n\
         roles = ['host']\nresult = {{}}\n{manifest}"
    );
    let manifest = bc_proto::manifest::Manifest::from_toml(&text).expect("it keeps the rules");
    api.register(component::kind(&manifest), "?activate=true").await.ok();
    let largest = "x".repeat(MAX_PAYLOAD - r#"{"a":""}"#.len());
    for (text, expected) in [(largest.clone(), "ok"), (format!("{largest}x"), "TOO_LARGE")] {
        let ask = with(api.ask(&node, "diag.nvml", expected), json!({ "payload": { "a": text } }));
        assert_eq!(api.call("commands.run", ask).await.code(), expected);
    }
    let ask = with(api.ask(&node, "diag.nvml", "k"), json!({ "payload": { "a": "x".repeat(1024 * 1024) } }));
    assert_eq!(api.call("commands.run", ask).await.words(), "413 TOO_LARGE the body is larger than 73728 bytes");
}

#[tokio::test]
async fn a_node_gets_what_its_role_and_its_certificate_allow() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    api.kind("diag.nvml").await;
    api.kind("logs.collect").await;
    let certificate = |n: u8, allowed: Option<&'static [String]>| NewCertificate {
        fingerprint: [n; 32],
        node,
        incarnation: 1,
        der: b"x",
        key: bc_proto::sign::SecretKey::from_seed([n; 32]).public(),
        allowed_kinds: allowed,
        not_after: at(1000),
    };
    let allowed: &'static [String] = Box::leak(vec!["logs.collect".to_owned()].into_boxed_slice());
    let mut db = api.fleet.db().await;
    node_certificates::create(&mut db, certificate(1, Some(allowed)), at(1)).await.expect("a database");
    let answer = api.call("commands.run", api.ask(&node, "diag.nvml", "k")).await;
    assert_eq!(
        answer.words(),
        format!("409 INVALID_STATE node {node} runs a restricted identity that does not accept diag.nvml")
    );
    assert_eq!(answer.body["error"]["details"]["reason"], "restricted-identity");
    api.call("commands.run", api.ask(&node, "logs.collect", "k2")).await.ok();
    node_certificates::create(&mut db, certificate(2, None), at(2)).await.expect("a database");
    api.call("commands.run", api.ask(&node, "diag.nvml", "k")).await.ok();

    let id = bc_proto::id::NodeId::from_uuid(uuid());
    let role = bc_proto::manifest::Role::Ramdisk;
    let ramdisk = NewNode { id, tenant: api.fleet.tenant, name: "ramdisk".into(), labels: [].into(), role };
    nodes::create(&mut db, ramdisk, at(0)).await.expect("a new node");
    let answer = api.call("commands.run", api.ask(&id, "diag.nvml", "k")).await;
    assert_eq!(answer.words(), format!("409 INVALID_STATE diag.nvml is for the roles host, node {id} is a ramdisk"));
}

#[tokio::test]
async fn pages_of_a_thousand_hold_each_command_once_newest_first() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    let other = api.fleet.node().await;
    let kind = api.fleet.kind(Lane::Control, &[]).await;
    let bulk = api.fleet.kind(Lane::Bulk, &[]).await;
    let mut all: Vec<NewCommand> = Vec::new();
    for n in 0..1_005 {
        all.push(command(&node, if n % 3 == 0 { bulk } else { kind }));
        all.push(command(&other, kind));
    }
    enqueue_many(&mut *api.fleet.db().await, &crate::trust::Signer::none(), &all, at(0)).await.expect("a database");
    for state in [json!(null), json!("pending")] {
        let mut seqs = Vec::new();
        let mut cursor = json!(null);
        loop {
            let ask = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "limit": 200 });
            let page = api.call("commands.list", with(ask, json!({ "cursor": cursor, "state": state }))).await.ok();
            let items = page["items"].as_array().expect("items");
            seqs.extend(items.iter().map(|item| item["seq"].as_u64().expect("a seq")));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
            assert_eq!(items.len(), 200);
        }
        assert_eq!(seqs, (1..=1_005).rev().collect::<Vec<_>>(), "state {state}");
    }
}

#[tokio::test]
async fn a_list_of_one_state_holds_what_is_in_it() {
    let api = Api::new().await;
    let (node, commands) = in_every_state(&api).await;
    for (state, id) in commands {
        let ask = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "state": state.to_string() });
        let page = api.call("commands.list", ask).await.ok();
        let ids: Vec<_> = page["items"].as_array().expect("items").iter().map(|it| it["id"].clone()).collect();
        assert_eq!(ids, [json!(id.to_string())], "{state}");
        assert_eq!(page["items"][0]["state"], state.to_string());
        assert_eq!(page["items"][0].get("settledAt").is_some(), state.is_terminal(), "{state}");
        assert_eq!(page["items"][0].get("result").is_some(), state == State::Succeeded, "{state}");
    }
}

#[tokio::test]
async fn what_a_tenant_does_not_have_is_not_found() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    api.kind("diag.nvml").await;
    let run = api.call("commands.run", api.ask(&node, "diag.nvml", "k")).await.ok();
    let (_, stranger) =
        super::bootstrap::admin(&api.fleet.pool, "another", &super::fixed(2, 0)).await.expect("a database");
    let their_tenant = api.call_as(&stranger, "tokens.whoami", json!({})).await.ok()["tenantId"].clone();
    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "commandId": run["id"] });
    let unknown = CommandId::from_uuid(Uuid::from_u128(7)).to_string();
    let elsewhere = api.fleet.node().await.to_string();
    for (token, change) in [
        (&stranger, json!({})),
        (&stranger, json!({ "tenantId": their_tenant })),
        (&api.token, json!({ "tenantId": their_tenant })),
        (&api.token, json!({ "commandId": unknown })),
        (&api.token, json!({ "nodeId": elsewhere })),
    ] {
        for method in ["commands.get", "commands.cancel"] {
            let answer = api.call_as(token, method, with(reference.clone(), change.clone())).await;
            assert_eq!(answer.code(), "NOT_FOUND", "{method} {change}");
        }
    }
    for change in [json!({}), json!({ "tenantId": their_tenant })] {
        let list = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
        assert_eq!(api.call_as(&stranger, "commands.list", with(list, change.clone())).await.code(), "NOT_FOUND");
        let ask = with(api.ask(&node, "diag.nvml", "k"), change);
        assert_eq!(api.call_as(&stranger, "commands.run", ask).await.code(), "NOT_FOUND");
    }
}
