//! `commandBatches`, and commands that belong to batches.

mod refusals;

use bc_proto::batch::{Approval, Document};
use bc_proto::id::NodeId;
use bc_proto::manifest::Trait;
use bc_proto::rules::trust::TrustBundle;
use bc_proto::wire::Deliver;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{Answer, Api, component, with};
use crate::batches;
use crate::bus::Signal;
use crate::store::unix_ms;
use crate::testing::{approver_key, at, greeting, two_of_a_and_one_of_b};
use crate::trust::Settings;

/// A kind that destroys, exposed.
const WIPE: &str = "test.wipe";

/// An API with a node and destructive kinds.
async fn start(settings: Settings) -> (Api, NodeId) {
    let api = Api::trusting(settings).await;
    let node = api.fleet.node().await;
    for (name, traits) in
        [(WIPE, "traits = ['destructive']"), ("test.other", "traits = ['destructive']"), ("diag.nvml", "")]
    {
        let component = component::kind(&component::manifest(name, "1.0.0", traits));
        api.register(component, "?activate=true&exposed=true").await.ok();
    }
    (api, node)
}

impl Api {
    /// The least that `commandBatches.create` needs.
    fn propose(&self, nodes: &[NodeId], key: &str) -> Value {
        let scope: Vec<_> = nodes.iter().map(|node| json!({ "subject": node.to_string(), "kind": WIPE })).collect();
        json!({ "tenantId": self.tenant(), "reason": "decommission", "scope": scope, "idempotencyKey": key })
    }

    async fn batch(&self, nodes: &[NodeId], key: &str) -> Value {
        self.call("commandBatches.create", self.propose(nodes, key)).await.ok()
    }

    fn on_batch(&self, batch: &Value) -> Value {
        json!({ "tenantId": self.tenant(), "batchId": batch["batchId"] })
    }

    /// Hands in the approval of somebody, which counts for so many seconds after `at(0)`.
    async fn approve_until(&self, batch: &Value, number: u8, until: i64) -> Answer {
        let document: Document = serde_json::from_value(batch["document"].clone()).expect("a document");
        let approval = Approval::sign(&approver_key(number), &document, unix_ms(at(99)), unix_ms(at(until)));
        let ask = with(self.on_batch(batch), json!({ "approval": approval }));
        self.call("commandBatches.approve", ask).await
    }

    async fn approve(&self, batch: &Value, number: u8) -> Value {
        self.approve_until(batch, number, 10_000).await.ok()
    }

    /// Asks for the kind that destroys, in a batch.
    async fn wipe(&self, node: &NodeId, batch: &Value, key: &str) -> Answer {
        let ask = with(self.ask(node, WIPE, key), json!({ "batchId": batch["batchId"] }));
        self.call("commands.run", ask).await
    }

    async fn get_command(&self, command: &Value) -> Value {
        let reference = json!({ "tenantId": self.tenant(), "nodeId": command["nodeId"], "commandId": command["id"] });
        self.call("commands.get", reference).await.ok()
    }

    async fn get_batch(&self, batch: &Value) -> Value {
        self.call("commandBatches.get", self.on_batch(batch)).await.ok()
    }

    /// What a session of the node is sent.
    async fn delivered(&self, node: &NodeId, now: OffsetDateTime) -> Vec<Deliver> {
        let session = self.fleet.hello(&greeting(node), now).await;
        let claimed = self.fleet.claim(node, session.epoch, now).await;
        session.replay.into_iter().chain(claimed).map(|delivery| delivery.deliver).collect()
    }

    /// Ends what is over by now.
    async fn expire(&self, now: OffsetDateTime) -> usize {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let ended = batches::expire(&mut tx, now, 100).await.expect("a database");
        tx.commit().await.expect("a commit");
        ended
    }
}

/// Whether a node would take it that trusts these approvers.
fn taken(deliver: &Deliver, settings: &Settings, now: OffsetDateTime) -> Result<(), String> {
    let trust = TrustBundle { approvers: settings.approvers.clone(), ..TrustBundle::NONE };
    let destructive = [Trait::Destructive].into();
    trust.batch(deliver, &destructive, unix_ms(now), 0).map_err(|distrust| distrust.why)
}

