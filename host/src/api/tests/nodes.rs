//! `nodes.*`.

use serde_json::{Value, json};

use super::{Api, with};
use crate::bus::Signal;
use crate::store::join_tokens;
use crate::store::node_certificates::{self, NewCertificate};
use crate::testing::{at, greeting};

fn names(page: &Value) -> Vec<String> {
    page["items"].as_array().expect("items").iter().map(|it| it["name"].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn nodes_are_shown_labelled_and_found_by_their_labels() {
    let api = Api::new().await;
    let (node, other) = (api.fleet.node().await, api.fleet.node().await);
    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    let shown = api.call("nodes.get", reference.clone()).await.ok();
    assert_eq!(
        shown,
        json!({ "id": node.to_string(), "tenantId": api.tenant(), "name": node.to_string(), "labels": {}, "role": "host",
                "incarnation": 1, "connected": false, "sessionEpoch": 0, "createdAt": "2027-01-15T08:00:00Z" })
    );
    let label = |labels| with(reference.clone(), json!({ "labels": labels }));
    api.call("nodes.label", label(json!({ "rack": "7", "gpu": "h100" }))).await.ok();
    let labelled = api.call("nodes.label", label(json!({ "rack": null, "site": "b" }))).await.ok();
    assert_eq!(labelled["labels"], json!({ "gpu": "h100", "site": "b" }));
    api.fleet.hello(&greeting(&node), at(5)).await;
    assert_eq!(api.call("nodes.get", reference).await.ok()["lastHelloAt"], "2027-01-15T08:00:05Z");
    let list = |labels| json!({ "tenantId": api.tenant(), "labels": labels });
    assert_eq!(names(&api.call("nodes.list", list(json!({ "site": "b" }))).await.ok()), [node.to_string()]);
    assert_eq!(names(&api.call("nodes.list", list(json!({ "site": "c" }))).await.ok()), [] as [String; 0]);
    let mut both = [node.to_string(), other.to_string()];
    both.sort();
    assert_eq!(names(&api.call("nodes.list", list(json!({}))).await.ok()), both);
}

#[tokio::test]
async fn pages_of_nodes_hold_each_that_may_be_read_once() {
    let api = Api::new().await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(api.fleet.node().await.to_string());
    }
    ids.sort();
    let few: Vec<_> = ids.iter().step_by(2).map(|id| format!("compute-node/{id}")).collect();
    let grants: Vec<_> = few.iter().map(|id| ("compute:nodes:read", id.as_str())).collect();
    let token = api.token_with("few", &grants).await;
    for (token, expected) in [(&api.token, ids.clone()), (&token, ids.iter().step_by(2).cloned().collect())] {
        let mut seen = Vec::new();
        let mut cursor = json!(null);
        loop {
            let ask = with(json!({ "tenantId": api.tenant(), "limit": 2 }), json!({ "cursor": cursor }));
            let page = api.call_as(token, "nodes.list", ask).await.ok();
            seen.extend(names(&page));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(seen, expected);
    }
}

#[tokio::test]
async fn a_deleted_node_is_gone_its_pending_commands_are_cancelled_and_its_history_stays() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    api.kind("diag.nvml").await;
    let run = api.call("commands.run", api.ask(&node, "diag.nvml", "k")).await.ok();
    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    let mut signals = api.app.bus.subscribe();
    assert_eq!(api.call("nodes.delete", reference.clone()).await.ok()["id"], node.to_string());
    assert_eq!(signals.try_recv().expect("a signal"), Signal::Cancel { node });
    for method in ["nodes.get", "nodes.delete"] {
        assert_eq!(api.call(method, reference.clone()).await.code(), "NOT_FOUND");
    }
    assert_eq!(api.call("commands.run", api.ask(&node, "diag.nvml", "k2")).await.code(), "NOT_FOUND");
    let list = api.call("commands.list", reference.clone()).await.ok();
    assert_eq!((&list["items"][0]["id"], &list["items"][0]["reason"]), (&run["id"], &json!("node-deleted")));
}

#[tokio::test]
async fn a_join_token_names_the_gateway_and_is_stored_as_its_hash() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    let ask = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "expiresInSeconds": 60,
                      "allowedKinds": ["diag.nvml"] });
    let made = api.call("nodes.createJoinToken", ask.clone()).await.ok();
    assert_eq!(
        (&made["gatewayUrl"], &made["expiresAt"]),
        (&json!("https://gateway.invalid:7000"), &json!("2027-01-15T08:02:40Z"))
    );
    let (secret, authority) = join_tokens::parse(made["token"].as_str().expect("a token")).expect("it parses");
    assert_eq!(authority, [0xab; 32]);
    let mut tx = api.fleet.pool.begin().await.expect("a transaction");
    let stored = join_tokens::lock(&mut tx, join_tokens::hash(secret)).await.expect("a database").expect("it is there");
    assert_eq!(stored.node, Some(node));
    assert_eq!(stored.allowed_kinds, Some(vec!["diag.nvml".to_owned()]));
    assert_eq!((stored.expires_at, stored.used_at), (at(160), None));
    let unknown = crate::testing::uuid();
    let unknown = bc_proto::id::NodeId::from_uuid(unknown).to_string();
    assert_eq!(api.call("nodes.createJoinToken", with(ask, json!({ "nodeId": unknown }))).await.code(), "NOT_FOUND");
}

