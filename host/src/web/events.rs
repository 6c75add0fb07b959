//! `/events`: what happened, newest first, and live.
//!
//! **Invariant:** events are those of `events.watch`, of the visitor's tenant, in its order; each carries the id at which a watcher
//! resumes.

use askama::Template;
use axum::Router;
use axum::http::Uri;
use axum::routing::get;
use serde_json::Value;

use super::commands;
use super::nodes;
use super::page::{self, Answer, Page};
use super::query;
use super::visitor::Visitor;
use crate::api::auth::EVENTS_READ;
use crate::api::error::Failure;
use crate::api::types::Code;
use crate::store::events::{self, Cursor, Event, Filter};
use crate::words::{distance, instant};

/// How many events are shown.
const SHOWN: usize = 100;

/// How many transactions back the first look goes. Every further one goes twice as far.
const WINDOW: u64 = 2_048;

/// How many looks one page takes where nothing is found.
const LOOKS: u32 = 8;

/// How many events are read at once, and the most pieces that one look reads.
const PIECE: u32 = 500;
const MAX_PIECES: usize = 40;

/// The topics of the control plane itself; modules have more.
const TOPICS: [&str; 11] = [
    "node.command.queued",
    "node.command.cancel-requested",
    "command.settled",
    "batch.approved",
    "batch.rejected",
    "batch.expired",
    "node.condition-changed",
    "node.spec-changed",
    "node.spec-applied",
    "rollout.started",
    "rollout.changed",
];

/// Their paths.
pub(super) fn routes() -> Router {
    Router::new().route("/events", get(show))
}

#[derive(Template)]
#[template(path = "events.html")]
struct Events<'a> {
    page: Page,
    topics: [&'static str; 11],
    topic: &'a str,
    node: &'a str,
    problem: String,
    rows: Vec<Row>,
    is_newest: bool,
    first: String,
    older: Option<String>,
    resume: String,
    tenant: String,
}

/// An event's line.
struct Row {
    id: String,
    topic: String,
    at: String,
    age: String,
    /// What it is about: words, and where that is shown.
    about: Vec<(String, String)>,
    body: String,
}

/// What was asked for.
struct Wanted<'a> {
    filter: Filter,
    topic: &'a str,
}

/// `GET /events?topic=…&node=…&before=…`
async fn show(visitor: Visitor, uri: Uri) -> Answer {
    visitor.must_on_tenant(EVENTS_READ)?;
    let asked = query::read(&uri);
    let (topic, node) = (asked.text("topic").unwrap_or_default(), asked.text("node").unwrap_or_default());
    let before: Option<Result<Cursor, _>> = asked.text("before").map(str::parse);
    let is_newest = before.is_none();
    let page = if is_newest {
        Page::live(&visitor, "events", "Events", &[]).await?
    } else {
        Page::new(&visitor, "events", "Events")
    };
    let mut problem = String::new();
    // Without a tenant it would be all of them.
    let tenant = visitor.tenant().parse().map_err(|_| Failure::new(Code::Internal, "a tenant's id is not one"))?;
    let mut filter = Filter { tenant: Some(tenant), ..Filter::default() };
    if !node.is_empty() {
        match commands::list::node(&visitor, node).await {
            Ok(id) => filter.node = id.parse().ok(),
            Err(failure) => problem = failure.0.message,
        }
    }
    let end = match before {
        Some(Ok(cursor)) => cursor,
        Some(Err(error)) => {
            problem = format!("before: {error}");
            Cursor::default()
        }
        None => Cursor::default(),
    };
    let (found, start) = if problem.is_empty() {
        look(&visitor, &Wanted { filter, topic }, (!is_newest).then_some(end)).await?
    } else {
        (Vec::new(), Cursor::default())
    };
    let with = |before: &str| query::path("/events", [("topic", topic), ("node", node), ("before", before)]);
    let about: Vec<String> = found.iter().filter_map(|it| it.node).map(|id| id.to_string()).collect();
    let names = commands::list::names(&visitor, about.iter().map(String::as_str)).await?;
    let now = visitor.app().now();
    let row = |event: &Event| {
        let node = event.node.map(|id| id.to_string());
        let mut about = Vec::new();
        if let Some(node) = &node {
            about.push((names.get(node).unwrap_or(node).clone(), nodes::path(node)));
        }
        if let (Some(node), Some(command)) = (&node, event.command) {
            about.push((command.to_string(), commands::path(node, &command.to_string())));
        }
        if let Some(batch) = event.body["batchId"].as_str() {
            about.push((batch.to_owned(), format!("/batches/{}", query::encoded(batch))));
        }
        Row {
            id: event.cursor.to_string(),
            topic: event.topic.clone(),
            at: instant(event.at),
            age: distance(event.at, now),
            about,
            body: brief(&event.body),
        }
    };
    let rows: Vec<Row> = found.iter().rev().map(row).collect();
    page::html(&Events {
        first: with(""),
        older: (start > Cursor::default()).then(|| with(&start.to_string())),
        resume: rows.first().map_or_else(|| "0".to_owned(), |row| row.id.clone()),
        tenant: visitor.tenant(),
        topics: TOPICS,
        rows,
        page,
        topic,
        node,
        problem,
        is_newest,
    })
}

