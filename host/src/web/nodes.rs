//! `/nodes` and `/nodes/{node}`: the tenant's machines, and what is known of one.
//!
//! **Invariant:** what a node says of itself is shown as its word, and its credits are counted from what is outstanding.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::http::Uri;
use axum::routing::get;
use bc_proto::id::NodeId;
use bc_proto::rules::lane::LIMITS;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::commands;
use super::commands::list::Row as CommandRow;
use super::page::{self, Answer, Page};
use super::query;
use super::visitor::Visitor;
use crate::api::auth::NODES_EXEC;
use crate::api::error::Failure;
use crate::api::types::{self, ListNodes, NodeCertificates, NodeRef, Remediations};
use crate::store::conditions;
use crate::words::{distance, instant, moment};

/// How many nodes a page of the list looks for, and how many it asks for at once.
const LIMIT: usize = 50;

/// How many pages of the API one page of the list reads at most, where filters leave few.
const MAX_READS: usize = 20;

/// How many commands the history of a node shows; all of them stand in the list of commands.
const HISTORY: u32 = 20;

/// Their paths.
pub(super) fn routes() -> Router {
    Router::new().route("/nodes", get(list)).route("/nodes/{node}", get(show))
}

/// Where a node is shown.
pub(crate) fn path(node: &str) -> String {
    format!("/nodes/{}", query::encoded(node))
}

#[derive(Template)]
#[template(path = "nodes.html")]
struct List<'a> {
    page: Page,
    filters: BTreeMap<&'static str, &'a str>,
    roles: [&'static str; 4],
    rows: Vec<Row>,
    problem: String,
    first: Option<String>,
    next: Option<String>,
}

/// A node's line.
struct Row {
    path: String,
    node: types::Node,
    conditions: Vec<String>,
    labels: Vec<String>,
    seen: String,
}

/// `GET /nodes`
async fn list(visitor: Visitor, uri: Uri) -> Answer {
    let asked = query::read(&uri);
    let cursor = asked.text("cursor");
    let mut page = Page::new(&visitor, "nodes", "Nodes");
    if cursor.is_none() {
        page = Page::live(&visitor, "nodes", "Nodes", &[]).await?;
    }
    let filters: BTreeMap<_, _> =
        ["name", "label", "role", "session"].map(|name| (name, asked.text(name).unwrap_or_default())).into();
    let (labels, mut problem) = match labels(filters["label"]) {
        Ok(labels) => (labels, String::new()),
        Err(why) => (BTreeMap::new(), why),
    };
    let wanted = |node: &types::Node| {
        let session = if node.connected { "connected" } else { "offline" };
        node.name.contains(filters["name"])
            && (filters["role"].is_empty() || node.role == filters["role"])
            && (filters["session"].is_empty() || session == filters["session"])
    };
    let mut found: Vec<types::Node> = Vec::new();
    let mut next = cursor.map(str::to_owned);
    for _ in 0..MAX_READS {
        let ask = ListNodes {
            tenant_id: visitor.tenant(),
            labels: labels.clone(),
            limit: u32::try_from(LIMIT).ok(),
            cursor: next.take(),
        };
        match visitor.call::<types::Page<types::Node>>("nodes.list", &ask).await {
            Ok(piece) => {
                found.extend(piece.items.into_iter().filter(wanted));
                next = piece.next_cursor;
            }
            Err(failure) if failure.status() == axum::http::StatusCode::BAD_REQUEST => problem = failure.0.message,
            Err(failure) => return Err(failure.into()),
        }
        if next.is_none() || found.len() >= LIMIT {
            break;
        }
    }
    if !problem.is_empty() {
        found.clear();
    }
    let with = |cursor: &str| {
        let fields = filters.iter().map(|(name, value)| (*name, *value)).chain([("cursor", cursor)]);
        query::path("/nodes", fields)
    };
    page::html(&List {
        rows: rows(&visitor, found).await?,
        first: cursor.map(|_| with("")),
        next: next.as_deref().map(with),
        roles: ["host", "ramdisk", "site", "gateway"],
        page,
        problem,
        filters,
    })
}

