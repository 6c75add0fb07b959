//! `/settings`: who is logged in, and the history of the runners' commands under System.
//!
//! **Invariant:** it changes nothing, and shows no token.

use askama::Template;
use axum::http::{StatusCode, Uri};
use serde_json::json;

use super::commands::path;
use super::page::{self, Answer, Page};
use super::query;
use super::visitor::Visitor;
use crate::api::error::Failure;
use crate::api::types::{self, Code, ListRunnerCommands, RunnerCommand};
use crate::words::{distance, instant};

/// How many commands are on a page of the history: each may bring 128 KiB of output.
const LIMIT: u32 = 25;

#[derive(Template)]
#[template(path = "settings.html")]
struct Settings {
    page: Page,
    caller: types::Caller,
    gateway_url: String,
    max_payload_bytes: usize,
}

/// `GET /settings`
pub(super) async fn show(visitor: Visitor) -> Answer {
    let caller: types::Caller = visitor.call("tokens.whoami", &json!({})).await?;
    let config = &visitor.app().config;
    page::html(&Settings {
        page: Page::new(&visitor, "settings", "Settings"),
        gateway_url: config.gateway_url.clone(),
        max_payload_bytes: config.max_payload_bytes,
        caller,
    })
}

#[derive(Template)]
#[template(path = "history.html")]
struct History {
    page: Page,
    gateway: String,
    rows: Vec<Row>,
    problem: String,
    first: Option<String>,
    next: Option<String>,
}

/// A command of a gateway.
struct Row {
    path: String,
    command: RunnerCommand,
    age: String,
    times: Vec<(&'static str, String)>,
}

/// `GET /settings/system/commands`
pub(super) async fn history(visitor: Visitor, uri: Uri) -> Answer {
    let asked = query::read(&uri);
    let is_first = asked.text("cursor").is_none();
    let title = "System: commands of gateways";
    let page = if is_first {
        Page::live(&visitor, "settings", title, &[]).await?
    } else {
        Page::new(&visitor, "settings", title)
    };
    let text = |name| asked.text(name).map(str::to_owned);
    let gateway = asked.text("gateway").unwrap_or_default();
    let ask = ListRunnerCommands {
        tenant_id: visitor.tenant(),
        gateway: text("gateway"),
        limit: Some(LIMIT),
        cursor: text("cursor"),
    };
    let (found, problem, status) = match visitor.call::<types::Page<RunnerCommand>>("runners.history", &ask).await {
        Ok(found) => (found, String::new(), StatusCode::OK),
        Err(Failure(error)) if matches!(error.code, Code::InvalidInput | Code::NotFound) => {
            let status = Failure(error.clone()).status();
            (types::Page { items: Vec::new(), next_cursor: None }, error.message, status)
        }
        Err(failure) => return Err(failure.into()),
    };
    let now = visitor.app().now();
    let with = |cursor: &str| query::path("/settings/system/commands", [("gateway", gateway), ("cursor", cursor)]);
    let row = |command: RunnerCommand| {
        let times = [
            ("queued", Some(command.created_at)),
            ("leased", command.leased_at),
            ("started", command.started_at),
            ("finished", command.finished_at),
        ];
        Row {
            path: path(&command.node_id, &command.id),
            age: distance(command.created_at, now),
            times: times.into_iter().filter_map(|(what, at)| Some((what, instant(at?)))).collect(),
            command,
        }
    };
    let history = History {
        first: (!is_first).then(|| with("")),
        next: found.next_cursor.as_deref().map(with),
        rows: found.items.into_iter().map(row).collect(),
        gateway: gateway.to_owned(),
        problem,
        page,
    };
    page::html_with(status, &history)
}