#[tokio::test]
async fn a_key_means_one_batch_of_its_caller() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let other_node = api.fleet.node().await;
    let batch = api.batch(&[node], "k").await;
    assert!(batch["batchId"].as_str().is_some_and(|id| id.starts_with("batch_")), "{batch}");
    assert_eq!((&batch["state"], &batch["missing"], &batch["size"]), (&json!("open"), &json!(3), &json!(1)));
    assert_eq!(batch["policy"], json!([{ "group": "a", "count": 2 }, { "group": "b", "count": 1 }]));
    assert_eq!(batch["requestedBy"], "admin");
    assert_eq!(
        (&batch["createdAt"], &batch["expiresAt"]),
        (&json!("2027-01-15T08:01:40Z"), &json!("2027-01-16T08:01:40Z"))
    );
    assert_eq!(api.batch(&[node], "k").await, batch);
    assert_eq!(api.get_batch(&batch).await, batch);
    for change in [
        json!({ "reason": "another" }),
        json!({ "expiresInSeconds": 3600 }),
        json!({ "scope": api.propose(&[other_node], "k")["scope"] }),
        json!({ "scope": api.propose(&[node, other_node], "k")["scope"] }),
    ] {
        let answer = api.call("commandBatches.create", with(api.propose(&[node], "k"), change.clone())).await;
        assert_eq!(
            (answer.code(), &answer.body["error"]["details"]["batchId"]),
            ("CONFLICT", &batch["batchId"]),
            "{change}"
        );
    }
    let other = api.token_with("other", &[("compute:*", "*")]).await;
    let theirs = api.call_as(&other, "commandBatches.create", api.propose(&[node], "k")).await.ok();
    assert_ne!(theirs["batchId"], batch["batchId"], "a key is its caller's own");
    // A retry finds its batch though its node is gone.
    api.call("nodes.delete", json!({ "tenantId": api.tenant(), "nodeId": node.to_string() })).await.ok();
    assert_eq!(api.batch(&[node], "k").await, batch);
    assert_eq!(api.call("commandBatches.create", api.propose(&[node], "k2")).await.code(), "INVALID_INPUT");
}

#[tokio::test]
async fn a_destructive_command_waits_for_its_quorum_and_goes_with_the_proof_of_it() {
    let settings = two_of_a_and_one_of_b();
    let (api, node) = start(settings.clone()).await;
    let answer = api.call("commands.run", api.ask(&node, WIPE, "k")).await;
    assert_eq!(answer.code(), "INVALID_STATE");
    assert_eq!(answer.body["error"]["details"], json!({ "reason": "batch-required", "kind": WIPE }));
    api.call("commands.run", api.ask(&node, "diag.nvml", "harmless")).await.ok();

    let nodes = [api.fleet.node().await, node, api.fleet.node().await];
    let batch = api.batch(&nodes, "b").await;
    let command = api.wipe(&node, &batch, "k").await.ok();
    assert_eq!((&command["state"], &command["awaitingApproval"]), (&json!("pending"), &json!(true)), "{command}");
    assert_eq!((&command["batchId"], command.get("notBefore")), (&batch["batchId"], None));
    assert_eq!(api.wipe(&node, &batch, "k").await.ok(), command, "a retry is the same command");
    let another = api.batch(&[node], "another").await;
    assert_eq!(api.wipe(&node, &another, "k").await.code(), "CONFLICT", "its batch is part of it");
    let sent = api.delivered(&node, at(100)).await;
    assert_eq!(sent.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(), ["diag.nvml"], "it is held");

    let mut signals = api.app.bus.subscribe();
    assert_eq!(api.approve(&batch, 1).await["missing"], 2);
    assert_eq!(api.approve(&batch, 1).await["missing"], 2, "the same again changes nothing");
    assert_eq!(api.approve(&batch, 3).await["missing"], 1);
    assert_eq!(api.get_command(&command).await, command, "still held");
    let approved = api.approve(&batch, 2).await;
    assert_eq!((&approved["state"], &approved["missing"]), (&json!("approved"), &json!(0)));
    assert!(std::iter::from_fn(|| signals.try_recv().ok()).any(|signal| signal == Signal::Cancel { node }));
    let released = api.get_command(&command).await;
    assert_eq!((released.get("awaitingApproval"), &released["notBefore"]), (None, &json!("2027-01-15T08:01:40Z")));

    // Claimed, and said again after a reconnect.
    for _ in 0..2 {
        let sent = api.delivered(&node, at(100)).await;
        let wipe = sent.iter().find(|it| it.kind == WIPE).expect("it is sent");
        assert_eq!(taken(wipe, &settings, at(100)), Ok(()));
        let approved = wipe.approved.as_ref().expect("it is approved");
        assert_eq!((approved.index, approved.approvals.len(), wipe.batch), (1, 3, Some(approved.document.batch_id)));
        let stripped = Deliver { approved: None, ..wipe.clone() };
        assert!(taken(&stripped, &settings, at(100)).is_err());
        assert!(sent.iter().filter(|it| it.kind != WIPE).all(|it| it.approved.is_none() && it.batch.is_none()));
    }
    // What joins later needs no more approvals.
    let later = api.wipe(&nodes[0], &batch, "later").await.ok();
    assert_eq!((later.get("awaitingApproval"), later.get("notBefore")), (None, None));
    let sent = api.delivered(&nodes[0], at(100)).await;
    assert_eq!(taken(&sent[0], &settings, at(100)), Ok(()));
    let topics: Vec<_> =
        api.fleet.events().await.into_iter().map(|(topic, _)| topic).filter(|it| it.starts_with("batch")).collect();
    assert_eq!(topics, ["batch.created", "batch.created", "batch.approved", "batch.approved", "batch.approved"]);
}

