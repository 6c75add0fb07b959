//! `/audit`: the transparency log, and the proof that an entry stands in it.
//!
//! **Invariant:** what stands there as verified was verified while the page was made, with the functions of `better-compute audit`. That
//! it is the server that says so is said too, with how to check without it.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::http::Uri;
use axum::routing::get;
use bc_proto::audit::{self, Head};
use bc_proto::merkle;
use bc_proto::merkle::stored::leaf_hash;
use bc_proto::sign::{PublicKey, SecretKey};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::commands;
use super::page::{self, Answer, Page};
use super::query;
use super::visitor::Visitor;
use crate::api::error::Failure;
use crate::api::types::{Inclusion, LogEntries, LogEntry, LogHead};
use crate::store::unix_ms;
use crate::words::{distance, instant};

/// How many entries are on a page.
const LIMIT: u64 = 50;

/// Their paths.
pub(super) fn routes() -> Router {
    Router::new().route("/audit", get(list)).route("/audit/{index}", get(show))
}

#[derive(Template)]
#[template(path = "audit.html")]
struct List {
    page: Page,
    head: LogHead,
    signed: Result<String, String>,
    rows: Vec<Row>,
    newest: Option<String>,
    older: Option<String>,
}

/// An entry's line.
struct Row {
    index: u64,
    at: String,
    age: String,
    entry: String,
    about: String,
    what: String,
    link: String,
}

/// `GET /audit?end=…`: newest first.
async fn list(visitor: Visitor, uri: Uri) -> Answer {
    let asked = query::read(&uri);
    let end: Option<u64> = match asked.text("end") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| Failure::field("end", "must be the place of an entry"))?),
    };
    let page = match end {
        None => Page::live(&visitor, "audit", "Audit", &[]).await?,
        Some(_) => Page::new(&visitor, "audit", "Audit"),
    };
    let head = head(&visitor).await?;
    let until = end.unwrap_or(head.size).min(head.size);
    let from = until.saturating_sub(LIMIT);
    let entries = match until - from {
        0 => LogEntries { items: Vec::new(), next: None },
        limit => entries(&visitor, from, limit).await?,
    };
    let now = visitor.app().now();
    page::html(&List {
        signed: signed(&visitor, &head),
        rows: entries.items.iter().rev().map(|entry| row(entry, now)).collect(),
        newest: end.map(|_| "/audit".to_owned()),
        older: (from > 0).then(|| format!("/audit?end={from}")),
        page,
        head,
    })
}

async fn head(visitor: &Visitor) -> Result<LogHead, Failure> {
    visitor.call("audit.head", &json!({ "tenantId": visitor.tenant() })).await
}

async fn entries(visitor: &Visitor, from: u64, limit: u64) -> Result<LogEntries, Failure> {
    visitor.call("audit.entries", &json!({ "tenantId": visitor.tenant(), "from": from, "limit": limit })).await
}

/// The roots of command signing that this server trusts.
fn roots(visitor: &Visitor) -> Vec<PublicKey> {
    let pki = &visitor.app().config.pki;
    let own = pki.command_signing.as_ref().map(SecretKey::public);
    own.into_iter().chain(pki.command_signing_roots.iter().copied()).collect()
}

/// Whether the head is signed by a root that counts.
fn signed(visitor: &Visitor, head: &LogHead) -> Result<String, String> {
    let Some(signature) = &head.signature else {
        return Err(
            "nobody signs this log: whoever has the database could have made another one from the start".to_owned()
        );
    };
    let by = signature["worker"]["root"].as_str().unwrap_or_default().to_owned();
    let signature =
        serde_json::from_value(signature.clone()).map_err(|_| "its signature is none that is known".to_owned())?;
    let head = Head { size: head.size, root: head.root.clone(), signature: Some(signature) };
    verified(&head, &roots(visitor), unix_ms(visitor.app().now())).map(|()| by)
}

fn verified(head: &Head, roots: &[PublicKey], now_ms: u64) -> Result<(), String> {
    let signature = head.signature.as_ref().ok_or("it is not signed")?;
    signature.verify(&head.body(), roots, now_ms).map_err(|error| format!("its signature does not hold: {error}"))
}