#[tokio::test]
async fn certificates_are_listed_and_revoked_one_by_one_or_all_at_once() {
    let api = Api::new().await;
    let (node, other) = (api.fleet.node().await, api.fleet.node().await);
    let certificate = |n: u8, node| NewCertificate {
        fingerprint: [n; 32],
        node,
        incarnation: 1,
        der: b"x",
        key: bc_proto::sign::SecretKey::from_seed([n; 32]).public(),
        allowed_kinds: None,
        not_after: at(1000),
    };
    for (n, node) in [(1, node), (2, node), (3, node), (4, other)] {
        let created = node_certificates::create(&mut *api.fleet.db().await, certificate(n, node), at(n.into())).await;
        created.expect("a database");
    }
    api.fleet.hello(&greeting(&node), at(5)).await;
    let mut signals = api.app.bus.subscribe();
    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    let revoked = |page: &Value| -> Vec<bool> {
        page["items"].as_array().expect("items").iter().map(|it| it.get("revokedAt").is_some()).collect()
    };
    let listed = api.call("nodes.certificates", reference.clone()).await.ok();
    assert_eq!(revoked(&listed), [false; 3]);
    assert_eq!(listed["items"][0]["fingerprint"], "03".repeat(32), "the newest first");
    let connected = async || api.call("nodes.get", reference.clone()).await.ok()["sessionEpoch"].clone();
    assert_eq!(connected().await, 1);

    let one = |n: u8| with(reference.clone(), json!({ "fingerprint": hex::encode([n; 32]) }));
    assert_eq!(revoked(&api.call("nodes.revokeCertificate", one(2)).await.ok()), [false, true, false]);
    assert_eq!(connected().await, 2, "what is said on the session of before has no effect");
    assert_eq!(signals.try_recv(), Ok(Signal::Cancel { node }));
    api.call("nodes.revokeCertificate", one(2)).await.ok();
    assert_eq!(connected().await, 2, "once more changes nothing");
    let strange = api.call("nodes.revokeCertificate", one(4)).await;
    assert_eq!(strange.words(), format!("404 NOT_FOUND there is no certificate {}", "04".repeat(32)), "another node's");
    assert_eq!(revoked(&api.call("nodes.revokeCertificate", reference.clone()).await.ok()), [true; 3]);
    let other = json!({ "tenantId": api.tenant(), "nodeId": other.to_string() });
    assert_eq!(revoked(&api.call("nodes.certificates", other).await.ok()), [false]);
}
