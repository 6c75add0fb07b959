//! `tokens.*`, and which tokens count.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::json;

use super::{Api, with};
use crate::api::{auth, bootstrap};
use crate::store::{identities, tokens};
use crate::testing::{at, uuid};

#[tokio::test]
async fn only_a_token_that_counts_is_let_in() {
    let api = Api::new().await;
    let mut db = api.fleet.db().await;
    let identity = identities::ensure(&mut db, uuid(), api.fleet.tenant, "admin", at(0)).await.expect("a database");
    let mut made = Vec::new();
    for (n, expires_at) in [(10, Some(at(100))), (11, Some(at(101))), (12, None)] {
        let token = auth::token([n; 32]);
        tokens::create(&mut db, auth::hash(&token), identity.id, "x", expires_at, at(0)).await.expect("a database");
        made.push(token);
    }
    let whoami = async |token: &str| api.call_as(token, "tokens.whoami", json!({})).await.code().to_owned();
    assert_eq!(whoami(&made[0]).await, "UNAUTHENTICATED", "expired");
    assert_eq!(whoami(&made[1]).await, "ok", "expires in a second");
    assert_eq!(whoami(&made[2]).await, "ok");
    assert_eq!(whoami(&auth::token([13; 32])).await, "UNAUTHENTICATED", "unknown");
    assert_eq!(whoami("bct_x").await, "UNAUTHENTICATED", "no token");

    let id = auth::id(&auth::hash(&made[2]));
    let reference = json!({ "tenantId": api.tenant(), "id": id });
    let revoked = api.call("tokens.revoke", reference.clone()).await.ok();
    assert_eq!(revoked["revokedAt"], "2027-01-15T08:01:40Z");
    assert_eq!(api.call("tokens.revoke", reference).await.ok(), revoked, "again changes nothing");
    assert_eq!(whoami(&made[2]).await, "UNAUTHENTICATED", "revoked, at once");

    sqlx::query("update identities set disabled_at = now()").execute(&mut *db).await.expect("a database");
    assert_eq!(whoami(&made[1]).await, "UNAUTHENTICATED", "its identity is disabled");
}

#[tokio::test]
async fn without_a_token_nothing_but_health_is_answered() {
    let api = Api::new().await;
    let mut seen = String::new();
    for value in [None, Some("Basic eDp5"), Some("Bearer"), Some("Bearer  "), Some("bct_x")] {
        let mut request = Request::post("/v1/commands.run").body(Body::from("not even JSON")).expect("a request");
        if let Some(value) = value {
            request.headers_mut().insert(header::AUTHORIZATION, value.parse().expect("a value"));
        }
        seen += &format!("{value:?}: {}\n", api.send(request).await.words());
    }
    insta::assert_snapshot!(seen);
    let lower = Request::post("/v1/tokens.whoami").header(header::AUTHORIZATION, format!("bearer {}", api.token));
    assert_eq!(api.send(lower.body(Body::empty()).expect("a request")).await.code(), "ok");
}

#[tokio::test]
async fn a_token_is_made_shown_once_and_listed_without_itself() {
    let api = Api::new().await;
    let ask = json!({ "tenantId": api.tenant(), "identity": "ci", "label": "for builds", "expiresInSeconds": 60,
                      "grants": [{ "permission": "compute:nodes:read", "resource": "compute-node/*" }] });
    let made = api.call("tokens.create", ask).await.ok();
    let token = made["token"].as_str().expect("a token");
    let caller = api.call_as(token, "tokens.whoami", json!({})).await.ok();
    let expected = json!({ "tenantId": api.tenant(), "tenant": "a tenant", "identity": "ci",
                           "grants": [{ "permission": "compute:nodes:read", "resource": "compute-node/*" }] });
    assert_eq!(caller, expected);
    let list = api.call("tokens.list", json!({ "tenantId": api.tenant() })).await.ok();
    let item = json!({ "id": made["id"], "identity": "ci", "label": "for builds",
                       "createdAt": "2027-01-15T08:01:40Z", "expiresAt": "2027-01-15T08:02:40Z" });
    assert_eq!(list["items"][0], item);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    assert!(!list.to_string().contains(&token[8..]), "the token stands nowhere");
}

#[tokio::test]
async fn nobody_gives_what_they_do_not_have() {
    let api = Api::new().await;
    let tenant = format!("tenant/{}", api.tenant());
    let mine = [("compute:tokens:write", tenant.as_str()), ("compute:nodes:*", "compute-node/*")];
    let token = api.token_with("lead", &mine).await;
    let give = async |identity: &str, permission: &str, resource: &str| {
        let ask = json!({ "tenantId": api.tenant(), "identity": identity, "label": "l",
                          "grants": [{ "permission": permission, "resource": resource }] });
        api.call_as(&token, "tokens.create", ask).await
    };
    for (permission, resource, expected) in [
        ("compute:nodes:read", "compute-node/*", "ok"),
        ("compute:nodes:*", "compute-node/node_1", "ok"),
        ("compute:nodes:*", "*", "PERMISSION_DENIED"),
        ("compute:*", "compute-node/*", "PERMISSION_DENIED"),
        ("compute:kinds:read", "kind/*", "PERMISSION_DENIED"),
    ] {
        assert_eq!(give("junior", permission, resource).await.code(), expected, "{permission} {resource}");
    }
    let answer = give("admin", "compute:nodes:read", "compute-node/*").await;
    assert_eq!(answer.code(), "PERMISSION_DENIED", "the identity that it would act as may do more");
    assert_eq!(answer.body["error"]["details"]["lacking"], json!(["compute:* on *"]));
    let list = api.call("tokens.list", json!({ "tenantId": api.tenant() })).await.ok();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(4), "what was refused left nothing");
}

#[tokio::test]
async fn another_tenants_tokens_do_not_exist() {
    let api = Api::new().await;
    let (other, stranger) =
        bootstrap::admin(&api.fleet.pool, "another", &super::fixed(2, 0)).await.expect("a database");
    let theirs = json!({ "tenantId": other.to_string(), "id": auth::id(&auth::hash(&stranger)) });
    assert_eq!(api.call("tokens.revoke", theirs.clone()).await.code(), "NOT_FOUND");
    let mine = with(theirs, json!({ "tenantId": api.tenant() }));
    assert_eq!(api.call("tokens.revoke", mine).await.code(), "NOT_FOUND");
    let list = json!({ "tenantId": other.to_string() });
    assert_eq!(api.call("tokens.list", list).await.code(), "NOT_FOUND");
    assert_eq!(api.call_as(&stranger, "tokens.whoami", json!({})).await.code(), "ok");
}

#[tokio::test]
async fn bootstrapping_again_adds_a_token_and_changes_nothing_else() {
    let api = Api::new().await;
    let again = bootstrap::admin(&api.fleet.pool, "a tenant", &super::fixed(1, 9)).await.expect("a database");
    assert_eq!(again, (api.fleet.tenant, api.token.clone()));
    let (tenant, token) = bootstrap::admin(&api.fleet.pool, "a tenant", &super::fixed(3, 9)).await.expect("a database");
    assert_eq!(tenant, api.fleet.tenant);
    assert_eq!(api.call_as(&token, "tokens.whoami", json!({})).await, api.call("tokens.whoami", json!({})).await,);
}
