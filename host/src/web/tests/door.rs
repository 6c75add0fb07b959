//! Sessions, forged forms, and what every answer says about itself.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use serde_json::json;
use tower::ServiceExt as _;

use super::Browser;
use crate::api::tests::Api;

/// How many sessions there are.
async fn sessions(browser: &Browser) -> i64 {
    sqlx::query_scalar("select count(*) from web_sessions").fetch_one(&browser.api.fleet.pool).await.expect("a count")
}

#[tokio::test]
async fn nobody_sees_a_page_without_a_session_and_a_token_begins_one() {
    let mut browser = Browser::new().await;
    let asked = browser.get("/commands?kind=diag.nvml").await;
    assert_eq!(asked.status, StatusCode::UNAUTHORIZED);
    assert_eq!(asked.hidden("back"), "/commands?kind=diag.nvml", "the way back");
    let wrong = browser.post("/login", &[("token", "bct_wrong"), ("back", "/")]).await;
    assert_eq!((wrong.status, browser.cookie.is_none()), (StatusCode::UNAUTHORIZED, true));
    assert!(wrong.text.contains("unknown, expired or revoked") && !wrong.text.contains("bct_wrong"), "{}", wrong.text);
    let token = browser.api.token.clone();
    let entered = browser.log_in(&token).await;
    let set = entered.headers[header::SET_COOKIE].to_str().expect("ASCII");
    assert!(set.contains("HttpOnly; SameSite=Strict") && !set.contains("Secure"), "{set}");
    let page = browser.get("/commands").await.ok();
    assert!(page.text.contains("aria-current=\"page\">Commands"), "{}", page.text);
    assert!(!page.text.contains(&token) && !page.text.contains(set.split(['=', ';']).nth(1).expect("a value")));
    let stored: Vec<u8> = sqlx::query_scalar("select hash from web_sessions")
        .fetch_one(&browser.api.fleet.pool)
        .await
        .expect("one session");
    assert!(!set.contains(&hex::encode(stored)), "the hash alone is stored");
}

#[tokio::test]
async fn a_session_over_tls_has_a_cookie_that_no_other_host_can_set() {
    let mut browser = Browser::with(Api::new().await, true);
    let token = browser.api.token.clone();
    let entered = browser.log_in(&token).await;
    let set = entered.headers[header::SET_COOKIE].to_str().expect("ASCII");
    assert!(set.starts_with("__Host-") && set.ends_with("; Secure") && set.contains("Path=/;"), "{set}");
    browser.get("/settings").await.ok();
}

#[tokio::test]
async fn a_session_ends_with_its_token_by_itself_and_by_logging_out() {
    let mut browser = Browser::new().await;
    let token = browser.api.token_with("someone", &[("compute:nodes:read", "compute-node/*")]).await;
    browser.log_in(&token).await;
    browser.get("/settings").await.ok();
    let left = browser.submit("/logout", &[]).await;
    assert_eq!((left.status, left.location(), browser.cookie.is_none()), (StatusCode::SEE_OTHER, "/login", true));
    assert_eq!(sessions(&browser).await, 0);

    browser.log_in(&token).await;
    let tenant = browser.api.tenant();
    let id = crate::api::auth::id(&crate::api::auth::hash(&token));
    browser.api.call("tokens.revoke", json!({ "tenantId": tenant, "id": id })).await.ok();
    assert_eq!(browser.get("/settings").await.status, StatusCode::UNAUTHORIZED, "revoked");

    let token = browser.api.token.clone();
    browser.log_in(&token).await;
    browser.pass(90 * 60);
    browser.get("/settings").await.ok();
    browser.pass(90 * 60);
    browser.get("/settings").await.ok();
    browser.pass(121 * 60);
    assert_eq!(browser.get("/settings").await.status, StatusCode::UNAUTHORIZED, "idle");

    browser.log_in(&token).await;
    for _ in 0..7 {
        browser.pass(100 * 60);
        browser.get("/settings").await.ok();
    }
    browser.pass(21 * 60);
    assert_eq!(browser.get("/settings").await.status, StatusCode::UNAUTHORIZED, "over, however much it was used");
}

#[tokio::test]
async fn a_page_that_refreshes_itself_keeps_no_session_alive() {
    let mut browser = Browser::logged_in().await;
    let by_itself = |cookie: &str| {
        let request = Request::get("/settings").header("x-live", "1").header(header::COOKIE, cookie);
        request.body(Body::empty()).expect("a request")
    };
    for expected in [StatusCode::OK, StatusCode::UNAUTHORIZED] {
        browser.pass(70 * 60);
        let cookie = browser.cookie.clone().expect("a cookie");
        assert_eq!(browser.send(by_itself(&cookie)).await.status, expected);
    }
}

