//! Completions with what is there now: names of nodes, kinds and batches, asked of the API.
//!
//! **Invariant:** whatever goes wrong gives no candidates, silently and within a second: a shell waits for it at each TAB.

use std::ffi::OsStr;
use std::time::Duration;

use bc_host::api::types::{Batch, Kind, Node, Page, Webhook};
use clap_complete::engine::CompletionCandidate;
use serde_json::json;

use crate::client::{Client, Connect, Patience};
use crate::contexts::{self, Contexts};

/// How long a shell may be kept waiting.
const PATIENCE: Patience = Patience { attempts: 1, timeout: Duration::from_millis(800) };

/// Nodes, by name.
pub(crate) fn nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    let nodes = ask(async |client| {
        let request = json!({ "tenantId": client.tenant().await.ok()?, "limit": 200 });
        client.call::<Page<Node>>("nodes.list", &request).await.ok()
    });
    let nodes = nodes.map(|page| page.items).unwrap_or_default().into_iter();
    let named = nodes.map(|node| {
        let help = if node.connected { "connected" } else { "not connected" };
        (node.name, format!("{} {help}", node.role))
    });
    matching(current, named)
}

/// Kinds that take new commands.
pub(crate) fn kinds(current: &OsStr) -> Vec<CompletionCandidate> {
    let kinds = ask(async |client| client.call::<Page<Kind>>("kinds.list", &json!({})).await.ok());
    let kinds = kinds.map(|page| page.items).unwrap_or_default().into_iter();
    matching(current, kinds.map(|kind| (kind.name, kind.manifest["summary"].as_str().unwrap_or_default().to_owned())))
}

/// Batches that are not over.
pub(crate) fn batches(current: &OsStr) -> Vec<CompletionCandidate> {
    let batches = ask(async |client| {
        let request = json!({ "tenantId": client.tenant().await.ok()?, "limit": 200 });
        client.call::<Page<Batch>>("commandBatches.list", &request).await.ok()
    });
    let batches = batches.map(|page| page.items).unwrap_or_default().into_iter();
    let open = batches.filter(|batch| batch.closed_at.is_none());
    matching(current, open.map(|batch| (batch.batch_id, format!("{}: {}", batch.state, batch.reason))))
}

/// Webhooks, by id.
pub(crate) fn webhooks(current: &OsStr) -> Vec<CompletionCandidate> {
    let webhooks = ask(async |client| {
        let request = json!({ "tenantId": client.tenant().await.ok()? });
        client.call::<Page<Webhook>>("webhooks.list", &request).await.ok()
    });
    let webhooks = webhooks.map(|page| page.items).unwrap_or_default().into_iter();
    matching(current, webhooks.map(|it| (it.id, format!("{} {}", it.state, it.url))))
}

/// Names of contexts.
pub(crate) fn contexts(current: &OsStr) -> Vec<CompletionCandidate> {
    let contexts = contexts::path().and_then(|path| Contexts::read(&path)).unwrap_or_default();
    matching(current, contexts.contexts.into_iter().map(|(name, context)| (name, context.url)))
}

/// Asks the server of the environment and the current context; flags of the line that is typed are not looked at.
fn ask<T>(question: impl AsyncFnOnce(&Client) -> Option<T>) -> Option<T> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let connect = Connect {
        url: variable("BETTER_COMPUTE_URL"),
        token_file: variable("BETTER_COMPUTE_TOKEN_FILE").map(Into::into),
        tenant: variable("BETTER_COMPUTE_TENANT"),
        ca_file: variable("BETTER_COMPUTE_CA_FILE").map(Into::into),
        context: variable("BETTER_COMPUTE_CONTEXT"),
    };
    let client = Client::new(connect.target().ok()?, PATIENCE).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE.timeout, question(&client)).await.ok()? });
    runtime.shutdown_background();
    answer
}

fn matching(current: &OsStr, named: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let named = named.filter(|(name, _)| name.starts_with(&*current));
    named.map(|(name, help)| CompletionCandidate::new(name).help((!help.is_empty()).then(|| help.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_like_the_word_is_offered() {
        let named = ["gpu-17", "gpu-18", "cpu-1"].map(|name| (name.to_owned(), String::new()));
        let offered = matching(OsStr::new("gpu"), named.into_iter());
        let offered: Vec<_> = offered.iter().map(|candidate| candidate.get_value().to_owned()).collect();
        assert_eq!(offered, ["gpu-17", "gpu-18"]);
    }
}
