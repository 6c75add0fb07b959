//! The form that runs a command.

use axum::http::StatusCode;
use serde_json::json;

use super::Browser;
use crate::api::tests::MAX_PAYLOAD;

#[tokio::test]
async fn a_form_is_one_command_however_often_it_is_sent() {
    let mut browser = Browser::logged_in().await;
    let node = browser.api.fleet.node().await.to_string();
    browser.api.kind("diag.nvml").await;
    let form = browser.get(&format!("/commands/run?node={node}&kind=diag.nvml")).await.ok();
    assert!(form.text.contains("name=\"p.n\"") && form.text.contains("type=\"number\""), "{}", form.text);
    let (csrf, key) = (form.hidden("_csrf").to_owned(), form.hidden("key").to_owned());
    let fields = [("_csrf", csrf.as_str()), ("key", &key), ("kind", "diag.nvml"), ("node", &node), ("p.n", "3")];
    let first = browser.post("/commands/run", &fields).await;
    assert_eq!(first.status, StatusCode::SEE_OTHER, "{}", first.text);
    let second = browser.post("/commands/run", &fields).await;
    assert_eq!(first.location(), second.location());
    let list = json!({ "tenantId": browser.api.tenant(), "nodeId": node });
    let list = browser.api.call("commands.list", list).await.ok();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["items"][0]["payload"], json!({ "n": 3 }));
    let page = browser.get(first.location()).await.ok();
    assert!(page.text.contains("never was since it was enrolled"), "why it waits: {}", page.text);
    let other = [("_csrf", csrf.as_str()), ("key", &key), ("kind", "diag.nvml"), ("node", &node), ("p.n", "4")];
    let conflict = browser.post("/commands/run", &other).await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    assert_ne!(conflict.hidden("key"), key, "the form has a new key");
}

#[tokio::test]
async fn what_is_wrong_stands_beside_its_field_and_what_was_typed_is_kept() {
    let mut browser = Browser::logged_in().await;
    let node = browser.api.fleet.node().await.to_string();
    browser.api.kind("diag.nvml").await;
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[("p.n", "-7")], "<p class=\"problem\">"),
        (&[("p.n", "many")], "must be a number without a fraction"),
        (&[("notAfterSeconds", "9")], "must be between 10 and 3600, but is 9"),
        (&[("notAfterSeconds", "soon")], "must be a number of seconds"),
        (&[("batchId", "batch_x\"><b>")], "must be an id of the form batch_"),
    ];
    for (fields, words) in cases {
        let all: Vec<_> =
            [("kind", "diag.nvml"), ("node", &node), ("key", "k")].into_iter().chain(fields.iter().copied()).collect();
        let seen = browser.submit("/commands/run", &all).await;
        assert_eq!(seen.status, StatusCode::BAD_REQUEST, "{}", seen.text);
        assert!(seen.text.contains(words), "{fields:?}: {}", seen.text);
        let kept = fields[0].1.replace('"', "&#34;").replace('<', "&#60;").replace('>', "&#62;");
        assert!(seen.text.contains(&format!("value=\"{kept}\"")), "{fields:?}: {}", seen.text);
    }
    let nobody = browser.submit("/commands/run", &[("kind", "diag.nvml"), ("node", "<nobody>"), ("key", "k")]).await;
    assert!(nobody.text.contains("there is no node &#60;nobody&#62;"), "{}", nobody.text);
}

