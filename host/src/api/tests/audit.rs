//! `audit.*`.

use bc_proto::audit::Entry;
use bc_proto::merkle::stored::{Frontier, leaf_hash};
use bc_proto::merkle::{Hash, verify, verify_consistency};
use bc_proto::receipt::Receipt;
use bc_proto::rules::receipt::{self, Trusted};
use serde_json::{Value, json};

use super::{Api, with};
use crate::api::bootstrap;
use crate::audit::{Grown, grow};
use crate::store::events::Cursor;
use crate::testing::at;
use crate::trust::Signer;
use crate::world::World;

/// An API with so many destructive commands queued and logged; answers the commands' ids.
async fn logged(commands: usize) -> (Api, Vec<String>) {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    let kind = api.fleet.kind(bc_proto::manifest::Lane::Control, &["destructive"]).await;
    let mut ids = Vec::new();
    for _ in 0..commands {
        ids.push(api.fleet.enqueue(&node, kind).await.id.to_string());
    }
    api.fleet.events().await;
    let grown = grow(&api.fleet.pool, &Signer::none(), Cursor::default(), at(1)).await.expect("a database");
    assert!(matches!(grown, Grown::Read { added, .. } if added == commands), "{grown:?}");
    (api, ids)
}

fn hash(value: &Value) -> Hash {
    bc_proto::audit::hash(value.as_str().expect("text")).expect("a hash")
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().expect("text")).expect("hexadecimal")
}

#[tokio::test]
async fn a_log_of_many_pages_comes_to_its_head_and_every_proof_holds() {
    let (api, ids) = logged(7).await;
    let tenant = json!({ "tenantId": api.tenant() });
    let head = api.call("audit.head", tenant.clone()).await.ok();
    assert_eq!((head["size"].as_u64(), head.get("signature")), (Some(7), None));
    let (mut frontier, mut from, mut bodies) = (Frontier::default(), Some(0), Vec::new());
    let mut roots = vec![frontier.root()];
    while let Some(at) = from {
        let ask = with(tenant.clone(), json!({ "from": at, "limit": 3 }));
        let page = api.call("audit.entries", ask).await.ok();
        for item in page["items"].as_array().expect("a list") {
            let body = item["body"].as_str().expect("it is ours").to_owned();
            assert_eq!(leaf_hash(body.as_bytes()), hash(&item["leafHash"]));
            frontier.push(hash(&item["leafHash"]));
            roots.push(frontier.root());
            bodies.push(body);
        }
        from = page["next"].as_u64();
    }
    assert_eq!((frontier.size(), frontier.root()), (7, hash(&head["root"])));

    let of = with(tenant.clone(), json!({ "commandId": ids[4], "size": 6 }));
    let proven = api.call("audit.inclusion", of).await.ok();
    assert_eq!((proven["items"][0]["index"].as_u64(), hash(&proven["root"])), (Some(4), roots[6]));
    verify(&roots[6], 6, bodies[4].as_bytes(), 4, &bytes(&proven["items"][0]["proof"])).expect("it holds");
    let entry: Entry = serde_json::from_str(&bodies[4]).expect("an entry");
    assert_eq!(entry.command().map(|it| it.to_string()).as_ref(), Some(&ids[4]));
    for from in 0_u64..=7 {
        let ask = with(tenant.clone(), json!({ "from": from }));
        let proven = api.call("audit.consistency", ask).await.ok();
        let old = roots[usize::try_from(from).expect("small")];
        assert_eq!((hash(&proven["fromRoot"]), hash(&proven["toRoot"])), (old, roots[7]));
        verify_consistency(from, &old, 7, &roots[7], &bytes(&proven["proof"])).expect("it holds");
    }
    let receipt = api.call("audit.receipt", with(tenant, json!({ "commandId": ids[2] }))).await.ok();
    let receipt = Receipt::parse(receipt.to_string().as_bytes()).expect("a receipt");
    let trusted = Trusted { roots: &[], node: None, now_ms: 0 };
    assert_eq!(receipt::verify(&receipt, trusted).expect("it holds").command.to_string(), ids[2]);
}