#[tokio::test]
async fn a_form_that_this_session_was_not_given_does_nothing() {
    let mut browser = Browser::logged_in().await;
    let node = browser.api.fleet.node().await;
    browser.api.kind("diag.nvml").await;
    let run = browser.api.call("commands.run", browser.api.ask(&node, "diag.nvml", "k")).await.ok();
    let path = format!("/commands/{node}/{}/cancel", run["id"].as_str().expect("an id"));
    let csrf = browser.get("/settings").await.ok().hidden("_csrf").to_owned();
    let forged: [(&str, &[(&str, &str)]); 6] = [
        ("", &[("sec-fetch-site", "same-origin")]),
        ("x", &[("sec-fetch-site", "same-origin")]),
        (&csrf, &[("sec-fetch-site", "cross-site")]),
        (&csrf, &[("sec-fetch-site", "same-site")]),
        (&csrf, &[("origin", "https://evil.example"), ("host", "control.example")]),
        (&csrf, &[("origin", "null"), ("host", "control.example")]),
    ];
    for (token, headers) in forged {
        let seen = browser.post_with(&path, &[("_csrf", token)], headers).await;
        assert_eq!(seen.status, StatusCode::FORBIDDEN, "{headers:?}: {}", seen.text);
    }
    let login = [("token", browser.api.token.clone())];
    let login: Vec<_> = login.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let seen = browser.post_with("/login", &login, &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!(
        (seen.status, seen.headers.get(header::SET_COOKIE)),
        (StatusCode::FORBIDDEN, None),
        "a login is a form too"
    );
    let reference = json!({ "tenantId": browser.api.tenant(), "nodeId": node.to_string(), "commandId": run["id"] });
    assert_eq!(browser.api.call("commands.get", reference.clone()).await.ok()["state"], "pending");
    let origin = [("origin", "https://control.example"), ("host", "control.example")];
    let seen = browser.post_with(&path, &[("_csrf", &csrf)], &origin).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    assert_eq!(browser.api.call("commands.get", reference).await.ok()["state"], "cancelled");
}

#[tokio::test]
async fn every_answer_forbids_what_pages_do_not_need() {
    let mut browser = Browser::logged_in().await;
    let paths = [
        "/",
        "/commands",
        "/commands/run",
        "/settings",
        "/settings/system/commands",
        "/static/style.css",
        "/static/live.js",
        "/nodes/x/y/z",
        "/login",
        "/live?after=x",
        "/commands?state=flying",
        "/commands?node=nobody",
    ];
    for path in paths {
        for is_in in [true, false] {
            let cookie = browser.cookie.clone();
            if !is_in {
                browser.cookie = None;
            }
            let seen = browser.get(path).await;
            browser.cookie = cookie;
            let of = |name: &str| seen.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
            let policy = of("content-security-policy");
            assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}: {policy}");
            assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
            assert_eq!((of("x-content-type-options"), of("referrer-policy")), ("nosniff".into(), "no-referrer".into()));
            let cache = if path.starts_with("/static/") { "no-cache" } else { "no-store" };
            assert_eq!(of("cache-control"), cache, "{path}");
            for word in ["<script>", "style=\"", "onclick=", "javascript:", "http://", "https://"] {
                let is_script = path.starts_with("/static/") || seen.text.contains(&browser.api.app.config.gateway_url);
                assert!(is_script || !seen.text.contains(word), "{path} holds {word}");
            }
        }
    }
    let seen = browser.get("/nodes/x/y/z").await;
    assert!(seen.status == StatusCode::NOT_FOUND && seen.text.contains("<h1>"), "a page");
}

#[tokio::test]
async fn the_api_is_as_it_was_and_a_cookie_opens_none_of_it() {
    let browser = Browser::logged_in().await;
    let request =
        Request::post("/v1/tokens.whoami").header(header::COOKIE, browser.cookie.as_deref().expect("a cookie"));
    let response =
        browser.router.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("an answer");
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let unknown = Request::get("/v2/nothing").body(Body::empty()).expect("a request");
    let response = browser.router.clone().oneshot(unknown).await.expect("an answer");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json", "who asks for no HTML gets none");
}

#[tokio::test]
async fn a_link_from_another_site_is_followed_once_more_from_here() {
    let mut browser = Browser::logged_in().await;
    browser.cookie = None;
    let request = Request::get("/commands?kind=a&state=failed").header("sec-fetch-site", "cross-site");
    let request = request.header("sec-fetch-mode", "navigate").body(Body::empty()).expect("a request");
    let seen = browser.send(request).await.ok();
    assert!(seen.text.contains("content=\"0; url=/commands?kind=a&#38;state=failed\""), "{}", seen.text);
}
