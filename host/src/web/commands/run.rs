//! `/commands/run`: the form that runs a command, made of its kind's schema.
//!
//! **Invariant:** a form is one command however often it is sent, since its key was made with it; what was typed is there again beside
//! whatever was wrong with it.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Redirect};
use serde_json::{Value, json};

use super::fields::{self, Field};
use crate::api::auth::NODES_EXEC;
use crate::api::error::Failure;
use crate::api::types::{self, Code, RunCommand};
use crate::web::form::{Form, Kept};
use crate::web::page::{self, Answer, Page, problems};
use crate::web::visitor::Visitor;

#[derive(Template)]
#[template(path = "run.html")]
struct Run {
    page: Page,
    nodes: Vec<(String, String)>,
    kinds: Vec<(String, String)>,
    node: String,
    kind: String,
    /// The kind that the fields are for; `None` before one is chosen.
    chosen: Option<Chosen>,
    message: String,
    problems: Vec<(String, String)>,
    key: String,
    not_after: String,
    batch: String,
    max_bytes: usize,
}

struct Chosen {
    summary: String,
    lane: String,
    traits: Vec<String>,
    is_destructive: bool,
    fields: Vec<Field>,
}

/// `GET /commands/run?node=…&kind=…`
pub(super) async fn ask(visitor: Visitor, uri: Uri, Kept(kept): Kept) -> Answer {
    let typed = if kept.is_empty() { crate::web::query::read(&uri) } else { kept };
    shown(&visitor, &typed, None).await
}

/// `POST /commands/run`
pub(super) async fn send(visitor: Visitor, typed: Form) -> Answer {
    visitor.must_somewhere(NODES_EXEC)?;
    match queue(&visitor, &typed).await {
        Ok(command) => Ok(Redirect::to(&super::path(&command.node_id, &command.id)).into_response()),
        Err(failure) => match failure.0.code {
            Code::Internal | Code::Unauthenticated => Err(failure.into()),
            _ => shown(&visitor, &typed, Some(failure)).await,
        },
    }
}

async fn queue(visitor: &Visitor, typed: &Form) -> Result<types::Command, Failure> {
    let mut wrong = Vec::new();
    let node_id = if let Some(text) = typed.text("node") {
        match super::list::node(visitor, text).await {
            Ok(id) => id,
            Err(failure) if failure.0.code == Code::NotFound => {
                wrong.push(("nodeId".to_owned(), failure.0.message));
                String::new()
            }
            Err(failure) => return Err(failure),
        }
    } else {
        wrong.push(("nodeId".to_owned(), "is missing".to_owned()));
        String::new()
    };
    let kind = typed.text("kind").unwrap_or_default();
    if kind.is_empty() {
        wrong.push(("kind".to_owned(), "is missing".to_owned()));
    }
    let schema = if kind.is_empty() { Value::Null } else { schema(visitor, kind).await?.0 };
    let payload = fields::payload(&fields::of(&schema, typed), typed).unwrap_or_else(|problems| {
        wrong.extend(problems);
        Value::Null
    });
    let not_after_seconds = typed.text("notAfterSeconds").map(str::parse).transpose().unwrap_or_else(|_| {
        wrong.push(("notAfterSeconds".to_owned(), "must be a number of seconds".to_owned()));
        None
    });
    if !wrong.is_empty() {
        return Err(Failure::fields(&wrong));
    }
    let ask = RunCommand {
        tenant_id: visitor.tenant(),
        node_id,
        kind: kind.to_owned(),
        payload,
        idempotency_key: typed.text("key").unwrap_or_default().to_owned(),
        not_after_seconds,
        batch_id: typed.text("batchId").map(str::to_owned),
        min_generation: None,
    };
    visitor.call("commands.run", &ask).await
}

/// The schema of a kind's payload, and the kind; nothing of either where the visitor may not see it.
async fn schema(visitor: &Visitor, kind: &str) -> Result<(Value, Option<types::Kind>), Failure> {
    match visitor.call::<types::Kind>("kinds.get", &json!({ "name": kind })).await {
        Ok(kind) => Ok((kind.manifest["payload"].clone(), Some(kind))),
        Err(failure) if matches!(failure.0.code, Code::NotFound | Code::PermissionDenied | Code::InvalidInput) => {
            Ok((Value::Null, None))
        }
        Err(failure) => Err(failure),
    }
}

async fn shown(visitor: &Visitor, typed: &Form, failure: Option<Failure>) -> Answer {
    visitor.must_somewhere(NODES_EXEC)?;
    let kind = typed.text("kind").unwrap_or_default().to_owned();
    let mut page = Page::new(visitor, "commands", if kind.is_empty() { "Run a command" } else { "" });
    let chosen = if kind.is_empty() {
        None
    } else {
        page.title = format!("Run {kind}");
        let (schema, found) = schema(visitor, &kind).await?;
        let mut chosen = Chosen {
            summary: found.as_ref().and_then(|it| it.manifest["summary"].as_str()).unwrap_or_default().to_owned(),
            lane: found.as_ref().map(|it| it.lane.clone()).unwrap_or_default(),
            is_destructive: found.as_ref().is_some_and(|it| it.traits.iter().any(|it| it == "destructive")),
            traits: found.map(|it| it.traits).unwrap_or_default(),
            fields: fields::of(&schema, typed),
        };
        let rest = failure.as_ref().map(problems).unwrap_or_default();
        let rest = fields::place(&mut chosen.fields, rest);
        Some((chosen, rest))
    };
    let (chosen, rest) = match chosen {
        Some((chosen, rest)) => (Some(chosen), rest),
        None => (None, failure.as_ref().map(problems).unwrap_or_default()),
    };
    let status = failure.as_ref().map_or(StatusCode::OK, Failure::status);
    let is_conflict = failure.as_ref().is_some_and(|it| it.0.code == Code::Conflict);
    let key = typed.text("key").filter(|_| !is_conflict).map(str::to_owned);
    let nodes: types::Page<types::Node> =
        visitor.call("nodes.list", &json!({ "tenantId": visitor.tenant(), "limit": 200 })).await?;
    let kinds: types::Page<types::Kind> = visitor.call("kinds.list", &json!({})).await?;
    let summary = |kind: &types::Kind| kind.manifest["summary"].as_str().unwrap_or_default().to_owned();
    let run = Run {
        nodes: nodes.items.into_iter().map(|node| (node.name, node.id)).collect(),
        kinds: kinds.items.iter().filter(|it| it.exposed).map(|it| (it.name.clone(), summary(it))).collect(),
        node: typed.text("node").unwrap_or_default().to_owned(),
        message: failure.map(|it| it.0.message).unwrap_or_default(),
        problems: rest,
        key: key.unwrap_or_else(|| format!("web-{}", visitor.app().world.uuid())),
        not_after: typed.text("notAfterSeconds").unwrap_or_default().to_owned(),
        batch: typed.text("batchId").unwrap_or_default().to_owned(),
        max_bytes: visitor.app().config.max_payload_bytes,
        page,
        kind,
        chosen,
    };
    page::html_with(status, &run)
}