#[tokio::test]
async fn a_payload_that_is_too_large_comes_back_to_its_form_with_words() {
    let mut browser = Browser::logged_in().await;
    let node = browser.api.fleet.node().await.to_string();
    // The visitor sees no such kind, so that its payload is one field.
    let huge = format!("{{\"text\": \"{}\"}}", "<x>".repeat(MAX_PAYLOAD / 2));
    let fields = [("kind", "site.none"), ("node", node.as_str()), ("key", "k"), ("payload", huge.as_str())];
    let seen = browser.submit("/commands/run", &fields).await;
    assert_eq!(seen.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", seen.text);
    assert!(seen.text.contains(&format!("must have at most {MAX_PAYLOAD} bytes")), "{}", seen.text);
    assert_eq!(seen.text.matches("&#60;x&#62;").count(), MAX_PAYLOAD / 2, "nothing of it is lost");
    let absurd = "x".repeat(9 * 1024 * 1024);
    let seen = browser.submit("/commands/run", &[("payload", &absurd)]).await;
    assert_eq!(seen.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(seen.text.contains("go back, it is as you left it"), "{}", seen.text);
}

#[tokio::test]
async fn what_was_typed_survives_a_session_that_ended_meanwhile() {
    let mut browser = Browser::logged_in().await;
    let node = browser.api.fleet.node().await.to_string();
    browser.api.kind("diag.nvml").await;
    let form = browser.get(&format!("/commands/run?node={node}&kind=diag.nvml")).await.ok();
    let (csrf, key) = (form.hidden("_csrf").to_owned(), form.hidden("key").to_owned());
    let fields = [
        ("_csrf", csrf.as_str()),
        ("key", &key),
        ("kind", "diag.nvml"),
        ("node", &node),
        ("p.n", "31"),
        ("batchId", "\"><b>"),
    ];
    browser.pass(24 * 3600);
    let login = browser.post("/commands/run", &fields).await;
    assert_eq!((login.status, login.hidden("back")), (StatusCode::UNAUTHORIZED, "/commands/run"));
    assert_eq!((login.hidden("kept.p.n"), login.hidden("kept.batchId")), ("31", "&#34;&#62;&#60;b&#62;"));
    assert!(!login.text.contains(&csrf), "what is the door's is not carried");
    let token = browser.api.token.clone();
    let fields = [
        ("token", token.as_str()),
        ("back", "/commands/run"),
        ("kept.p.n", "31"),
        ("kept.key", &key),
        ("kept.kind", "diag.nvml"),
        ("kept.node", &node),
        ("kept.batchId", "\"><b>"),
    ];
    let again = browser.post("/login", &fields).await.ok();
    assert!(again.text.contains("name=\"p.n\" value=\"31\""), "{}", again.text);
    assert_eq!(again.hidden("key"), key, "so that it is still one command");
    assert!(!again.text.contains(&token));
    let list = json!({ "tenantId": browser.api.tenant(), "nodeId": node });
    assert_eq!(
        browser.api.call("commands.list", list).await.ok()["items"],
        json!([]),
        "nothing is done before it is sent again"
    );
    let csrf = again.hidden("_csrf").to_owned();
    let sent = browser
        .post(
            "/commands/run",
            &[("_csrf", &csrf), ("key", &key), ("kind", "diag.nvml"), ("node", &node), ("p.n", "31")],
        )
        .await;
    assert_eq!(sent.status, StatusCode::SEE_OTHER, "{}", sent.text);
    // A form of the session before this one: refused, and filled in again.
    let old =
        browser.post("/commands/run", &[("_csrf", "old"), ("kind", "diag.nvml"), ("node", &node), ("p.n", "77")]).await;
    assert_eq!(old.status, StatusCode::FORBIDDEN);
    assert!(old.text.contains("name=\"p.n\" value=\"77\""), "{}", old.text);
}

#[tokio::test]
async fn who_may_not_run_sees_no_form_and_is_refused() {
    let mut browser = Browser::new().await;
    let (node, other) = (browser.api.fleet.node().await, browser.api.fleet.node().await);
    browser.api.kind("diag.nvml").await;
    let run = browser.api.call("commands.run", browser.api.ask(&node, "diag.nvml", "a")).await.ok();
    browser.api.call("commands.run", browser.api.ask(&other, "diag.nvml", "b")).await.ok();
    let token = browser.api.token_with("reader", &[("compute:nodes:read", &format!("compute-node/{node}"))]).await;
    browser.log_in(&token).await;
    let list = browser.get("/commands").await.ok();
    assert!(!list.text.contains("/commands/run"), "{}", list.text);
    assert!(
        list.text.contains(run["id"].as_str().expect("an id")) && !list.text.contains(&other.to_string()),
        "{}",
        list.text
    );
    let path = format!("/commands/{node}/{}", run["id"].as_str().expect("an id"));
    let page = browser.get(&path).await.ok();
    assert!(!page.text.contains("/cancel") && !page.text.contains("/commands/run"), "{}", page.text);
    for (seen, words) in [
        (browser.get("/commands/run").await, "compute:nodes:exec on any resource"),
        (browser.submit("/commands/run", &[("kind", "diag.nvml")]).await, "compute:nodes:exec on any resource"),
        (browser.submit(&format!("{path}/cancel"), &[]).await, "compute:nodes:exec on compute-node/"),
    ] {
        assert_eq!(seen.status, StatusCode::FORBIDDEN);
        assert!(seen.text.contains(words), "{}", seen.text);
    }
    let hidden = browser.get(&format!("/commands?node={other}")).await;
    assert_eq!(hidden.status, StatusCode::NOT_FOUND, "{}", hidden.text);
}
