//! Nodes, batches, kinds, events and the log.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use bc_proto::id::NodeId;
use bc_proto::manifest::Role;

use super::Browser;
use crate::api::tests::component;
use crate::store::nodes::{self, NewNode};
use crate::testing::{at, uuid};

/// A node with a name and labels.
async fn node(browser: &Browser, name: &str, labels: &[(&str, &str)], role: Role) -> NodeId {
    let fleet = &browser.api.fleet;
    let labels: BTreeMap<_, _> = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let id = NodeId::from_uuid(uuid());
    let new = NewNode { id, tenant: fleet.tenant, name: name.to_owned(), labels, role };
    nodes::create(&mut *fleet.db().await, new, at(0)).await.expect("a node");
    id
}

/// The names of the nodes on a page.
fn names(text: &str) -> Vec<String> {
    let cells = text.split("<th scope=\"row\"><a href=\"/nodes/").skip(1);
    cells.filter_map(|rest| Some(rest.split_once('>')?.1.split('<').next()?.to_owned())).collect()
}

fn next(text: &str) -> Option<String> {
    let (before, _) = text.split_once("\" rel=\"next\"")?;
    Some(before.rsplit("href=\"").next()?.replace("&#38;", "&"))
}

#[tokio::test]
async fn nodes_are_narrowed_by_name_label_role_and_session_and_each_is_on_one_page() {
    let mut browser = Browser::logged_in().await;
    for number in 0..120 {
        let rack = (number % 2).to_string();
        let role = if number % 3 == 0 { Role::Site } else { Role::Host };
        node(&browser, &format!("gpu-{number:03}"), &[("rack", &rack)], role).await;
    }
    let (mut seen, mut path) = (Vec::new(), Some("/nodes".to_owned()));
    while let Some(at) = path {
        let page = browser.get(&at).await.ok();
        seen.extend(names(&page.text));
        path = next(&page.text);
    }
    assert_eq!(seen, (0..120).map(|number| format!("gpu-{number:03}")).collect::<Vec<_>>());
    for (query, expected) in [
        ("name=gpu-007", vec!["gpu-007"]),
        ("name=gpu-00&label=rack%3D1&role=site", vec!["gpu-003", "gpu-009"]),
        ("name=gpu-11&role=site&session=offline", vec!["gpu-111", "gpu-114", "gpu-117"]),
        ("session=connected", vec![]),
    ] {
        assert_eq!(names(&browser.get(&format!("/nodes?{query}")).await.ok().text), expected, "{query}");
    }
    let wrong = browser.get("/nodes?label=rack").await;
    assert!(
        wrong.text.contains("write name=value") && wrong.text.contains("<form class=\"filters\""),
        "{}",
        wrong.text
    );
}

#[tokio::test]
async fn a_node_is_found_by_id_and_by_name_and_what_is_not_there_is_a_page_that_says_so() {
    let mut browser = Browser::logged_in().await;
    let id = node(&browser, "gpu-17", &[], Role::Host).await;
    for word in [id.to_string(), "gpu-17".to_owned()] {
        let page = browser.get(&format!("/nodes/{word}")).await.ok();
        assert!(page.text.contains(&id.to_string()) && page.text.contains("it never had one"), "{}", page.text);
    }
    for path in ["/nodes/gpu-18", "/kinds/no.such", "/batches/batch_01h455vb4pex5vsknk084sn02q", "/audit/0"] {
        let seen = browser.get(path).await;
        assert_eq!(seen.status, StatusCode::NOT_FOUND, "{path}: {}", seen.text);
    }
}

#[tokio::test]
async fn a_batch_is_proposed_once_however_often_its_form_is_sent_and_its_form_keeps_what_was_typed() {
    let mut browser = Browser::logged_in().await;
    let id = node(&browser, "gpu-17", &[], Role::Host).await;
    browser.api.kind("diag.nvml").await;
    let typed = [("reason", "rack 7 goes"), ("nodes", "gpu-17"), ("kinds", "diag.nvml"), ("hours", "2"), ("key", "k")];
    let bad = [&typed[..1], &[("nodes", "gpu-18"), ("kinds", "x"), ("payload", "{")]].concat();
    let wrong = browser.submit("/batches/propose", &bad).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{}", wrong.text);
    for words in ["there is no node gpu-18", "is no JSON", "value=\"rack 7 goes\"", "gpu-18</textarea>"] {
        assert!(wrong.text.contains(words), "{words}: {}", wrong.text);
    }
    let first = browser.submit("/batches/propose", &typed).await;
    let again = browser.submit("/batches/propose", &typed).await;
    assert_eq!((first.status, first.location()), (StatusCode::SEE_OTHER, again.location()), "{}", first.text);
    let path = first.location().to_owned();
    let page = browser.get(&path).await.ok();
    assert!(page.text.contains("gpu-17") && page.text.contains(&id.to_string()), "{}", page.text);
    assert!(page.text.contains("What is shown here is what approvers sign"), "{}", page.text);
    assert!(!page.text.to_lowercase().contains("approve</button>"), "nothing here approves");
    let rejected = browser.submit(&format!("{path}/reject"), &[("reason", "not today")]).await;
    assert_eq!(rejected.location(), path);
    let page = browser.get(&path).await.ok();
    assert!(page.text.contains("not today") && !page.text.contains("id=\"reject\""), "{}", page.text);
}

