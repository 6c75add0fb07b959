//! `/commands`: the tenant's commands, newest first.
//!
//! **Invariant:** a page of the list is a page of `commands.list`; what it cannot find within reach it says, with the way to look
//! further.

use std::collections::BTreeMap;

use askama::Template;
use axum::http::Uri;
use bc_proto::id::{NodeId, TenantId};
use bc_proto::rules::state::State;
use serde_json::json;
use time::OffsetDateTime;

use crate::api::auth::NODES_EXEC;
use crate::api::error::Failure;
use crate::api::types::{self, Code, ListCommands};
use crate::store::nodes;
use crate::web::form::Form;
use crate::web::page::{self, Answer, Page};
use crate::web::query;
use crate::web::visitor::Visitor;
use crate::words::{distance, instant};

/// How many commands are on a page.
const LIMIT: u32 = 50;

/// The filters' names: of fields, and in the page's address.
const FILTERS: [&str; 5] = ["node", "kind", "state", "batch", "gateway"];

#[derive(Template)]
#[template(path = "commands.html")]
struct List<'a> {
    page: Page,
    filters: BTreeMap<&'static str, &'a str>,
    states: Vec<String>,
    kinds: Vec<String>,
    rows: Vec<Row>,
    problem: Option<Failure>,
    is_first: bool,
    first: String,
    next: Option<String>,
    run: Option<String>,
}

/// A command's line.
pub(crate) struct Row {
    /// Where it is shown.
    pub(crate) path: String,
    /// `cmd_…`
    pub(crate) id: String,
    /// Its kind's name.
    pub(crate) kind: String,
    /// The state.
    pub(crate) state: String,
    /// The state in words.
    pub(crate) label: String,
    /// Why.
    pub(crate) reason: String,
    /// The node's name.
    pub(crate) node: String,
    /// Who asked for it.
    pub(crate) by: String,
    /// When it was queued.
    pub(crate) at: String,
    /// How long ago that is.
    pub(crate) age: String,
}

/// `GET /commands`
pub(super) async fn show(visitor: Visitor, uri: Uri) -> Answer {
    let asked = query::read(&uri);
    let is_first = asked.text("cursor").is_none();
    let page = if is_first {
        Page::live(&visitor, "commands", "Commands", &[]).await?
    } else {
        Page::new(&visitor, "commands", "Commands")
    };
    // What cannot be asked for keeps its form, with the reason beside it.
    let (found, problem) = match find(&visitor, &asked).await {
        Ok(found) => (found, None),
        Err(failure) if matches!(failure.0.code, Code::InvalidInput | Code::NotFound) => {
            (types::Page { items: Vec::new(), next_cursor: None }, Some(failure))
        }
        Err(failure) => return Err(failure.into()),
    };
    let filters: BTreeMap<_, _> = FILTERS.map(|name| (name, asked.text(name).unwrap_or_default())).into();
    let with = |cursor: &str| {
        let fields = filters.iter().map(|(name, value)| (*name, *value)).chain([("cursor", cursor)]);
        query::path("/commands", fields)
    };
    let status = problem.as_ref().map_or(axum::http::StatusCode::OK, Failure::status);
    let list = List {
        rows: rows(&visitor, &found.items).await?,
        next: found.next_cursor.as_deref().map(with),
        first: with(""),
        states: State::ALL.map(|state| state.to_string()).to_vec(),
        kinds: kinds(&visitor).await?,
        run: visitor.may_somewhere(NODES_EXEC).then(|| query::path("/commands/run", [("node", filters["node"])])),
        page,
        problem,
        is_first,
        filters,
    };
    page::html_with(status, &list)
}

async fn find(visitor: &Visitor, asked: &Form) -> Result<types::Page<types::Command>, Failure> {
    let text = |name| asked.text(name).map(str::to_owned);
    let node_id = match asked.text("node") {
        Some(text) => Some(node(visitor, text).await?),
        None => None,
    };
    let ask = ListCommands {
        tenant_id: visitor.tenant(),
        node_id,
        gateway: text("gateway"),
        batch_id: text("batch"),
        kind: text("kind"),
        state: text("state"),
        limit: Some(LIMIT),
        cursor: text("cursor"),
    };
    visitor.call("commands.list", &ask).await
}

/// The id of a node by its id or its name. Whether the visitor may see it, the API says.
pub(crate) async fn node(visitor: &Visitor, text: &str) -> Result<String, Failure> {
    if text.parse::<NodeId>().is_ok() {
        return Ok(text.to_owned());
    }
    let tenant = tenant(visitor)?;
    let found = nodes::named(&mut *visitor.app().db().await?, tenant, text).await?;
    found.map(|id| id.to_string()).ok_or_else(|| Failure::not_found("node", text))
}

fn tenant(visitor: &Visitor) -> Result<TenantId, Failure> {
    visitor.tenant().parse().map_err(|_| Failure::new(Code::Internal, "a tenant's id is not one"))
}

/// The names of the nodes that commands are for; their ids where there is none.
pub(crate) async fn names(
    visitor: &Visitor,
    ids: impl Iterator<Item = &str>,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut ids: Vec<NodeId> = ids.filter_map(|id| id.parse().ok()).collect();
    ids.sort_unstable();
    ids.dedup();
    let names = nodes::names(&mut *visitor.app().db().await?, tenant(visitor)?, &ids).await?;
    Ok(names.into_iter().map(|(id, name)| (id.to_string(), name)).collect())
}

/// The kinds' names, for the filter; none where the visitor may not see kinds.
async fn kinds(visitor: &Visitor) -> Result<Vec<String>, Failure> {
    let kinds: types::Page<types::Kind> = visitor.call("kinds.list", &json!({})).await?;
    Ok(kinds.items.into_iter().map(|kind| kind.name).collect())
}

/// Commands as lines.
pub(crate) async fn rows(visitor: &Visitor, commands: &[types::Command]) -> Result<Vec<Row>, Failure> {
    let names = names(visitor, commands.iter().map(|it| it.node_id.as_str())).await?;
    let now = visitor.app().now();
    Ok(commands.iter().map(|command| row(command, &names, now)).collect())
}

fn row(command: &types::Command, names: &BTreeMap<String, String>, now: OffsetDateTime) -> Row {
    Row {
        path: super::path(&command.node_id, &command.id),
        id: command.id.clone(),
        kind: command.kind.clone(),
        label: label(command),
        state: command.state.clone(),
        reason: command.reason.clone(),
        node: names.get(&command.node_id).unwrap_or(&command.node_id).clone(),
        by: command.requested_by.clone().unwrap_or_default(),
        at: instant(command.created_at),
        age: distance(command.created_at, now),
    }
}

/// The state in words.
pub(super) fn label(command: &types::Command) -> String {
    let is_open = crate::words::state(&command.state).is_some_and(|state| !state.is_terminal());
    match (command.awaiting_approval, command.cancel_requested_at) {
        (true, _) => "pending, awaits approval".to_owned(),
        (false, Some(_)) if is_open => format!("{}, to stop", command.state),
        _ => command.state.clone(),
    }
}
