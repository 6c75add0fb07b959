//! `/batches`: what people are asked to approve, and the form that asks them.
//!
//! **Invariant:** nothing here approves: an approval is signed with a key that the control plane never sees. The scope that is shown is
//! checked against what is signed while the page is made.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Redirect};
use axum::routing::{get, post};
use bc_proto::batch::{self, Leaf};
use bc_proto::canonical;
use serde_json::{Value, json};

use super::commands;
use super::commands::list::Row as CommandRow;
use super::form::{Form, Kept};
use super::page::{self, Answer, Page, problems};
use super::query;
use super::visitor::Visitor;
use crate::api::auth::{BATCHES_APPROVE, BATCHES_CREATE};
use crate::api::error::Failure;
use crate::api::types::{self, BatchLeaf, BatchRef, Code, CreateBatch, ListBatches, RejectBatch};
use crate::words::{distance, instant, moment};

/// How many batches are on a page.
const LIMIT: u32 = 50;

/// How many leaves of a scope are shown; it may have ten thousand.
const MAX_LEAVES: usize = 500;

/// How many of its commands are shown; the list of commands has all.
const COMMANDS: u32 = 50;

/// Their paths.
pub(super) fn routes() -> Router {
    Router::new()
        .route("/batches", get(list))
        .route("/batches/propose", get(ask).post(propose))
        .route("/batches/{batch}", get(show))
        .route("/batches/{batch}/reject", post(reject))
}

fn path(batch: &str) -> String {
    format!("/batches/{}", query::encoded(batch))
}

#[derive(Template)]
#[template(path = "batches.html")]
struct List<'a> {
    page: Page,
    state: &'a str,
    rows: Vec<Row>,
    problem: String,
    may_propose: bool,
    first: Option<String>,
    next: Option<String>,
}

/// A batch's line.
struct Row {
    path: String,
    batch: types::Batch,
    approvals: String,
    age: String,
    expiry: String,
}

/// `GET /batches`
async fn list(visitor: Visitor, uri: Uri) -> Answer {
    let asked = query::read(&uri);
    let cursor = asked.text("cursor");
    let page = match cursor {
        None => Page::live(&visitor, "batches", "Batches", &[]).await?,
        Some(_) => Page::new(&visitor, "batches", "Batches"),
    };
    let state = asked.text("state").unwrap_or_default();
    let ask = ListBatches {
        tenant_id: visitor.tenant(),
        state: asked.text("state").map(str::to_owned),
        limit: Some(LIMIT),
        cursor: cursor.map(str::to_owned),
    };
    let (found, problem) = match visitor.call::<types::Page<types::Batch>>("commandBatches.list", &ask).await {
        Ok(found) => (found, String::new()),
        Err(Failure(error)) if error.code == Code::InvalidInput => {
            (types::Page { items: Vec::new(), next_cursor: None }, error.message)
        }
        Err(failure) => return Err(failure.into()),
    };
    let now = visitor.app().now();
    let with = |cursor: &str| query::path("/batches", [("state", state), ("cursor", cursor)]);
    let row = |batch: types::Batch| Row {
        path: path(&batch.batch_id),
        approvals: approvals(&batch),
        age: distance(batch.created_at, now),
        expiry: distance(batch.expires_at, now),
        batch,
    };
    page::html(&List {
        may_propose: visitor.may_somewhere(BATCHES_CREATE),
        first: cursor.map(|_| with("")),
        next: found.next_cursor.as_deref().map(with),
        rows: found.items.into_iter().map(row).collect(),
        page,
        state,
        problem,
    })
}

/// How far the approvals are.
fn approvals(batch: &types::Batch) -> String {
    let count = batch.approvals.iter().filter(|it| it.counts).count();
    match batch.missing {
        None => "nobody is asked".to_owned(),
        Some(0) => format!("{count}, none missing"),
        Some(missing) => format!("{count}, at least {missing} missing"),
    }
}

#[derive(Template)]
#[template(path = "batch.html")]
struct Detail {
    page: Page,
    path: String,
    approvals: String,
    received: Vec<(types::BatchApproval, String, String)>,
    require: Vec<String>,
    leaves: Vec<Line>,
    /// How many leaves are not shown.
    more: usize,
    checked: Result<String, String>,
    created: String,
    expiry: String,
    closed: String,
    rows: Vec<CommandRow>,
    all: String,
    may_reject: bool,
    run: Option<String>,
    batch: types::Batch,
}

/// A leaf of the scope.
struct Line {
    kind: String,
    subject: String,
    name: String,
    payload: String,
}

