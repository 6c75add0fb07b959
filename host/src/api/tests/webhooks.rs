//! `webhooks.*`.

use bc_proto::rules::webhook::Allow;
use serde_json::{Value, json};

use super::{Api, with};
use crate::bus::Bus;
use crate::testing::at;
use crate::webhooks::{Module, SealingKey, Settings};
use crate::world::World;

fn settings() -> Settings {
    let allow = Allow::parse(["hooks.internal", "127.0.0.1"]).expect("words");
    let timeout = std::time::Duration::from_mins(1);
    Settings { key: SealingKey::new([5; 32]), allow, ca_pem: None, timeout }
}

async fn api() -> Api {
    Api::with_settings(crate::trust::Settings::default(), Some(settings())).await
}

fn ask(api: &Api) -> Value {
    json!({ "tenantId": api.tenant(), "url": "https://hooks.example/in", "topics": ["command.*"], "description": "pager" })
}

/// A webhook that was made: how to name it, and its secret.
async fn made(api: &Api) -> (Value, String) {
    let made = api.call("webhooks.create", ask(api)).await.ok();
    let named = json!({ "tenantId": api.tenant(), "webhookId": made["webhook"]["id"] });
    (named, made["secret"].as_str().expect("a secret").to_owned())
}

#[tokio::test]
async fn a_webhook_is_made_changed_and_deleted() {
    let api = api().await;
    let (named, secret) = made(&api).await;
    assert!(secret.starts_with("whsec_") && secret.len() == 50, "{secret}");
    let found = api.call("webhooks.get", named.clone()).await.ok();
    assert_eq!(found["state"], "enabled");
    assert_eq!(found["createdAt"], "2027-01-15T08:01:40Z");
    let listed = api.call("webhooks.list", json!({ "tenantId": api.tenant() })).await.ok();
    assert_eq!(listed["items"], json!([found]));
    let change = json!({ "url": "http://hooks.internal/in", "topics": ["*"], "enabled": false });
    let changed = api.call("webhooks.update", with(named.clone(), change)).await.ok();
    assert_eq!((&changed["state"], &changed["reason"]), (&json!("disabled"), &json!("asked")));
    assert_eq!((&changed["url"], &changed["description"]), (&json!("http://hooks.internal/in"), &json!("pager")));
    let refused = api.call("webhooks.test", named.clone()).await;
    assert_eq!(refused.body["error"]["details"]["reason"], "disabled");
    let again = api.call("webhooks.update", with(named.clone(), json!({ "enabled": true }))).await.ok();
    assert_eq!(again["state"], "enabled");
    assert_eq!(api.call("webhooks.delete", named.clone()).await.ok()["id"], named["webhookId"]);
    for method in ["get", "delete", "test", "deliveries", "rotateSecret", "update"] {
        assert_eq!(api.call(&format!("webhooks.{method}"), named.clone()).await.code(), "NOT_FOUND", "{method}");
    }
    let topics: Vec<String> = sqlx::query_scalar("select topic from events where topic like 'webhook.%' order by id")
        .fetch_all(&api.fleet.pool)
        .await
        .expect("a database");
    assert_eq!(topics, ["webhook.created", "webhook.disabled", "webhook.changed", "webhook.deleted"]);
}

#[tokio::test]
async fn a_secret_leaves_once_and_is_not_in_the_database() {
    let api = api().await;
    let (named, secret) = made(&api).await;
    let rotated = api.call("webhooks.rotateSecret", with(named.clone(), json!({ "overlapSeconds": 60 }))).await.ok();
    let new = rotated["secret"].as_str().expect("a secret").to_owned();
    assert_ne!(new, secret);
    assert_eq!(rotated["previousSecretUntil"], "2027-01-15T08:02:40Z");
    let found = api.call("webhooks.get", named.clone()).await.ok();
    assert_eq!(found["previousSecretUntil"], "2027-01-15T08:02:40Z");
    let stored: Vec<String> = sqlx::query_scalar(
        "select to_jsonb(w)::text from webhooks w union all select to_jsonb(e)::text from events e
         union all select to_jsonb(d)::text from webhook_deliveries d",
    )
    .fetch_all(&api.fleet.pool)
    .await
    .expect("a database");
    for secret in [&secret, &new] {
        let text = secret.strip_prefix("whsec_").expect("its beginning");
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).expect("base64");
        for row in stored.iter().chain([&found.to_string()]) {
            assert!(!row.contains(text) && !row.contains(&hex::encode(&bytes)), "{row}");
        }
    }
    assert!(stored.len() >= 3, "{stored:?}");
    let at_once = api.call("webhooks.rotateSecret", with(named, json!({ "overlapSeconds": 0 }))).await.ok();
    assert_eq!(at_once.get("previousSecretUntil"), None);
}