/// The newest events before a place, oldest first, and where those begin that were not looked at.
async fn look(visitor: &Visitor, wanted: &Wanted<'_>, before: Option<Cursor>) -> Result<(Vec<Event>, Cursor), Failure> {
    let mut db = visitor.app().db().await?;
    let mut end = match before {
        Some(cursor) => cursor,
        None => events::end(&mut db).await?,
    };
    let is_wanted = |event: &Event| wanted.topic.is_empty() || event.topic == wanted.topic;
    let mut window = WINDOW;
    for _ in 0..LOOKS {
        let start = back(end, window);
        let mut at = start;
        let mut found: Vec<Event> = Vec::new();
        for _ in 0..MAX_PIECES {
            let piece = events::page(&mut db, at, wanted.filter, PIECE).await?;
            at = piece.end;
            found.extend(piece.events.into_iter().filter(|event| event.cursor < end).filter(is_wanted));
            if found.len() > SHOWN {
                found.drain(..found.len() - SHOWN);
            }
            if !piece.is_full || at >= end {
                break;
            }
        }
        if let Some(oldest) = found.first() {
            let is_full = found.len() == SHOWN;
            let rest = if is_full { oldest.cursor } else { start };
            return Ok((found, rest));
        }
        end = start;
        window = window.saturating_mul(4);
        if end == Cursor::default() {
            break;
        }
    }
    Ok((Vec::new(), end))
}

/// So many transactions before a place.
fn back(cursor: Cursor, transactions: u64) -> Cursor {
    let text = cursor.to_string();
    let xid = text.split('-').next().and_then(|xid| xid.parse::<u64>().ok()).unwrap_or(0);
    match xid.checked_sub(transactions) {
        Some(xid) => format!("{xid}-0").parse().unwrap_or_default(),
        None => Cursor::default(),
    }
}

/// What an event says, in a line; ids have their links.
fn brief(body: &Value) -> String {
    let Some(facts) = body.as_object() else { return body.to_string() };
    let fact = |(name, value): (&String, &Value)| match value {
        _ if ["nodeId", "commandId", "batchId"].contains(&name.as_str()) => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(format!("{name} {text}")),
        other => Some(format!("{name} {other}")),
    };
    facts.iter().filter_map(fact).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn going_back_ends_at_the_beginning() {
        let at = |text: &str| text.parse::<Cursor>().expect("a cursor");
        assert_eq!(back(at("5000-7"), 2048), at("2952-0"));
        assert_eq!(back(at("5-7"), 2048), Cursor::default());
    }

    #[test]
    fn an_event_is_told_in_a_line_without_what_is_linked() {
        let body = json!({ "commandId": "cmd_1", "nodeId": "node_1", "kind": "diag.nvml", "reason": "", "seq": 3 });
        assert_eq!(brief(&body), "kind diag.nvml, seq 3");
    }
}