#[tokio::test]
async fn a_leaf_with_a_payload_allows_that_payload_alone() {
    let settings = two_of_a_and_one_of_b();
    let (api, node) = start(settings.clone()).await;
    // SHA-256 of {"n":3}.
    let hash = bc_proto::canonical::sha256_hex(br#"{"n":3}"#);
    let scope = json!([
        { "subject": node.to_string(), "kind": "test.other" },
        { "subject": node.to_string(), "kind": WIPE, "payloadSha256": hash },
    ]);
    let ask = with(api.propose(&[node], "b"), json!({ "scope": scope }));
    let batch = api.call("commandBatches.create", ask).await.ok();
    for number in [1, 2, 3] {
        api.approve(&batch, number).await;
    }
    let run = async |key: &str, kind: &str, payload: Value| {
        let change = json!({ "batchId": batch["batchId"], "payload": payload });
        api.call("commands.run", with(api.ask(&node, kind, key), change)).await
    };
    assert_eq!(run("1", WIPE, json!({ "n": 4 })).await.code(), "INVALID_INPUT");
    assert_eq!(run("2", "diag.nvml", json!({})).await.code(), "INVALID_INPUT");
    run("3", WIPE, json!({ "n": 3 })).await.ok();
    run("4", "test.other", json!({ "n": 4 })).await.ok();
    let sent = api.delivered(&node, at(100)).await;
    let binds = |deliver: &Deliver| deliver.approved.as_ref().map(|it| (it.index, it.binds_payload));
    assert_eq!(sent.iter().map(binds).collect::<Vec<_>>(), [Some((1, true)), Some((0, false))]);
    for deliver in &sent {
        assert_eq!(taken(deliver, &settings, at(100)), Ok(()));
    }
}

#[tokio::test]
async fn a_rejected_batch_takes_its_waiting_commands_with_it() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let other = api.fleet.node().await;
    let batch = api.batch(&[node, other], "b").await;
    let held = api.wipe(&node, &batch, "held").await.ok();
    let why = with(api.on_batch(&batch), json!({ "reason": "wrong rack" }));
    let rejected = api.call("commandBatches.reject", why.clone()).await.ok();
    assert_eq!((&rejected["state"], &rejected["rejectedBy"]), (&json!("rejected"), &json!("admin")));
    assert_eq!((&rejected["rejection"], &rejected["closedAt"]), (&json!("wrong rack"), &json!("2027-01-15T08:01:40Z")));
    let command = api.get_command(&held).await;
    assert_eq!((&command["state"], &command["reason"]), (&json!("cancelled"), &json!("batch-rejected")));
    assert_eq!(command.get("awaitingApproval"), None);
    assert_eq!(api.call("commandBatches.reject", why).await.ok(), rejected, "again changes nothing");
    let reason = |answer: &Answer| answer.body["error"]["details"]["reason"].clone();
    let late = api.wipe(&other, &batch, "late").await;
    assert_eq!((late.code(), reason(&late)), ("INVALID_STATE", json!("batch-rejected")));
    let late = api.approve_until(&batch, 1, 10_000).await;
    assert_eq!((late.code(), reason(&late)), ("INVALID_STATE", json!("batch-rejected")));
    assert_eq!(api.wipe(&node, &batch, "held").await.ok(), command, "a retry finds its command");

    // One that was approved: what was not sent yet is called off, what a node has goes on.
    let batch = api.batch(&[node, other], "b2").await;
    for number in [1, 2, 3] {
        api.approve(&batch, number).await;
    }
    let (sent, unsent) = (api.wipe(&node, &batch, "sent").await.ok(), api.wipe(&other, &batch, "unsent").await.ok());
    assert_eq!(api.delivered(&node, at(100)).await.len(), 1);
    api.call("commandBatches.reject", with(api.on_batch(&batch), json!({ "reason": "stop" }))).await.ok();
    assert_eq!(api.get_command(&sent).await["state"], "dispatched");
    assert_eq!(api.get_command(&unsent).await["reason"], "batch-rejected");
}

