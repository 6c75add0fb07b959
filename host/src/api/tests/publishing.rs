//! Who may publish kinds, and what needs a yes.

use bc_proto::batch::{Approval, Leaf};
use bc_proto::id::{BatchId, TenantId};
use bc_proto::rules::approval::Policy;
use bc_proto::rules::publishing::KindSignature;
use bc_proto::rules::trust::Publisher;
use bc_proto::sign::SecretKey;
use serde_json::json;

use super::component::{kind, manifest};
use super::{Api, App, Parts};
use crate::registry::quorum;
use crate::store::unix_ms;
use crate::testing::{at, uuid};
use crate::world::World;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32])
}

/// The same API with other settings.
fn with_pki(api: Api, change: impl FnOnce(&mut crate::trust::Settings)) -> Api {
    let parts: &Parts = &api.app;
    let mut config = parts.config.clone();
    change(&mut config.pki);
    let app = App::new(Parts {
        pool: parts.pool.clone(),
        bus: parts.bus.clone(),
        registry: parts.registry.clone(),
        authority_sha256: parts.authority_sha256,
        world: parts.world.clone(),
        signer: parts.signer.clone(),
        bundles: parts.bundles.clone(),
        stop: parts.stop.clone(),
        config,
    });
    Api { app, ..api }
}

fn publishers(seeds: &[u8]) -> Vec<Publisher> {
    seeds.iter().map(|&seed| Publisher { name: format!("publisher {seed}"), key: key(seed).public() }).collect()
}

fn digest(component: &[u8]) -> String {
    bc_proto::canonical::sha256_hex(component)
}

/// The query that goes with a component signed by a key.
fn signed(component: &[u8], seed: u8) -> String {
    query(&KindSignature::sign(&digest(component), &key(seed)))
}

fn query(signature: &KindSignature) -> String {
    let hex = serde_json::to_value(signature.signature).expect("JSON");
    format!("?publisher={}&signature={}", signature.publisher, hex.as_str().expect("text"))
}

#[tokio::test]
async fn promise_28_a_kind_that_no_publisher_signed_is_refused_by_its_digest_before_it_is_read() {
    let api = with_pki(Api::new().await, |pki| pki.publishers = publishers(&[1, 2]));
    let good = kind(&manifest("acme.fan", "1.0.0", ""));
    // No parser gets to the end of it: read at all, it would be refused for what it is.
    let broken = b"\0asm\x0d\0\x01\0 a component that no parser survives".to_vec();
    let stolen = KindSignature { publisher: key(2).public(), ..KindSignature::sign(&digest(&broken), &key(1)) };
    let other = KindSignature::sign(&digest(&good), &key(1));
    let mut seen = String::new();
    for (what, query) in [
        ("not signed", String::new()),
        ("by a stranger", signed(&broken, 3)),
        ("by another publisher than it says", query(&stolen)),
        ("for another component", query(&other)),
        ("half a signature", format!("?publisher={}", key(1).public())),
        ("no key", "?publisher=x&signature=y".into()),
    ] {
        let answer = api.register(broken.clone(), &query).await;
        let reason = &answer.body["error"]["details"]["reason"];
        seen += &format!("{what}: {reason} {}\n", answer.words());
        assert!(!answer.body.to_string().contains("damaged"), "it was read: {}", answer.body);
    }
    // Signed, it is read: the same answer as without publishers.
    let answer = api.register(broken.clone(), &signed(&broken, 1)).await;
    seen += &format!("signed: {}\n", answer.words());
    insta::assert_snapshot!(seen);

    let registered = api.register(good.clone(), &signed(&good, 2)).await.ok();
    assert_eq!(registered["publisher"], key(2).public().to_string());
    let again = api.register(good.clone(), &signed(&good, 1)).await.ok();
    assert_eq!(again["publisher"], key(1).public().to_string(), "another publisher vouches for it");

    // A publisher who is trusted no more: what is registered stays as it is, and nothing of theirs is activated.
    let api = with_pki(api, |pki| pki.publishers = publishers(&[2]));
    let refused = api.call("kinds.activate", json!({ "digest": digest(&good) })).await;
    assert_eq!(
        (refused.code(), &refused.body["error"]["details"]["reason"]),
        ("INVALID_STATE", &json!("unknown-publisher"))
    );
    api.register(good.clone(), &signed(&good, 2)).await.ok();
    api.call("kinds.activate", json!({ "digest": digest(&good) })).await.ok();
}

