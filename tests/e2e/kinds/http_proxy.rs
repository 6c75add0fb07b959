//! `site.httpProxy` and the door that its requests go through.

use bc_runtime::Outcome;
use bc_runtime::effect::State;
use bc_tests::bmc::{Bmc, Quirks};
use serde_json::json;

use super::remote::{CREDENTIALS, code, plan, result, run};

#[tokio::test]
async fn one_request_is_put_and_its_answer_handed_on_without_secrets() {
    let quirks = Quirks { credentials: Some(CREDENTIALS.into()), ..Quirks::default() };
    let server = Bmc::start("On", quirks).await;
    let url = format!("{}/redfish/v1/Systems/1?a=b", server.origin());
    let payload = json!({ "url": url, "headers": { "Accept": "x/y" }, "secretRefs": { "credentials": "bmc" } });
    let report = run("site.httpProxy", &[server.origin()], payload).await;
    let result = result(&report);
    assert_eq!((&result["status"], &result["truncated"]), (&json!(200), &json!(false)));
    assert!(result["headers"]["etag"].is_string() && result["headers"].get("set-cookie").is_none(), "{result}");
    let text = result["body"]["text"].as_str().expect("text");
    assert!(text.contains("PowerState"), "{text}");
    let seen = &server.seen()[0];
    assert_eq!((seen.path.as_str(), seen.headers["accept"].to_str().ok()), ("/redfish/v1/Systems/1?a=b", Some("x/y")));
}

#[tokio::test]
async fn promise_22_a_redirect_is_a_request_of_its_own_that_the_policy_must_allow() {
    let inner = Bmc::start("On", Quirks::default()).await;
    let elsewhere = format!("{}/redfish/v1", inner.origin());
    let outer = Bmc::start("On", Quirks { redirects_to: Some(elsewhere.clone()), ..Quirks::default() }).await;
    let payload = |redirects: u32| json!({ "url": format!("{}/x", outer.origin()), "maxRedirects": redirects, "secretRefs": { "credentials": "bmc" } });
    let report = run("site.httpProxy", &[outer.origin()], payload(0)).await;
    assert_eq!((&result(&report)["status"], &result(&report)["headers"]["location"]), (&json!(302), &json!(elsewhere)));
    let report = run("site.httpProxy", &[outer.origin()], payload(3)).await;
    let Outcome::Denied { message } = &report.outcome else { panic!("{}", report.outcome) };
    assert!(message.contains(inner.origin()), "{message}");
    assert_eq!(inner.seen().len(), 0);
    let report = run("site.httpProxy", &[outer.origin(), inner.origin()], payload(3)).await;
    assert_eq!(result(&report)["redirects"], json!([elsewhere]));
    assert!(inner.seen()[0].headers.get("authorization").is_none(), "the credentials were for the other server");
}

#[tokio::test]
async fn a_kind_cannot_say_who_is_asked_as_whom_or_where_the_message_ends() {
    let server = Bmc::start("On", Quirks::default()).await;
    for name in [
        "Authorization",
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Proxy-Authorization",
        "better-compute-x",
    ] {
        let payload = json!({ "url": server.origin(), "headers": { name: "1" } });
        let report = run("site.httpProxy", &[server.origin()], payload).await;
        assert_eq!(code(&report), "request-refused", "{name}");
    }
    let payload = json!({ "url": server.origin(), "headers": { "x": "a\r\nHost: b" } });
    assert_eq!(code(&run("site.httpProxy", &[server.origin()], payload).await), "request-refused");
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn an_answer_is_cut_at_the_size_that_was_asked_for() {
    let server = Bmc::start("On", Quirks { endless: true, ..Quirks::default() }).await;
    let payload = json!({ "url": server.origin(), "maxBytes": 1000 });
    let report = run("site.httpProxy", &[server.origin()], payload).await;
    let result = result(&report);
    assert_eq!((result["body"]["text"].as_str().map(str::len), &result["truncated"]), (Some(1000), &json!(true)));
}

#[tokio::test]
async fn a_time_limit_is_kept_and_a_plan_sends_nothing_that_changes() {
    let server = Bmc::start("On", Quirks { hangs_on_actions: true, ..Quirks::default() }).await;
    let payload = json!({ "method": "POST", "url": server.origin(), "body": "{}", "timeoutMs": 300 });
    let report = plan("site.httpProxy", &[server.origin()], payload.clone()).await;
    assert_eq!((&result(&report)["planned"], report.effects.len(), server.seen().len()), (&json!(true), 1, 0));
    let report = run("site.httpProxy", &[server.origin()], payload).await;
    assert_eq!((code(&report), server.seen().len()), ("timeout", 1));
    assert_eq!(report.effects[0].state, State::Ambiguous, "nobody knows what the server made of it");
}