/// `rack=7 tier=a` as labels.
fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pair = |word: &str| {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("label: write name=value, not {word}"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    text.split_whitespace().map(pair).collect()
}

/// Nodes that the API showed, with their conditions, which its list leaves out.
async fn rows(visitor: &Visitor, found: Vec<types::Node>) -> Result<Vec<Row>, Failure> {
    let now = visitor.app().now();
    let mut db = visitor.app().db().await?;
    let mut rows = Vec::new();
    for node in found {
        let mut conditions = Vec::new();
        if let Ok(id) = node.id.parse::<NodeId>() {
            conditions.extend(conditions::of(&mut db, id).await?.into_iter().map(|it| it.kind));
        }
        conditions.dedup();
        rows.push(Row {
            path: path(&node.id),
            labels: written(&node.labels),
            seen: node.last_hello_at.map(|at| distance(at, now)).unwrap_or_default(),
            conditions,
            node,
        });
    }
    Ok(rows)
}

fn written(labels: &BTreeMap<String, String>) -> Vec<String> {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[derive(Template)]
#[template(path = "node.html")]
struct Detail {
    page: Page,
    node: types::Node,
    labels: Vec<String>,
    session: String,
    lanes: Vec<Lane>,
    conditions: Vec<(types::Condition, String)>,
    hold: String,
    quarantine: String,
    inventory: Option<Inventory>,
    certificates: Vec<Certificate>,
    remediations: Vec<Remediation>,
    kinds: Vec<(types::LoadedKind, String)>,
    rows: Vec<CommandRow>,
    all: String,
    run: Option<String>,
    created: String,
}

/// How much of a lane is in use.
struct Lane {
    name: &'static str,
    used: u32,
    free: u32,
    limit: u32,
}

/// What the node last said that it is made of.
struct Inventory {
    path: String,
    age: String,
    lines: Vec<(String, String)>,
}

struct Certificate {
    it: types::NodeCertificate,
    state: &'static str,
    from: String,
    until: String,
}

struct Remediation {
    it: types::Remediation,
    path: String,
    times: String,
}

/// `GET /nodes/{node}`, by id or by name.
async fn show(visitor: Visitor, Path(word): Path<String>) -> Answer {
    let id = commands::list::node(&visitor, &word).await?;
    let mut page = Page::live(&visitor, "nodes", "", &[("nodeId", &id)]).await?;
    let reference = NodeRef { tenant_id: visitor.tenant(), node_id: id.clone() };
    let node: types::Node = visitor.call("nodes.get", &reference).await?;
    page.title.clone_from(&node.name);
    let now = visitor.app().now();
    let certificates: NodeCertificates = visitor.call("nodes.certificates", &reference).await?;
    let about = json!({ "tenantId": visitor.tenant(), "nodeId": id, "limit": HISTORY });
    let remediations: Remediations = visitor.call("remediations.list", &about).await?;
    let history: types::Page<types::Command> = visitor.call("commands.list", &about).await?;
    let detail = Detail {
        labels: written(&node.labels),
        session: session(&node, now),
        lanes: lanes(&visitor, &id).await?,
        conditions: node.conditions.iter().map(|it| (it.clone(), distance(it.since, now))).collect(),
        hold: node.remediation_hold.as_ref().map(|it| hold(it, now)).unwrap_or_default(),
        quarantine: node.quarantine.as_ref().map(|it| apart(it, now)).unwrap_or_default(),
        inventory: inventory(&visitor, &id, now).await?,
        certificates: certificates.items.into_iter().map(|it| certificate(it, now)).collect(),
        remediations: remediations.items.into_iter().map(|it| remediation(it, now)).collect(),
        kinds: node.kinds.iter().map(|it| (it.clone(), super::kinds::path(&it.name))).collect(),
        rows: commands::list::rows(&visitor, &history.items).await?,
        all: query::path("/commands", [("node", id.as_str())]),
        run: visitor
            .may(NODES_EXEC, &format!("compute-node/{id}"))
            .then(|| query::path("/commands/run", [("node", node.name.as_str())])),
        created: moment(Some(node.created_at), now),
        page,
        node,
    };
    page::html(&detail)
}

fn session(node: &types::Node, now: OffsetDateTime) -> String {
    match (node.connected, node.last_hello_at) {
        (true, at) => format!("epoch {}, since {}", node.session_epoch, moment(at, now)),
        (false, Some(at)) => format!("the last one, epoch {}, began {}", node.session_epoch, moment(Some(at), now)),
        (false, None) => "it never had one".to_owned(),
    }
}

fn hold(hold: &types::RemediationHold, now: OffsetDateTime) -> String {
    format!("{} is left alone: {}, since {}", hold.ailment, hold.why, moment(Some(hold.since), now))
}

fn apart(quarantine: &types::Quarantine, now: OffsetDateTime) -> String {
    let workflow = quarantine.workflow_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    format!("{}, by {}{workflow}, since {}", quarantine.reason, quarantine.by, moment(Some(quarantine.since), now))
}

/// What is outstanding on the node by lane.
async fn lanes(visitor: &Visitor, node: &str) -> Result<Vec<Lane>, Failure> {
    let mut lanes = [("control", LIMITS.control), ("provision", LIMITS.provision), ("bulk", LIMITS.bulk)]
        .map(|(name, limit)| Lane { name, used: 0, free: limit, limit });
    for state in ["dispatched", "acked", "running"] {
        let ask = json!({ "tenantId": visitor.tenant(), "nodeId": node, "state": state, "limit": 200 });
        let found: types::Page<types::Command> = visitor.call("commands.list", &ask).await?;
        for command in &found.items {
            for lane in lanes.iter_mut().filter(|lane| lane.name == command.lane) {
                lane.used += 1;
                lane.free = lane.limit.saturating_sub(lane.used);
            }
        }
    }
    Ok(lanes.into())
}

/// The newest inventory that the node answered with.
async fn inventory(visitor: &Visitor, node: &str, now: OffsetDateTime) -> Result<Option<Inventory>, Failure> {
    let ask = json!({ "tenantId": visitor.tenant(), "nodeId": node, "kind": "inventory.refresh", "state": "succeeded",
        "limit": 1 });
    let mut found: types::Page<types::Command> = visitor.call("commands.list", &ask).await?;
    let Some(command) = found.items.pop() else { return Ok(None) };
    let sections = command.result.as_ref().and_then(|it| it["sections"].as_object());
    let lines = sections.into_iter().flatten().map(|(name, section)| (name.clone(), summary(section))).collect();
    Ok(Some(Inventory {
        path: commands::path(&command.node_id, &command.id),
        age: distance(command.settled_at.unwrap_or(command.created_at), now),
        lines,
    }))
}

/// What a section holds, in a line.
fn summary(section: &Value) -> String {
    let fact = |(name, value): (&String, &Value)| match value {
        Value::Null | Value::Object(_) => None,
        Value::Array(items) => Some(format!("{name}: {}", items.len())),
        Value::String(text) => Some(format!("{name} {text}")),
        other => Some(format!("{name} {other}")),
    };
    let mut line = match &section["data"] {
        Value::Array(items) => format!("{} of them", items.len()),
        Value::Object(facts) => facts.iter().filter_map(fact).take(6).collect::<Vec<_>>().join(", "),
        _ => "not read".to_owned(),
    };
    match section["problems"].as_array().map_or(0, Vec::len) {
        0 => {}
        problems => line = format!("{line}; problems: {problems}"),
    }
    line
}

fn certificate(it: types::NodeCertificate, now: OffsetDateTime) -> Certificate {
    let state = match it.revoked_at {
        Some(_) => "revoked",
        None if it.not_after < now => "expired",
        None => "active",
    };
    Certificate { state, from: instant(it.not_before), until: moment(Some(it.not_after), now), it }
}

fn remediation(it: types::Remediation, now: OffsetDateTime) -> Remediation {
    let ended = it.ended_at.map(|at| format!(", over {}", distance(at, now))).unwrap_or_default();
    Remediation {
        path: commands::path(&it.node_id, &it.command_id),
        times: format!("begun {}{ended}", distance(it.started_at, now)),
        it,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pairs_and_what_is_none_is_named() {
        let pairs = labels(" rack=7  tier=a=b ").expect("labels");
        assert_eq!(written(&pairs), ["rack=7", "tier=a=b"]);
        assert!(labels("rack").expect_err("no pair").contains("rack"));
    }

    #[test]
    fn a_section_is_told_in_a_line_with_how_much_of_it_could_not_be_read() {
        let section = json!({ "data": { "model": "x", "gpus": [1, 2], "deep": {}, "none": null }, "problems": ["p"] });
        assert_eq!(summary(&section), "gpus: 2, model x; problems: 1");
        assert_eq!(summary(&json!({ "problems": ["p"] })), "not read; problems: 1");
    }
}