#[tokio::test]
async fn a_batch_whose_time_is_over_takes_its_waiting_commands_with_it() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let short = with(api.propose(&[node], "short"), json!({ "expiresInSeconds": 60 }));
    let batch = api.call("commandBatches.create", short).await.ok();
    let long = api.batch(&[node], "long").await;
    let (held, other) = (api.wipe(&node, &batch, "a").await.ok(), api.wipe(&node, &long, "b").await.ok());
    assert_eq!(api.expire(at(159)).await, 0);
    assert_eq!(api.expire(at(160)).await, 1);
    assert_eq!(api.expire(at(160)).await, 0);
    assert_eq!(api.get_batch(&batch).await["state"], "expired");
    let command = api.get_command(&held).await;
    assert_eq!((&command["state"], &command["reason"]), (&json!("cancelled"), &json!("batch-expired")));
    assert_eq!(api.get_command(&other).await, other);
    let late = api.wipe(&node, &batch, "late").await;
    assert_eq!(late.body["error"]["details"]["reason"], "batch-expired");
    let late = api.approve_until(&batch, 1, 10_000).await;
    assert_eq!(late.body["error"]["details"]["reason"], "batch-expired");
    let late = api.call("commandBatches.reject", with(api.on_batch(&batch), json!({ "reason": "x" }))).await;
    assert_eq!(late.body["error"]["details"]["reason"], "batch-expired");
    let topics = api.fleet.events().await;
    assert_eq!(topics.iter().filter(|(topic, _)| topic == "batch.expired").count(), 1);
}

#[tokio::test]
async fn without_approvers_a_batch_is_for_the_record_and_with_broken_glass_it_is_not_required() {
    let (api, node) = start(Settings::default()).await;
    let batch = api.batch(&[node], "b").await;
    assert_eq!((batch.get("missing"), batch.get("policy")), (None, None));
    let command = api.wipe(&node, &batch, "k").await.ok();
    assert_eq!((&command["batchId"], command.get("awaitingApproval")), (&batch["batchId"], None));
    api.call("commands.run", api.ask(&node, WIPE, "unbatched")).await.ok();
    let answer = api.approve_until(&batch, 1, 10_000).await;
    assert_eq!(answer.body["error"]["details"]["reason"], "no-approvers");
    let sent = api.delivered(&node, at(100)).await;
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].approved.as_ref().map(|it| it.approvals.len()), Some(0));
    assert_eq!(taken(&sent[0], &Settings::default(), at(100)), Ok(()));

    let (api, node) = start(Settings { unbatched_destructive_per_hour: 1, ..two_of_a_and_one_of_b() }).await;
    api.call("commands.run", api.ask(&node, WIPE, "unbatched")).await.ok();
    let batch = api.batch(&[node], "b").await;
    assert_eq!(api.wipe(&node, &batch, "k").await.ok()["awaitingApproval"], true);
}

