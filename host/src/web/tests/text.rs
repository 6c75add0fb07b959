//! What nodes, kinds and people write is text on every page.

use std::collections::BTreeMap;

use bc_proto::id::NodeId;
use bc_proto::manifest::{Manifest, Role};
use bc_proto::rules::state::Event;
use bc_proto::wire::Stream;
use serde_json::json;

use super::Browser;
use crate::api::tests::component;
use crate::queue::settle;
use crate::queue::settle::Report;
use crate::store::nodes::{self, NewNode};
use crate::store::output::{self, Told};
use crate::testing::{at, greeting, uuid};

/// Would run, or load, if it were no text.
const SCRIPT: &str = "<script>alert(1)</script>";
const IMAGE: &str = "\"><img src=x onerror=alert(1)>";

fn evil() -> String {
    format!("{SCRIPT}{IMAGE}'&lt;")
}

/// A kind whose every word is evil.
fn kind(browser: &Browser) -> Vec<u8> {
    let evil = evil();
    let quoted = serde_json::to_string(&evil).expect("JSON is TOML here");
    let text = format!(
        "name = 'acme.evil'\nversion = '1.0.0'\nsummary = {quoted}\nmodule = 'test'\nlane = 'control'\ntimeout = '1m'\nroles = ['host']\n\
         result = {{}}\n[payload]\ntype = 'object'\nadditionalProperties = false\n[payload.properties.{quoted}]\ntype = 'string'\n\
         description = {quoted}\ndefault = {quoted}\n[payload.properties.choice]\nenum = [{quoted}, 'b']\n",
    );
    assert!(browser.cookie.is_some());
    component::kind(&Manifest::from_toml(&text).expect("a manifest"))
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one field after the other")]
async fn html_in_every_field_that_anybody_sets_is_text() {
    let mut browser = Browser::logged_in().await;
    let evil = evil();
    let node = NodeId::from_uuid(uuid());
    let fleet = &browser.api.fleet;
    let labels = BTreeMap::from([("a".to_owned(), evil.clone())]);
    let new = NewNode { id: node, tenant: fleet.tenant, name: evil.clone(), labels, role: Role::Host };
    nodes::create(&mut *fleet.db().await, new, at(0)).await.expect("a node");
    let component = kind(&browser);
    browser.api.register(component, "?activate=true&exposed=true").await.ok();
    let token = browser.api.token_with(&evil, &[("compute:*", "*")]).await;
    let mut ask = browser.api.ask(&node, "acme.evil", "k");
    ask["payload"] = json!({ evil.as_str(): evil });
    let results = [
        (Event::ReportedSucceeded, "", json!({ "text": evil })),
        (
            Event::ReportedSucceeded,
            "",
            json!({ "status": evil, "summary": evil, "driver": { "version": evil }, "checks": [
            { "name": evil, "gpu": evil, "index": null, "status": evil, "reason": evil },
            { "name": evil, "gpu": null, "index": null, "status": "pass", "reason": null }] }),
        ),
        (
            Event::ReportedSucceeded,
            "",
            json!({ "sections": { evil.as_str(): { "problems": [evil], "data": {
            evil.as_str(): evil, "list": [{ evil.as_str(): evil }] } } } }),
        ),
        (
            Event::ReportedFailed,
            evil.as_str(),
            json!({ "code": evil, "message": evil, "details": [evil],
            "problems": [{ "pointer": evil, "message": evil }],
            "effects": [{ "seq": 0, "name": evil, "args": [evil], "state": { "state": "failed", "reason": evil } }] }),
        ),
    ];
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let mut paths = vec![
        "/commands".to_owned(),
        "/commands/run".to_owned(),
        format!("/commands/run?node={node}&kind=acme.evil"),
        "/settings".to_owned(),
        "/settings/system/commands".to_owned(),
        "/nodes".to_owned(),
        format!("/nodes/{node}"),
        "/kinds".to_owned(),
        "/kinds/acme.evil".to_owned(),
        "/batches".to_owned(),
    ];
    let leaf = json!({ "subject": node.to_string(), "kind": "acme.evil" });
    let batch = json!({ "tenantId": browser.api.tenant(), "reason": evil, "scope": [leaf], "idempotencyKey": "b" });
    let batch = browser.api.call("commandBatches.create", batch).await.ok();
    paths.push(format!("/batches/{}", batch["batchId"].as_str().expect("an id")));
    for (number, (event, reason, result)) in results.into_iter().enumerate() {
        ask["idempotencyKey"] = json!(format!("k{number}"));
        let run = browser.api.call_as(&token, "commands.run", ask.clone()).await.ok();
        let id = run["id"].as_str().expect("an id").to_owned();
        let command = id.parse().expect("an id");
        assert_eq!(browser.api.fleet.claim(&node, epoch, at(101)).await.len(), 1);
        let mut db = browser.api.fleet.db().await;
        let told = Told {
            node,
            epoch,
            command,
            attempt: 1,
            stream: Stream::Stdout,
            at_byte: 0,
            bytes: evil.clone().into_bytes(),
        };
        output::keep(&mut db, &[told]).await.expect("output");
        let report = Report {
            node,
            epoch,
            command,
            event,
            reason: reason.to_owned(),
            result: result.to_string().into_bytes(),
            at: Some(at(102)),
            node_sig: Vec::new(),
            attested_by: None,
        };
        settle(&mut db, &[report], at(103)).await.expect("a result");
        paths.push(format!("/commands/{node}/{id}"));
    }
    for path in &paths {
        let seen = browser.get(path).await.ok();
        assert!(!seen.text.contains("<script>") && !seen.text.contains("<img"), "{path}: {}", seen.text);
        let shown = seen.text.matches("&#60;script&#62;").count();
        let expected = usize::from(!(path.starts_with("/settings") || path == "/commands/run"));
        assert!(shown >= expected, "{path} hides it: {}", seen.text);
        if path.contains("cmd_") {
            assert!(seen.text.contains("<span class=\"stdout\">&#60;script"), "{path}: its output: {}", seen.text);
        }
    }
    // What is sent by the browser itself, in an address or a form.
    let encoded: String = form_urlencoded::byte_serialize(evil.as_bytes()).collect();
    for field in ["node", "kind", "state", "batch", "gateway", "cursor"] {
        let seen = browser.get(&format!("/commands?{field}={encoded}")).await;
        assert!(!seen.text.contains("<script>") && !seen.text.contains("<img"), "{field}: {}", seen.text);
    }
    for path in [
        format!("/login?back={encoded}"),
        format!("/settings/system/commands?gateway={encoded}"),
        format!("/{encoded}"),
        format!("/nodes?name={encoded}&label={encoded}"),
        format!("/nodes/{encoded}"),
        format!("/kinds/{encoded}"),
        format!("/batches?state={encoded}"),
        format!("/batches/propose?reason={encoded}&nodes={encoded}"),
        format!("/events?topic={encoded}&node={encoded}"),
        format!("/audit?end={encoded}"),
    ] {
        let seen = browser.get(&path).await;
        assert!(!seen.text.contains("<script>") && !seen.text.contains("<img"), "{path}: {}", seen.text);
    }
    browser.cookie = None;
    let seen = browser.post("/commands/run", &[(&evil, &evil), ("_back", &evil)]).await;
    assert!(!seen.text.contains("<script>") && !seen.text.contains("<img"), "{}", seen.text);
}