#[tokio::test]
async fn a_signature_is_kept_where_nobody_asks_for_one() {
    let api = Api::new().await;
    let good = kind(&manifest("acme.fan", "1.0.0", ""));
    let registered = api.register(good.clone(), &signed(&good, 9)).await.ok();
    assert_eq!(registered["publisher"], key(9).public().to_string());
    let unsigned = kind(&manifest("acme.pump", "1.0.0", ""));
    assert_eq!(api.register(unsigned, "").await.ok().get("publisher"), None);
}

fn capable(version: &str, rest: &str, capabilities: &[&str]) -> Vec<u8> {
    let declared: Vec<_> = capabilities.iter().map(|it| format!("{it} = {{}}")).collect();
    kind(&manifest("acme.fan", version, &format!("{rest}\ncapabilities = {{ {} }}", declared.join(", "))))
}

#[tokio::test]
async fn a_component_that_may_do_more_needs_a_yes_and_under_a_quorum_an_approved_batch() {
    let api = Api::new().await;
    let one = capable("1.0.0", "traits = ['destructive']", &["inventory"]);
    let wide = capable("2.0.0", "traits = ['destructive']", &["inventory", "system"]);
    let narrow = capable("3.0.0", "traits = ['destructive']", &[]);
    let unwatched = capable("4.0.0", "", &["inventory"]);
    api.register(one.clone(), "?activate=true").await.ok();
    for other in [&wide, &narrow, &unwatched] {
        api.register(other.clone(), "").await.ok();
    }
    let activate = async |api: &Api, component: &[u8], more: serde_json::Value| {
        api.call("kinds.activate", super::with(json!({ "digest": digest(component) }), more)).await
    };
    for (component, word) in [(&wide, "+ capabilities [system]"), (&unwatched, "- trait destructive")] {
        let refused = activate(&api, component, json!({})).await;
        assert_eq!(
            (refused.code(), &refused.body["error"]["details"]["reason"]),
            ("INVALID_STATE", &json!("wider-grant"))
        );
        assert!(refused.words().contains(word), "{}", refused.words());
        assert_eq!(
            api.register(component.clone(), "?activate=true").await.code(),
            "INVALID_STATE",
            "the same way round"
        );
    }
    assert_eq!(activate(&api, &narrow, json!({})).await.ok()["status"], "active");
    // With nothing in service it is compared with what was last: the detour over `retire` leads nowhere.
    api.call("kinds.retire", json!({ "name": "acme.fan" })).await.ok();
    assert_eq!(activate(&api, &one, json!({})).await.code(), "INVALID_STATE");
    activate(&api, &one, json!({ "acceptWider": true })).await.ok();

    let policy: Policy = serde_json::from_value(json!({
        "approvers": [{ "name": "ann", "key": key(1).public() }], "require": [{ "count": 1 }],
    }))
    .expect("a policy");
    let api = with_pki(api, |pki| pki.approvers = Some(policy));
    for (more, reason) in [
        (json!({}), "wider-grant"),
        (json!({ "acceptWider": true }), "batch-required"),
        (json!({ "acceptWider": true, "batchId": "batch_00000000000000000000000000" }), "batch-required"),
    ] {
        let refused = activate(&api, &wide, more).await;
        assert_eq!((refused.code(), &refused.body["error"]["details"]["reason"]), ("INVALID_STATE", &json!(reason)));
    }
    let leaf = |component: &[u8]| json!({ "subject": "acme.fan", "kind": "kinds.activate", "payloadSha256": digest(component) });
    let propose = async |scope: serde_json::Value, key: &str| {
        let ask = json!({ "tenantId": api.tenant(), "reason": "it cools", "scope": [scope], "idempotencyKey": key });
        api.call("commandBatches.create", super::with(ask, json!({ "expiresInSeconds": 60 }))).await
    };
    let mut nameless = leaf(&wide);
    nameless["subject"] = json!("");
    for (scope, why) in [
        (json!({ "subject": "acme.fan", "kind": "kinds.activate" }), "scope[0].payloadSha256: must be the digest of"),
        (nameless, "scope[0].subject: must be the name of the kind to activate"),
    ] {
        let refused = propose(scope, "bad").await;
        assert!(refused.words().contains(why), "{}", refused.words());
    }
    let approve = async |batch: &serde_json::Value| {
        let document = serde_json::from_value(batch["document"].clone()).expect("a document");
        let approval = Approval::sign(&key(1), &document, unix_ms(at(99)), unix_ms(at(900)));
        let ask = json!({ "tenantId": api.tenant(), "batchId": batch["batchId"], "approval": approval });
        api.call("commandBatches.approve", ask).await.ok()
    };
    let under = |batch: &serde_json::Value| json!({ "acceptWider": true, "batchId": batch["batchId"] });
    let refused = async |batch: &serde_json::Value, why: &str| {
        let answer = activate(&api, &wide, under(batch)).await;
        let reason = &answer.body["error"]["details"]["reason"];
        assert_eq!((answer.code(), reason), ("INVALID_STATE", &json!("batch-required")), "{why}");
    };
    let open = propose(leaf(&wide), "open").await.ok();
    refused(&open, "nobody approved it").await;
    let other = propose(leaf(&unwatched), "other").await.ok();
    assert_eq!(approve(&other).await["state"], "approved");
    refused(&other, "it is for another component").await;
    let rejected = propose(leaf(&wide), "rejected").await.ok();
    approve(&rejected).await;
    let ask = json!({ "tenantId": api.tenant(), "batchId": rejected["batchId"], "reason": "too loud" });
    api.call("commandBatches.reject", ask).await.ok();
    refused(&rejected, "somebody said no after all").await;
    let expired = propose(leaf(&wide), "expired").await.ok();
    approve(&expired).await;
    crate::loops::sweep(&api.fleet.pool, &api.app.bus, &World::new(|| at(160), |_| {})).await.expect("a database");
    refused(&expired, "its time is over").await;
    let good = propose(leaf(&wide), "good").await.ok();
    approve(&good).await;
    // The same batch, asked for by somebody of another tenant and by somebody of its own.
    let batch: BatchId = good["batchId"].as_str().expect("text").parse().expect("an id");
    let allowed: Leaf = serde_json::from_value(leaf(&wide)).expect("a leaf");
    let policy = api.app.config.pki.approvers.as_ref().expect("a quorum");
    for (tenant, is_allowed) in [(TenantId::from_uuid(uuid()), false), (api.fleet.tenant, true)] {
        let mut db = api.fleet.db().await;
        let allows = quorum::allows(&mut db, policy, (tenant, batch), &allowed, at(100)).await;
        assert_eq!(allows.expect("a database"), is_allowed, "{tenant}");
    }
    let unsaid = activate(&api, &wide, json!({ "batchId": good["batchId"] })).await;
    assert_eq!(unsaid.body["error"]["details"]["reason"], "wider-grant", "approvers are not the one who says yes");
    assert_eq!(activate(&api, &wide, under(&good)).await.ok()["status"], "active");
    let bad = activate(&api, &wide, json!({ "batchId": "x" })).await;
    assert_eq!(bad.words(), "400 INVALID_INPUT batchId: must be an id of the form batch_…");
    assert_eq!(activate(&api, &narrow, json!({})).await.ok()["status"], "active", "less needs nobody");
}
