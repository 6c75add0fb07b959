//! The list, one command, and what is written while it runs.

use axum::http::StatusCode;
use bc_proto::manifest::Lane;
use bc_proto::wire::Stream;
use serde_json::{Value, json};

use super::Browser;
use crate::api::tests::cancel::in_every_state;
use crate::store::output::{self, Told};
use crate::testing::{at, greeting};

/// The ids of commands on a page, in order.
fn ids(text: &str) -> Vec<String> {
    let cells = text.split("class=\"mono\">cmd_").skip(1);
    cells.map(|rest| format!("cmd_{}", rest.split('<').next().unwrap_or_default())).collect()
}

fn next(text: &str) -> Option<String> {
    let (before, _) = text.split_once("\" rel=\"next\"")?;
    Some(before.rsplit("href=\"").next()?.replace("&#38;", "&"))
}

#[tokio::test]
async fn pages_of_the_list_hold_each_command_of_all_nodes_once_newest_first() {
    let mut browser = Browser::logged_in().await;
    let kind = browser.api.fleet.kind(Lane::Control, &[]).await;
    let nodes = [browser.api.fleet.node().await, browser.api.fleet.node().await];
    let mut expected = Vec::new();
    for number in 0..120 {
        expected.push(browser.api.fleet.enqueue(&nodes[number % 2], kind).await.id.to_string());
    }
    expected.reverse();
    let (mut seen, mut path) = (Vec::new(), Some("/commands".to_owned()));
    let mut pages = 0;
    while let Some(at) = path {
        let page = browser.get(&at).await.ok();
        assert_eq!(page.text.contains("data-live=\"/live?after="), pages == 0, "the newest page alone is live");
        seen.extend(ids(&page.text));
        path = next(&page.text);
        pages += 1;
    }
    assert_eq!((seen, pages), (expected, 3));
}

#[tokio::test]
async fn the_list_is_narrowed_by_node_kind_state_and_batch() {
    let mut browser = Browser::logged_in().await;
    let (node, commands) = in_every_state(&browser.api).await;
    let other = browser.api.fleet.node().await;
    browser.api.kind("diag.nvml").await;
    let run = browser.api.call("commands.run", browser.api.ask(&other, "diag.nvml", "k")).await.ok();
    let run = run["id"].as_str().expect("an id").to_owned();
    for (state, id) in &commands {
        let page = browser.get(&format!("/commands?state={state}")).await.ok();
        assert!(ids(&page.text).contains(&id.to_string()), "{state}: {}", page.text);
        let both = browser.get(&format!("/commands?state={state}&node={node}&kind=test.control")).await.ok();
        assert_eq!(ids(&both.text), [id.to_string()], "{state}");
        let detail = browser.get(&format!("/commands/{node}/{id}")).await.ok();
        assert_eq!(detail.text.contains("/cancel\""), !state.is_terminal(), "{state}: {}", detail.text);
    }
    assert_eq!(ids(&browser.get(&format!("/commands?node={other}")).await.ok().text), [run.as_str()]);
    assert_eq!(ids(&browser.get("/commands?kind=diag.nvml").await.ok().text), [run.as_str()]);
    let empty = browser.get("/commands?batch=batch_01h455vb4pex5vsknk084sn02q").await.ok();
    assert!(empty.text.contains("There are no such commands"), "{}", empty.text);
    for (path, status, words) in [
        ("/commands?state=flying", StatusCode::BAD_REQUEST, "state: must be one of"),
        ("/commands?cursor=x", StatusCode::BAD_REQUEST, "must be nextCursor"),
        ("/commands?gateway=berlin-1", StatusCode::NOT_FOUND, "there is no gateway berlin-1"),
        ("/commands?node=gpu-17", StatusCode::NOT_FOUND, "there is no node gpu-17"),
    ] {
        let seen = browser.get(path).await;
        assert_eq!(seen.status, status, "{path}");
        assert!(seen.text.contains(words) && seen.text.contains("<form class=\"filters\""), "{path}: {}", seen.text);
    }
}

#[tokio::test]
async fn output_is_shown_and_followed_from_the_byte_where_the_page_ends() {
    let mut browser = Browser::logged_in().await;
    let fleet = &browser.api.fleet;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let command = fleet.enqueue(&node, kind).await.id;
    assert_eq!(fleet.claim(&node, epoch, at(1)).await.len(), 1);
    let bytes = "step 1 ✓\nstep 2 ✓\n".as_bytes();
    let cut = "step 1 ".len() + 1;
    let told = |from: usize, to: usize| Told {
        node,
        epoch,
        command,
        attempt: 1,
        stream: Stream::Stdout,
        at_byte: from as u64,
        bytes: bytes[from..to].to_vec(),
    };
    output::keep(&mut *fleet.db().await, &[told(0, cut)]).await.expect("output");
    let page = browser.get(&format!("/commands/{node}/{command}")).await.ok();
    assert!(page.text.contains("<span class=\"stdout\">step 1 </span>"), "whole characters alone: {}", page.text);
    assert!(page.text.contains("data-attempt=\"1\" data-stdout=\"7\" data-stderr=\"0\""), "{}", page.text);
    output::keep(&mut *browser.api.fleet.db().await, &[told(cut, bytes.len())]).await.expect("output");
    let path = format!("/commands/{node}/{command}/output?attempt=1&stdout=7&stderr=0");
    let more: Value = serde_json::from_str(&browser.get(&path).await.ok().text).expect("JSON");
    assert_eq!(more["next"], json!({ "attempt": 1, "stdout": bytes.len(), "stderr": 0 }));
    assert_eq!((&more["pieces"][0]["offset"], &more["isOver"]), (&json!(7), &json!(false)));
    let wrong = browser.get(&format!("/commands/{node}/{command}/output?stdout=x")).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}
