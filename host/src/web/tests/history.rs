//! Settings → System → Commands: what gateways' runners did.

use axum::http::StatusCode;
use bc_proto::id::NodeId;
use bc_proto::manifest::{Manifest, Role};
use serde_json::json;
use sqlx::Row as _;
use sqlx::types::Uuid;

use super::Browser;
use crate::store::{kinds, nodes, runners};
use crate::testing::{at, uuid};

async fn gateway(browser: &Browser, slug: &str) -> NodeId {
    let fleet = &browser.api.fleet;
    let id = NodeId::from_uuid(uuid());
    let new = nodes::NewNode { id, tenant: fleet.tenant, name: slug.into(), labels: [].into(), role: Role::Gateway };
    let mut db = fleet.db().await;
    nodes::create(&mut db, new, at(0)).await.expect("a node");
    assert!(runners::assign(&mut db, id, slug).await.expect("a gateway"));
    id
}

/// Queues an action as a program with a connection does.
async fn insert(browser: &Browser, slug: &str, action: &str, by: &str) -> Uuid {
    let sql = "insert into agent_commands (gateway_slug, action, payload, requested_by) values ($1, $2, '{}', $3) returning id";
    let id = sqlx::query_scalar(sql).bind(slug).bind(action).bind(by).fetch_one(&browser.api.fleet.pool);
    id.await.expect("it is queued")
}

/// Leases the next one, and ends it.
async fn run(browser: &Browser, slug: &str, end: &str) {
    let pool = &browser.api.fleet.pool;
    let leased = sqlx::query("select id, lease_token from lease_command($1, 600)")
        .bind(slug)
        .fetch_one(pool)
        .await
        .expect("one");
    let (id, token): (Uuid, i64) = (leased.get("id"), leased.get("lease_token"));
    for call in ["select 1 from start_command($1, $2)", end] {
        let call = sqlx::query(sqlx::AssertSqlSafe(call.to_owned())).bind(id).bind(token);
        call.fetch_one(pool).await.expect("the lease counts");
    }
}

#[tokio::test]
async fn the_history_shows_what_each_runner_did_with_output_exit_code_error_times_and_who() {
    let mut browser = Browser::logged_in().await;
    let text = "name = 'runner.action'\nversion = '1.0.0'\nsummary = 'x'\nmodule = 'runner'\nlane = 'control'\n\
                timeout = '1m'\nroles = ['gateway']\npayload = { type = 'object' }\nresult = {}";
    let manifest = Manifest::from_toml(text).expect("the test's manifest is right");
    kinds::activate(&mut *browser.api.fleet.db().await, [9; 32], &manifest, b"\0asm", at(0)).await.expect("a kind");
    let berlin = gateway(&browser, "berlin-1").await;
    gateway(&browser, "paris-1").await;
    let empty = browser.get("/settings/system/commands").await.ok();
    assert!(empty.text.contains("No gateway's runner had a command"), "{}", empty.text);
    let done = insert(&browser, "berlin-1", "add-agent", "ann <b>").await;
    run(&browser, "berlin-1", "select 1 from complete_command($1, 0, 'made it <script>', 'a warning', $2)").await;
    let failed = insert(&browser, "berlin-1", "restart", "bob").await;
    run(&browser, "berlin-1", "select 1 from fail_command($1, 17, '', 'it broke', 'no such agent', $2)").await;
    let waiting = insert(&browser, "paris-1", "approve-pairing", "eve").await;
    // Of a node with a session: it is none of theirs.
    let node = browser.api.fleet.node().await;
    browser.api.kind("diag.nvml").await;
    browser.api.call("commands.run", browser.api.ask(&node, "diag.nvml", "k")).await.ok();

    let page = browser.get("/settings/system/commands").await.ok();
    for words in [
        "add-agent",
        "ann &#60;b&#62;",
        "made it &#60;script&#62;",
        "a warning",
        ">done<",
        "leased by postgres",
        "finished <time",
        "restart",
        "it broke",
        "no such agent",
        ">17<",
        ">failed<",
        "approve-pairing",
        ">pending<",
    ] {
        assert!(page.text.contains(words), "{words}: {}", page.text);
    }
    assert!(!page.text.contains("diag.nvml") && !page.text.contains("<script>"), "{}", page.text);
    let paths: Vec<_> =
        page.text.split("<td data-name=\"Action\"><a href=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
    assert_eq!(paths.len(), 3);
    for path in paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>() {
        browser.get(&path).await.ok();
    }
    let one = browser.get("/settings/system/commands?gateway=paris-1").await.ok();
    assert!(one.text.contains("approve-pairing") && !one.text.contains("restart"), "{}", one.text);
    let unknown = browser.get("/settings/system/commands?gateway=rome-1").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let list = browser.get("/commands?gateway=berlin-1").await.ok();
    assert_eq!(list.text.matches("class=\"mono\">cmd_").count(), 2, "{}", list.text);
    let api = browser
        .api
        .call("runners.history", json!({ "tenantId": browser.api.tenant(), "gateway": "berlin-1" }))
        .await
        .ok();
    let ids: Vec<_> = api["items"].as_array().expect("a list").iter().map(|it| it["exitCode"].clone()).collect();
    assert_eq!(ids, [json!(17), json!(0)]);
    assert!(![done, failed, waiting].contains(&Uuid::nil()));

    let token = browser.api.token_with("elsewhere", &[("compute:nodes:read", &format!("compute-node/{node}"))]).await;
    let seen = browser.api.call_as(&token, "runners.history", json!({ "tenantId": browser.api.tenant() })).await.ok();
    assert_eq!(seen["items"], json!([]), "nothing of {berlin}");
}