fn body(entry: &LogEntry) -> Value {
    entry.body.as_deref().and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

fn row(entry: &LogEntry, now: OffsetDateTime) -> Row {
    let said = body(entry);
    let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
    let first = |names: [&str; 3]| names.iter().map(|it| text(it)).find(|it| !it.is_empty()).unwrap_or_default();
    let at = said["atMs"].as_i64().and_then(|ms| OffsetDateTime::from_unix_timestamp(ms / 1000).ok());
    let (command, node, batch) = (text("command"), text("node"), text("batch"));
    let link = match (command.is_empty(), node.is_empty(), batch.is_empty()) {
        (false, false, _) => commands::path(&node, &command),
        (_, _, false) => format!("/batches/{}", query::encoded(&batch)),
        _ => String::new(),
    };
    Row {
        index: entry.index,
        at: at.map(instant).unwrap_or_default(),
        age: at.map(|at| distance(at, now)).unwrap_or_default(),
        entry: if entry.body.is_some() { text("entry") } else { "another tenant's".to_owned() },
        about: first(["command", "batch", "node"]),
        what: first(["kind", "state", "topic"]),
        link,
    }
}

#[derive(Template)]
#[template(path = "entry.html")]
struct Detail {
    page: Page,
    row: Row,
    body: Option<String>,
    leaf_hash: String,
    size: u64,
    root: String,
    proof: Vec<String>,
    proven: Result<(), String>,
    signed: Result<String, String>,
    receipt: String,
    newer: Option<u64>,
    older: Option<u64>,
}

/// `GET /audit/{index}`
async fn show(visitor: Visitor, Path(word): Path<String>) -> Answer {
    let index: u64 = word.parse().map_err(|_| Failure::not_found("entry", &word))?;
    let page = Page::new(&visitor, "audit", format!("Entry {index}"));
    let head = head(&visitor).await?;
    if index >= head.size {
        return Err(Failure::not_found("entry", index).into());
    }
    let ask = json!({ "tenantId": visitor.tenant(), "index": index, "size": head.size });
    let inclusion: Inclusion = visitor.call("audit.inclusion", &ask).await?;
    let found = entries(&visitor, index, 1).await?;
    let entry = found.items.first().ok_or_else(|| Failure::not_found("entry", index))?;
    let proof = inclusion.items.first().map(|it| it.proof.clone()).unwrap_or_default();
    let said = body(entry);
    let command = said["command"].as_str().unwrap_or_default().to_owned();
    page::html(&Detail {
        row: row(entry, visitor.app().now()),
        body: entry.body.as_ref().map(|_| format!("{said:#}")),
        leaf_hash: entry.leaf_hash.clone(),
        proven: proven(entry, &head, &inclusion, &proof),
        proof: proof.as_bytes().chunks(64).map(|it| String::from_utf8_lossy(it).into_owned()).collect(),
        signed: signed(&visitor, &head),
        newer: (index + 1 < head.size).then_some(index + 1),
        older: index.checked_sub(1),
        receipt: command,
        size: head.size,
        root: head.root,
        page,
    })
}

/// Whether the entry stands at its place below the root of the head.
fn proven(entry: &LogEntry, head: &LogHead, inclusion: &Inclusion, proof: &str) -> Result<(), String> {
    let Some(text) = &entry.body else {
        return Err("it belongs to another tenant, so that only its hash can be seen".to_owned());
    };
    if hex::encode(leaf_hash(text.as_bytes())) != entry.leaf_hash {
        return Err("its hash is not that of what it says: it was changed".to_owned());
    }
    if (inclusion.size, &inclusion.root) != (head.size, &head.root) {
        return Err("the proof is for another tree than the head's".to_owned());
    }
    let root = audit::hash(&head.root).ok_or("the head's root is no hash")?;
    let proof = hex::decode(proof).map_err(|_| "the proof is no hexadecimal text")?;
    merkle::verify(&root, head.size, text.as_bytes(), entry.index, &proof).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use bc_proto::merkle::Tree;

    use super::*;

    #[test]
    fn an_entry_is_proven_by_its_own_words_and_by_no_others() {
        let texts = ["{\"entry\":\"a\"}", "{\"entry\":\"b\"}", "{\"entry\":\"c\"}"];
        let tree = Tree::new(texts.iter().map(|it| it.as_bytes().to_vec()));
        let head = LogHead { size: 3, root: hex::encode(tree.root()), signature: None };
        let inclusion = Inclusion { size: 3, root: head.root.clone(), items: Vec::new() };
        let proof = hex::encode(tree.prove(1).expect("a proof"));
        let entry = |text: &str| LogEntry {
            index: 1,
            leaf_hash: hex::encode(leaf_hash(text.as_bytes())),
            body: Some(text.to_owned()),
        };
        assert_eq!(proven(&entry(texts[1]), &head, &inclusion, &proof), Ok(()));
        assert!(proven(&entry(texts[2]), &head, &inclusion, &proof).is_err());
        let changed = LogEntry { body: Some("{}".to_owned()), ..entry(texts[1]) };
        assert!(proven(&changed, &head, &inclusion, &proof).expect_err("changed").contains("changed"));
        let foreign = LogEntry { body: None, ..entry(texts[1]) };
        assert!(proven(&foreign, &head, &inclusion, &proof).expect_err("foreign").contains("another tenant"));
    }
}