#[tokio::test]
async fn approvals_that_have_expired_hold_what_joins_later_until_new_ones_come() {
    let settings = two_of_a_and_one_of_b();
    let (api, node) = start(settings.clone()).await;
    let batch = api.batch(&[node], "b").await;
    // The API's clock stands still, so these came earlier.
    let document: Document = serde_json::from_value(batch["document"].clone()).expect("a document");
    let mut tx = api.fleet.pool.begin().await.expect("a transaction");
    for number in [1, 2, 3] {
        let approval = Approval::sign(&approver_key(number), &document, unix_ms(at(90)), unix_ms(at(99)));
        let (tenant, id) = (api.fleet.tenant, document.batch_id);
        let done = batches::approve(&mut tx, &settings, tenant, id, &approval, at(98)).await;
        assert_eq!(done.expect("it counts").tally.is_met, number == 3);
    }
    tx.commit().await.expect("a commit");
    let command = api.wipe(&node, &batch, "k").await.ok();
    assert_eq!(command["awaitingApproval"], true);
    assert_eq!(api.get_batch(&batch).await["state"], "approved", "it was, once");
    for number in [1, 2, 3] {
        api.approve(&batch, number).await;
    }
    assert_eq!(api.get_command(&command).await.get("awaitingApproval"), None);
    let sent = api.delivered(&node, at(100)).await;
    assert_eq!(taken(&sent[0], &settings, at(100)), Ok(()));
}

#[tokio::test]
async fn pages_hold_each_batch_once_newest_first() {
    let (api, node) = start(two_of_a_and_one_of_b()).await;
    let mut all = Vec::new();
    for key in 0..5 {
        all.push(api.batch(&[node], &key.to_string()).await["batchId"].clone());
    }
    let reject = |at: usize| json!({ "tenantId": api.tenant(), "batchId": all[at], "reason": "x" });
    api.call("commandBatches.reject", reject(2)).await.ok();
    // Ids of one millisecond have no order of their own.
    all.sort_by(|a, b| b.as_str().cmp(&a.as_str()));
    let mut seen = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let ask = with(json!({ "tenantId": api.tenant(), "limit": 2 }), json!({ "cursor": cursor }));
        let page = api.call("commandBatches.list", ask).await.ok();
        seen.extend(page["items"].as_array().expect("items").iter().map(|it| it["batchId"].clone()));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(seen, all);
    let rejected = json!({ "tenantId": api.tenant(), "state": "rejected" });
    let page = api.call("commandBatches.list", rejected).await.ok();
    let items = page["items"].as_array().expect("items");
    assert_eq!((items.len(), &items[0]["state"], items[0].get("scope")), (1, &json!("rejected"), None));
}

#[tokio::test]
async fn ten_thousand_leaves_are_one_batch() {
    let (api, _) = start(two_of_a_and_one_of_b()).await;
    let node = api.fleet.node().await;
    let leaf = |n: u32| json!({ "subject": node.to_string(), "kind": WIPE, "payloadSha256": format!("{n:064x}") });
    let scope: Vec<_> = (0..10_000).map(leaf).collect();
    let batch =
        api.call("commandBatches.create", with(api.propose(&[node], "b"), json!({ "scope": scope }))).await.ok();
    assert_eq!((&batch["size"], &batch["scope"]), (&json!(10_000), &json!(scope)));
    // The last proof leads to the root like the first.
    let of = |index: i32| {
        let query = "select proof from batch_leaves where index = $1";
        sqlx::query_scalar::<_, Vec<u8>>(query).bind(index).fetch_one(&api.fleet.pool)
    };
    let document: Document = serde_json::from_value(batch["document"].clone()).expect("a document");
    for index in [0, 9_999] {
        let leaf: bc_proto::batch::Leaf = serde_json::from_value(scope[index].clone()).expect("a leaf");
        let proof = of(i32::try_from(index).expect("small")).await.expect("it is there");
        let index = index as u64;
        let approved = bc_proto::batch::Approved {
            document: document.clone(),
            index,
            binds_payload: true,
            proof,
            approvals: Vec::new(),
        };
        assert_eq!(approved.includes(&leaf), Ok(()));
    }
    let mut more = scope;
    more.push(json!({ "subject": node.to_string(), "kind": WIPE }));
    let answer = api.call("commandBatches.create", with(api.propose(&[node], "c"), json!({ "scope": more }))).await;
    assert_eq!(answer.words(), "400 INVALID_INPUT scope: must have 1 to 10000 leaves, but has 10001");
}