/// `GET /batches/{batch}`
async fn show(visitor: Visitor, Path(id): Path<String>) -> Answer {
    let mut page = Page::live(&visitor, "batches", "Batch", &[]).await?;
    let ask = BatchRef { tenant_id: visitor.tenant(), batch_id: id.clone() };
    let mut batch: types::Batch = visitor.call("commandBatches.get", &ask).await?;
    page.title = format!("Batch: {}", batch.reason.chars().take(80).collect::<String>());
    let now = visitor.app().now();
    let scope = batch.scope.take().unwrap_or_default();
    let names = commands::list::names(&visitor, scope.iter().take(MAX_LEAVES).map(|it| it.subject.as_str())).await?;
    let ask = json!({ "tenantId": visitor.tenant(), "batchId": id, "limit": COMMANDS });
    let found: types::Page<types::Command> = visitor.call("commands.list", &ask).await?;
    let is_over = matches!(batch.state.as_str(), "rejected" | "expired");
    let line = |leaf: &BatchLeaf| Line {
        name: names.get(&leaf.subject).cloned().unwrap_or_default(),
        kind: leaf.kind.clone(),
        subject: leaf.subject.clone(),
        payload: leaf.payload_sha256.clone().unwrap_or_default(),
    };
    let received =
        batch.approvals.iter().map(|it| (it.clone(), instant(it.approved_at), moment(Some(it.expires_at), now)));
    page::html(&Detail {
        path: path(&batch.batch_id),
        approvals: approvals(&batch),
        received: received.collect(),
        require: require(batch.policy.as_ref()),
        leaves: scope.iter().take(MAX_LEAVES).map(line).collect(),
        more: scope.len().saturating_sub(MAX_LEAVES),
        checked: check(&batch, scope),
        created: moment(Some(batch.created_at), now),
        expiry: moment(Some(batch.expires_at), now),
        closed: moment(batch.closed_at, now),
        rows: commands::list::rows(&visitor, &found.items).await?,
        all: query::path("/commands", [("batch", batch.batch_id.as_str())]),
        may_reject: !is_over && visitor.must_on_tenant(BATCHES_APPROVE).is_ok(),
        run: (!is_over && visitor.may_somewhere(crate::api::auth::NODES_EXEC)).then(|| "/commands/run".to_owned()),
        page,
        batch,
    })
}

/// Whether the scope that is shown is the one that is signed.
fn check(batch: &types::Batch, scope: Vec<BatchLeaf>) -> Result<String, String> {
    let leaf = |it: BatchLeaf| Leaf { subject: it.subject, kind: it.kind, payload_sha256: it.payload_sha256 };
    let scope: Vec<Leaf> = scope.into_iter().map(leaf).collect();
    let root = hex::encode(batch::tree(&scope).root());
    if root == batch.document.root && scope.len() as u64 == batch.document.size {
        Ok(root)
    } else {
        Err(format!("it has {} leaves and the root {root}", scope.len()))
    }
}

/// What the policy takes, a line each.
fn require(policy: Option<&Value>) -> Vec<String> {
    let one = |it: &Value| match it["group"].as_str() {
        Some(group) => format!("{} of the group {group}", it["count"]),
        None => format!("{} of anybody who may approve", it["count"]),
    };
    policy.and_then(Value::as_array).into_iter().flatten().map(one).collect()
}

/// `POST /batches/{batch}/reject`
async fn reject(visitor: Visitor, Path(id): Path<String>, typed: Form) -> Answer {
    let ask = RejectBatch {
        tenant_id: visitor.tenant(),
        batch_id: id.clone(),
        reason: typed.text("reason").unwrap_or_default().to_owned(),
    };
    let _: types::Batch = visitor.call("commandBatches.reject", &ask).await?;
    Ok(Redirect::to(&path(&id)).into_response())
}

#[derive(Template)]
#[template(path = "propose.html")]
struct Propose {
    page: Page,
    typed: BTreeMap<&'static str, String>,
    nodes: Vec<String>,
    kinds: Vec<(String, String)>,
    key: String,
    message: String,
    problems: Vec<(String, String)>,
}

/// `GET /batches/propose`
async fn ask(visitor: Visitor, uri: Uri, Kept(kept): Kept) -> Answer {
    let typed = if kept.is_empty() { query::read(&uri) } else { kept };
    form(&visitor, &typed, None).await
}

/// `POST /batches/propose`
async fn propose(visitor: Visitor, typed: Form) -> Answer {
    match create(&visitor, &typed).await {
        Ok(batch) => Ok(Redirect::to(&path(&batch.batch_id)).into_response()),
        Err(failure) => match failure.0.code {
            Code::Internal | Code::Unauthenticated | Code::PermissionDenied => Err(failure.into()),
            _ => form(&visitor, &typed, Some(failure)).await,
        },
    }
}