#[tokio::test]
async fn who_may_not_sees_no_offer_and_is_refused() {
    let mut browser = Browser::logged_in().await;
    node(&browser, "gpu-17", &[], Role::Host).await;
    let token = browser.api.token_with("reader", &[("compute:nodes:read", "*"), ("compute:batches:read", "*")]).await;
    browser.cookie = None;
    browser.log_in(&token).await;
    let list = browser.get("/batches").await.ok();
    assert!(!list.text.contains("/batches/propose"), "{}", list.text);
    for path in ["/batches/propose", "/events", "/audit"] {
        assert_eq!(browser.get(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    let sent = browser.submit("/batches/propose", &[("reason", "r"), ("nodes", "gpu-17"), ("kinds", "k")]).await;
    assert_eq!(sent.status, StatusCode::FORBIDDEN, "{}", sent.text);
    let page = browser.get("/nodes/gpu-17").await.ok();
    assert!(!page.text.contains("/commands/run"), "{}", page.text);
}

#[tokio::test]
async fn a_kind_shows_both_versions_and_what_one_may_do_that_the_other_may_not() {
    let mut browser = Browser::logged_in().await;
    for (version, more) in [("1.0.0", ""), ("1.1.0", "[capabilities]\nnvml = {}\n")] {
        let component = component::kind(&component::manifest("acme.two", version, more));
        let sent = browser.api.register(component, "?activate=true&exposed=true&acceptWider=true").await;
        sent.ok();
    }
    let page = browser.get("/kinds/acme.two").await.ok();
    assert!(page.text.contains("1.0.0") && page.text.contains("ask the GPUs&#39; driver"), "{}", page.text);
    assert!(page.text.contains("grants.&#34;acme.two&#34;.nvml"), "{}", page.text);
    let wider = browser.get("/kinds/acme.two?from=1.0.0&to=1.1.0").await.ok();
    assert!(wider.text.contains("+ capabilities") && wider.text.contains("--accept-wider"), "{}", wider.text);
    let narrower = browser.get("/kinds/acme.two?from=1.1.0&to=1.0.0").await.ok();
    assert!(narrower.text.contains("- capabilities") && !narrower.text.contains("--accept-wider"), "{}", narrower.text);
    let unknown = browser.get("/kinds/acme.two?from=1.0.0&to=9.9.9").await.ok();
    assert!(unknown.text.contains("is not registered"), "{}", unknown.text);
}

#[tokio::test]
async fn events_are_newest_first_narrowed_by_topic_and_older_ones_are_behind_a_link() {
    let mut browser = Browser::logged_in().await;
    let id = node(&browser, "gpu-17", &[], Role::Host).await;
    browser.api.kind("diag.nvml").await;
    let mut expected = Vec::new();
    for number in 0..120 {
        let run = browser.api.call("commands.run", browser.api.ask(&id, "diag.nvml", &format!("k{number}"))).await.ok();
        expected.push(run["id"].as_str().expect("an id").to_owned());
    }
    expected.reverse();
    let ids = |text: &str| -> Vec<String> {
        let links = text.split("\">cmd_").skip(1);
        links.map(|rest| format!("cmd_{}", rest.split('<').next().unwrap_or_default())).collect()
    };
    let first = browser.get("/events").await.ok();
    assert!(first.text.contains("data-live=\"/live?after="), "the newest page is live");
    assert_eq!(ids(&first.text), expected[..100]);
    let older = browser.get(&next(&first.text).expect("older ones")).await.ok();
    assert_eq!(ids(&older.text), expected[100..]);
    let none = browser.get("/events?topic=command.settled").await.ok();
    assert!(ids(&none.text).is_empty() && none.text.contains("There are no such events"), "{}", none.text);
    let some = browser.get("/events?topic=node.command.queued&node=gpu-17").await.ok();
    assert_eq!(ids(&some.text).len(), 100);
    for path in ["/events?before=x", "/events?node=gpu-18"] {
        assert!(browser.get(path).await.text.contains("role=\"alert\""), "{path}");
    }
}
