//! `remediations.list` and `remediations.clear`.

use bc_proto::id::{CommandId, NodeId};
use bc_proto::rules::remediation::Ailment;
use serde_json::{Value, json};
use time::Duration;

use super::{Api, with};
use crate::batches::{self, Created, Proposal};
use crate::store::remediations::{self, Attempt, Standing};
use crate::testing::{at, uuid};

impl Api {
    /// Writes an attempt that ended so.
    async fn attempted(&self, node: NodeId, number: u32, standing: Standing) -> Attempt {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let proposal = Proposal {
            id: bc_proto::id::BatchId::from_uuid(uuid()),
            tenant: self.fleet.tenant,
            requested_by: "module/remediation".into(),
            idempotency_key: format!("{node} {number}"),
            reason: "x".into(),
            scope: vec![bc_proto::batch::Leaf {
                subject: node.to_string(),
                kind: "node.reboot".into(),
                payload_sha256: None,
            }],
            lasts: Duration::hours(1),
        };
        let Created::New(batch) = batches::create(&mut tx, &proposal, at(1)).await.expect("a database") else {
            panic!("it is new")
        };
        let attempt = Attempt {
            command: CommandId::from_uuid(uuid()),
            tenant: self.fleet.tenant,
            node,
            ailment: Ailment::RebootRequired,
            number,
            gpus: Vec::new(),
            batch: batch.document.batch_id,
            standing,
            reason: String::new(),
            started_at: at(i64::from(number)),
            ended_at: None,
            cleared: None,
            is_unsent: false,
        };
        remediations::insert(&mut tx, &attempt).await.expect("a database");
        remediations::end(&mut tx, &[(attempt.command, standing, "timeout".into())], at(50)).await.expect("a database");
        tx.commit().await.expect("a commit");
        attempt
    }

    async fn held(&self, node: NodeId, why: &str) {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let hold = (node, Some((Ailment::RebootRequired, why.to_owned())));
        remediations::note(&mut tx, &[hold], at(60)).await.expect("a database");
        tx.commit().await.expect("a commit");
    }
}

fn numbers(page: &Value) -> Vec<u64> {
    page["items"].as_array().expect("items").iter().map(|it| it["attempt"].as_u64().expect("a number")).collect()
}

#[tokio::test]
async fn attempts_are_listed_with_their_outcomes_and_why_nodes_are_left_alone() {
    let api = Api::new().await;
    let [node, other] = [api.fleet.node().await, api.fleet.node().await];
    let first = api.attempted(node, 1, Standing::Failed).await;
    api.attempted(node, 2, Standing::Ambiguous).await;
    api.attempted(other, 1, Standing::Succeeded).await;
    api.held(node, "ambiguous").await;
    let of = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    let page = api.call("remediations.list", of.clone()).await.ok();
    assert_eq!(numbers(&page), [2, 1]);
    let shown = &page["items"][1];
    assert_eq!(
        (&shown["outcome"], &shown["reason"], &shown["commandId"], &shown["batchId"]),
        (&json!("failed"), &json!("timeout"), &json!(first.command.to_string()), &json!(first.batch.to_string()))
    );
    let hold = json!({ "nodeId": node.to_string(), "ailment": "RebootRequired", "why": "ambiguous",
                       "since": page["holds"][0]["since"] });
    assert_eq!(page["holds"], json!([hold]));
    assert_eq!(api.call("nodes.get", of.clone()).await.ok()["remediationHold"], hold);
    let all = api.call("remediations.list", with(of.clone(), json!({ "nodeId": null, "limit": 2 }))).await.ok();
    let rest = json!({ "nodeId": null, "cursor": all["nextCursor"] });
    let rest = api.call("remediations.list", with(of.clone(), rest)).await.ok();
    assert_eq!((numbers(&all).len(), numbers(&rest).len(), &rest["holds"]), (2, 1, &Value::Null));

    assert_eq!(api.call("remediations.clear", of.clone()).await.ok(), json!({ "cleared": 1 }));
    assert_eq!(api.call("remediations.clear", of.clone()).await.ok(), json!({ "cleared": 0 }));
    let page = api.call("remediations.list", of).await.ok();
    assert_eq!(page["items"][0]["clearedBy"], "admin");
}

#[tokio::test]
async fn who_may_not_see_a_node_sees_nothing_of_it_and_clearing_takes_more_than_reading() {
    let api = Api::new().await;
    let [node, other] = [api.fleet.node().await, api.fleet.node().await];
    for node in [node, other] {
        api.attempted(node, 1, Standing::Ambiguous).await;
        api.held(node, "ambiguous").await;
    }
    let resource = format!("compute-node/{node}");
    let reader = api.token_with("reader", &[("compute:nodes:read", &resource)]).await;
    let writer = api.token_with("writer", &[("compute:nodes:write", &resource)]).await;
    let of = |node: NodeId| json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    let all = api.call_as(&reader, "remediations.list", json!({ "tenantId": api.tenant() })).await.ok();
    assert_eq!((numbers(&all).len(), all["holds"].as_array().map(Vec::len)), (1, Some(1)));
    assert_eq!(all["items"][0]["nodeId"], node.to_string());
    for (token, method, node, code) in [
        (&reader, "remediations.list", node, "ok"),
        (&reader, "remediations.list", other, "NOT_FOUND"),
        (&reader, "remediations.clear", node, "PERMISSION_DENIED"),
        (&reader, "remediations.clear", other, "NOT_FOUND"),
        (&writer, "remediations.list", node, "NOT_FOUND"),
        (&writer, "remediations.clear", other, "NOT_FOUND"),
        (&writer, "remediations.clear", node, "ok"),
    ] {
        assert_eq!(api.call_as(token, method, of(node)).await.code(), code, "{method}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named() {
    let api = Api::new().await;
    let mut table = String::new();
    let tenant = json!({ "tenantId": api.tenant() });
    for (method, change) in [
        ("remediations.list", json!({ "tenantId": "x" })),
        ("remediations.list", json!({ "nodeId": "x" })),
        ("remediations.list", json!({ "limit": 0 })),
        ("remediations.list", json!({ "cursor": "x" })),
        ("remediations.list", json!({ "state": "failed" })),
        ("remediations.clear", json!({})),
        ("remediations.clear", json!({ "nodeId": "cmd_x" })),
    ] {
        let words = api.call(method, with(tenant.clone(), change)).await.words();
        table += &format!("{method}: {}\n", words.chars().take(160).collect::<String>());
    }
    insta::assert_snapshot!(table);
}