#[tokio::test]
async fn other_tenants_see_hashes_alone_and_whoever_may_not_read_nothing() {
    let (api, ids) = logged(2).await;
    let world = World::new(|| at(0), |bytes| bytes.fill(2));
    let (other, token) = bootstrap::admin(&api.fleet.pool, "another", &world).await.expect("a database");
    let tenant = json!({ "tenantId": other.to_string() });
    let page = api.call_as(&token, "audit.entries", tenant.clone()).await.ok();
    let items = page["items"].as_array().expect("a list");
    assert!(items.len() == 2 && items.iter().all(|it| it.get("body").is_none()), "{page}");
    let head = api.call_as(&token, "audit.head", tenant.clone()).await.ok();
    let mut frontier = Frontier::default();
    for item in items {
        frontier.push(hash(&item["leafHash"]));
    }
    assert_eq!(frontier.root(), hash(&head["root"]));
    for method in ["audit.receipt", "audit.inclusion"] {
        let answer = api.call_as(&token, method, with(tenant.clone(), json!({ "commandId": ids[0] }))).await;
        assert_eq!(answer.code(), "NOT_FOUND", "{method}");
    }
    let reader = api.token_with("reader", &[("compute:nodes:*", "*")]).await;
    let ours = json!({ "tenantId": api.tenant() });
    for (method, more) in [
        ("audit.head", json!({})),
        ("audit.entries", json!({})),
        ("audit.inclusion", json!({ "index": 0 })),
        ("audit.consistency", json!({ "from": 0 })),
        ("audit.receipt", json!({ "commandId": ids[0] })),
    ] {
        let ask = with(ours.clone(), more.clone());
        assert_eq!(api.call_as(&reader, method, ask.clone()).await.code(), "PERMISSION_DENIED", "{method}");
        let foreign = with(tenant.clone(), more);
        assert_eq!(api.call(method, foreign).await.code(), "NOT_FOUND", "{method} of another tenant");
        let auditor = api.token_with("auditor", &[("compute:audit:read", "tenant/*")]).await;
        assert_eq!(api.call_as(&auditor, method, ask).await.code(), "ok", "{method}");
    }
}

#[tokio::test]
async fn what_cannot_be_proven_is_refused_with_its_rule() {
    let (api, ids) = logged(2).await;
    let tenant = json!({ "tenantId": api.tenant() });
    let unknown = crate::testing::command(&api.fleet.node().await, [0; 32]).id.to_string();
    let mut words = String::new();
    for (method, more) in [
        ("audit.head", json!({ "tenantId": "x" })),
        ("audit.head", json!({ "size": 1 })),
        ("audit.entries", json!({ "limit": 0 })),
        ("audit.entries", json!({ "limit": 501 })),
        ("audit.entries", json!({ "from": -1 })),
        ("audit.inclusion", json!({})),
        ("audit.inclusion", json!({ "index": 0, "commandId": ids[0] })),
        ("audit.inclusion", json!({ "index": 2 })),
        ("audit.inclusion", json!({ "index": 1, "size": 1 })),
        ("audit.inclusion", json!({ "index": 0, "size": 0 })),
        ("audit.inclusion", json!({ "index": 0, "size": 3 })),
        ("audit.inclusion", json!({ "commandId": "x" })),
        ("audit.consistency", json!({})),
        ("audit.consistency", json!({ "from": 3 })),
        ("audit.consistency", json!({ "from": 2, "to": 1 })),
        ("audit.consistency", json!({ "from": 0, "to": 3 })),
        ("audit.receipt", json!({})),
    ] {
        let answer = api.call(method, with(tenant.clone(), more.clone())).await;
        words += &format!("{method} {}: {}\n", more.to_string().replace(&ids[0], "cmd_…"), answer.words());
    }
    insta::assert_snapshot!(words);
    for method in ["audit.receipt", "audit.inclusion"] {
        let answer = api.call(method, with(tenant.clone(), json!({ "commandId": unknown }))).await;
        assert_eq!(answer.code(), "NOT_FOUND", "{method}");
    }
}

#[tokio::test]
async fn an_empty_log_has_a_head_and_nothing_to_prove() {
    let (api, _) = logged(0).await;
    let tenant = json!({ "tenantId": api.tenant() });
    let head = api.call("audit.head", tenant.clone()).await.ok();
    assert_eq!((head["size"].as_u64(), hash(&head["root"])), (Some(0), Frontier::default().root()));
    assert_eq!(api.call("audit.entries", tenant.clone()).await.ok()["items"], json!([]));
    let nothing = api.call("audit.consistency", with(tenant.clone(), json!({ "from": 0 }))).await.ok();
    assert_eq!((nothing["to"].as_u64(), nothing["proof"].as_str()), (Some(0), Some("")));
    assert_eq!(api.call("audit.inclusion", with(tenant, json!({ "index": 0 }))).await.code(), "INVALID_INPUT");
}