#[tokio::test]
async fn every_field_of_a_webhook_has_a_rule() {
    let api = api().await;
    let (named, _) = made(&api).await;
    let mut words = String::new();
    for change in [
        json!({ "url": "hooks.example" }),
        json!({ "url": "http://hooks.example/" }),
        json!({ "url": "https://user:pass@hooks.example/" }),
        json!({ "url": "https://hooks.example/#x" }),
        json!({ "url": "https://10.0.0.1/" }),
        json!({ "url": "https://127.1:80/" , "topics": [] }),
        json!({ "url": "https://[fd00:ec2::254]/" }),
        json!({ "url": format!("https://hooks.example/{}", "x".repeat(2000)) }),
        json!({ "url": null }),
        json!({ "topics": ["command.settled", "Command", "a.**"] }),
        json!({ "topics": vec!["*"; 51] }),
        json!({ "description": "x".repeat(201) }),
        json!({ "description": "a\u{0}" }),
        json!({ "secret": "whsec_mine" }),
    ] {
        words += &format!("create {}\n", api.call("webhooks.create", with(ask(&api), change)).await.words());
    }
    for (method, change) in [
        ("update", json!({ "webhookId": "node_x" })),
        ("update", json!({ "url": "" })),
        ("rotateSecret", json!({ "overlapSeconds": 604_801 })),
        ("deliveries", json!({ "state": "lost" })),
        ("deliveries", json!({ "limit": 201, "cursor": "x" })),
        ("redeliver", json!({})),
        ("redeliver", json!({ "deliveryId": "delivery_x" })),
        ("redeliver", json!({ "since": "yesterday" })),
        ("redeliver", json!({ "since": "2026-01-01T00:00:00Z", "deliveryId": "delivery_00000000000000000000000001" })),
    ] {
        let answer = api.call(&format!("webhooks.{method}"), with(named.clone(), change)).await;
        words += &format!("{method} {}\n", answer.words());
    }
    let missing = json!({ "deliveryId": "delivery_00000000000000000000000001" });
    words += &format!("redeliver {}\n", api.call("webhooks.redeliver", with(named, missing)).await.words());
    insta::assert_snapshot!(words);
}

#[tokio::test]
async fn who_may_do_what_with_webhooks() {
    let api = api().await;
    let (named, _) = made(&api).await;
    let here = format!("tenant/{}", api.tenant());
    let mut table = String::new();
    for (who, grants) in [
        ("nothing", vec![]),
        ("reads", vec![("compute:webhooks:read", here.as_str())]),
        ("writes", vec![("compute:webhooks:write", here.as_str())]),
        (
            "writes and reads events",
            vec![("compute:webhooks:write", here.as_str()), ("compute:events:read", here.as_str())],
        ),
    ] {
        let token = api.token_with(who, &grants).await;
        table += &format!("{who}\n");
        for (method, body) in [
            ("list", json!({ "tenantId": api.tenant() })),
            ("get", named.clone()),
            ("deliveries", named.clone()),
            ("create", ask(&api)),
            ("update", with(named.clone(), json!({ "url": "https://elsewhere.example/" }))),
            ("update", with(named.clone(), json!({ "description": "x" }))),
            ("rotateSecret", named.clone()),
            ("test", named.clone()),
            ("redeliver", with(named.clone(), json!({ "since": "2026-01-01T00:00:00Z" }))),
        ] {
            let answer = api.call_as(&token, &format!("webhooks.{method}"), body).await;
            table += &format!("    {method}: {} {}\n", answer.code(), answer.body["error"]["details"]["permission"]);
        }
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn without_a_key_the_answer_says_how_to_get_one() {
    let api = Api::new().await;
    let refused = api.call("webhooks.create", ask(&api)).await;
    assert_eq!(refused.body["error"]["details"]["reason"], "webhooks-off");
    assert!(refused.words().contains("better-compute webhook new-key"), "{}", refused.words());
    assert_eq!(api.call("webhooks.list", json!({ "tenantId": api.tenant() })).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn deliveries_are_listed_page_by_page_and_those_that_are_dead_are_sent_again() {
    let api = api().await;
    let url = json!({ "url": "https://127.0.0.1:1/" });
    let made = api.call("webhooks.create", with(ask(&api), url)).await.ok();
    let named = json!({ "tenantId": api.tenant(), "webhookId": made["webhook"]["id"] });
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, api.call("webhooks.test", named.clone()).await.ok()["id"].clone());
    }
    let mut listed = Vec::new();
    let mut ask = with(named.clone(), json!({ "limit": 2 }));
    loop {
        let page = api.call("webhooks.deliveries", ask.clone()).await.ok();
        listed.extend(page["items"].as_array().expect("a list").clone());
        match page.get("nextCursor").filter(|it| !it.is_null()) {
            Some(cursor) => ask["cursor"] = cursor.clone(),
            None => break,
        }
    }
    assert_eq!(listed.iter().map(|it| it["id"].clone()).collect::<Vec<_>>(), ids);
    assert!(listed.iter().all(|it| it["topic"] == "webhook.test" && it["state"] == "pending"), "{listed:?}");

    // Nobody listens there: after its last attempt a delivery is dead.
    sqlx::query("update webhook_deliveries set attempts = 9").execute(&api.fleet.pool).await.expect("a database");
    let world = World::new(|| at(100), |bytes| getrandom::fill(bytes).expect("the kernel gives random bytes"));
    let module = Module::new(api.fleet.pool.clone(), Bus::local(), world, &settings()).expect("it fits");
    assert_eq!(module.pass().await.expect("a database"), 5);
    let dead = with(named.clone(), json!({ "state": "dead" }));
    let found = api.call("webhooks.deliveries", dead.clone()).await.ok();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(5));
    assert_eq!(found["items"][0]["attempts"], 10);
    assert!(found["items"][0]["lastAnswer"].as_str().is_some_and(|it| !it.is_empty()));
    let again = |change: Value| api.call("webhooks.redeliver", with(named.clone(), change));
    assert_eq!(again(json!({ "deliveryId": ids[0] })).await.ok()["count"], 1);
    assert_eq!(again(json!({ "since": "2027-01-15T08:01:41Z" })).await.ok()["count"], 0);
    assert_eq!(again(json!({ "since": "2027-01-15T08:01:40Z" })).await.ok()["count"], 4);
    assert_eq!(api.call("webhooks.deliveries", dead).await.ok()["items"], json!([]));
}