async fn create(visitor: &Visitor, typed: &Form) -> Result<types::Batch, Failure> {
    let mut wrong = Vec::new();
    let mut subjects = Vec::new();
    for word in words(typed.get("nodes")) {
        match commands::list::node(visitor, word).await {
            Ok(id) => subjects.push(id),
            Err(failure) if failure.0.code == Code::NotFound => wrong.push(("nodes".to_owned(), failure.0.message)),
            Err(failure) => return Err(failure),
        }
    }
    let kinds: Vec<&str> = words(typed.get("kinds")).collect();
    for (name, is_empty) in [("nodes", subjects.is_empty() && wrong.is_empty()), ("kinds", kinds.is_empty())] {
        if is_empty {
            wrong.push((name.to_owned(), "names at least one".to_owned()));
        }
    }
    let payload_sha256 = typed.text("payload").map(hash).transpose().unwrap_or_else(|why| {
        wrong.push(("payload".to_owned(), why));
        None
    });
    let hours = typed.text("hours").map(str::parse::<u32>).transpose().unwrap_or_else(|_| {
        wrong.push(("hours".to_owned(), "must be a whole number of hours".to_owned()));
        None
    });
    if !wrong.is_empty() {
        return Err(Failure::fields(&wrong));
    }
    let leaf = |subject: &String, kind: &str| BatchLeaf {
        subject: subject.clone(),
        kind: kind.to_owned(),
        payload_sha256: payload_sha256.clone(),
    };
    let ask = CreateBatch {
        tenant_id: visitor.tenant(),
        reason: typed.text("reason").unwrap_or_default().to_owned(),
        scope: subjects.iter().flat_map(|subject| kinds.iter().map(|kind| leaf(subject, kind))).collect(),
        idempotency_key: typed.text("key").unwrap_or_default().to_owned(),
        expires_in_seconds: hours.map(|hours| hours.saturating_mul(3600)),
    };
    visitor.call("commandBatches.create", &ask).await
}

fn words(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.unwrap_or_default().split([' ', '\t', '\r', '\n', ',']).filter(|word| !word.is_empty())
}

fn hash(text: &str) -> Result<String, String> {
    let payload: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
    Ok(canonical::sha256_hex(&canonical::to_vec(&payload).map_err(|error| error.to_string())?))
}

/// Which field of the form a field of the request is told beside.
fn beside(field: &str) -> &'static str {
    match field {
        "reason" => "reason",
        "expiresInSeconds" | "hours" => "hours",
        "payload" => "payload",
        "nodes" => "nodes",
        "kinds" => "kinds",
        // Within a leaf of the scope.
        field => match field.rsplit_once('.') {
            Some((_, "subject")) => "nodes",
            Some((_, "kind")) => "kinds",
            _ => "",
        },
    }
}

async fn form(visitor: &Visitor, typed: &Form, failure: Option<Failure>) -> Answer {
    visitor.must_on_tenant(BATCHES_CREATE)?;
    let nodes: types::Page<types::Node> =
        visitor.call("nodes.list", &json!({ "tenantId": visitor.tenant(), "limit": 200 })).await?;
    let kinds: types::Page<types::Kind> = visitor.call("kinds.list", &json!({})).await?;
    let summary = |kind: &types::Kind| kind.manifest["summary"].as_str().unwrap_or_default().to_owned();
    let destructive = kinds.items.iter().filter(|it| it.traits.iter().any(|it| it == "destructive"));
    let status = failure.as_ref().map_or(StatusCode::OK, Failure::status);
    let is_conflict = failure.as_ref().is_some_and(|it| it.0.code == Code::Conflict);
    let key = typed.text("key").filter(|_| !is_conflict).map(str::to_owned);
    let told = failure.as_ref().map(problems).unwrap_or_default();
    let fields = ["reason", "nodes", "kinds", "payload", "hours"];
    let form = Propose {
        page: Page::new(visitor, "batches", "Propose a batch"),
        typed: fields.map(|name| (name, typed.get(name).unwrap_or_default().to_owned())).into(),
        nodes: nodes.items.into_iter().map(|it| it.name).collect(),
        kinds: destructive.map(|it| (it.name.clone(), summary(it))).collect(),
        key: key.unwrap_or_else(|| format!("web-{}", visitor.app().world.uuid())),
        problems: told.into_iter().map(|(field, rule)| (beside(&field).to_owned(), rule)).collect(),
        message: failure.map(|it| it.0.message).unwrap_or_default(),
    };
    page::html_with(status, &form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_told_in_words() {
        let policy = json!([{ "group": "a", "count": 2 }, { "count": 1 }]);
        assert_eq!(require(Some(&policy)), ["2 of the group a", "1 of anybody who may approve"]);
        assert!(require(None).is_empty());
    }

    #[test]
    fn names_are_split_at_spaces_lines_and_commas() {
        assert_eq!(words(Some(" a,b\r\nc  d ")).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert!(hash("{").is_err());
        assert_eq!(hash("{\"b\":1,\"a\":2}"), hash("{\"a\": 2, \"b\": 1}"));
    }
}
