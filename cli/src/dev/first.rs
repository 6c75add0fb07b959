//! The first steps that a person would take, taken: kinds, node, and two commands through the queue.
//!
//! **Invariant:** it goes through the API, as everybody else does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bc_daemon::join::{self, Join};
use bc_host::api::types::{
    CommandRef, CreateJoinToken, JoinToken, LabelNode, Node, NodeRef, RegisterKind, RunCommand, WatchEvents,
};
use bc_host::registry::NEVER;
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::layout::{Gpus, KindFile, Layout};
use crate::client::events::Events;
use crate::client::{CallError, Client};
use crate::commands::follow::{Pace, follow};
use crate::commands::progress::Progress;
use crate::commands::seen::Seen;
use crate::contexts::write_private;
use crate::exit::Ending;
use crate::{output, shell};

/// How long a node on this machine may take to connect.
const CONNECT: Duration = Duration::from_mins(1);

/// Registers the kinds, active and, where that can be, open to everybody who may run commands; answers those that are registered now. A kind that
/// was built anew with other bytes under the same version is left out: what is registered stays.
pub(super) async fn register(client: &Client, kinds: Vec<KindFile>) -> anyhow::Result<Vec<KindFile>> {
    let mut registered = Vec::new();
    for kind in kinds {
        let exposed = Some(!NEVER.contains(&kind.name.as_str()));
        let query = RegisterKind { activate: true, exposed, accept_wider: true, ..RegisterKind::default() };
        match client.register(&query, kind.bytes.clone()).await {
            Ok(_) => registered.push(kind),
            Err(CallError::Refused(refusal)) if refusal.code == "CONFLICT" => output::complain(&format!(
                "{name} {} was registered with other bytes, and a version does not change: that component goes on serving \
                 (sha256:{}).\n  → to use what was built now, raise `version` in its kind.toml and build it again, or \
                 begin anew with another --dir",
                refusal.details["version"].as_str().unwrap_or_default(),
                refusal.details["digest"].as_str().unwrap_or_default(),
                name = kind.name,
            )),
            Err(error) => return Err(error).with_context(|| format!("{} was not registered", kind.name)),
        }
    }
    let names: Vec<_> = registered.iter().map(|kind| kind.name.as_str()).collect();
    if !names.is_empty() {
        output::complain(&format!("registered {}", names.join(", ")));
    }
    Ok(registered)
}

/// The node's id: of the identity that is there, or of a new one.
pub(super) async fn join(client: &Client, layout: &Layout, gateway_url: &str) -> anyhow::Result<String> {
    let tenant_id = client.tenant().await?;
    let known = identity(layout)?;
    if let Some(node_id) = &known {
        let request = NodeRef { tenant_id: tenant_id.clone(), node_id: node_id.clone() };
        match client.call::<Node>("nodes.get", &request).await {
            Ok(_) => return Ok(node_id.clone()),
            // It was deleted, or its database was.
            Err(error) if error.code() == Some("NOT_FOUND") => {}
            Err(error) => return Err(error.into()),
        }
    }
    let request = CreateJoinToken { tenant_id, node_id: None, expires_in_seconds: Some(300), allowed_kinds: None };
    let made: JoinToken = client.call("nodes.createJoinToken", &request).await?;
    let token = layout.node("join.token");
    write_private(&token, made.token.as_bytes()).with_context(|| format!("{} cannot be written", token.display()))?;
    let arguments = Join {
        gateway: vec![gateway_url.parse().context("the gateway has no address")?],
        token_file: Some(token.clone()),
        token: None,
        name: None,
        role: None,
        again: known.is_some(),
        state_dir: None,
        config: Some(layout.node_config()),
    };
    let joined = join::join(&arguments).await;
    let _ = std::fs::remove_file(&token);
    Ok(joined.context("this machine did not join")?.node.to_string())
}

fn identity(layout: &Layout) -> anyhow::Result<Option<String>> {
    #[derive(Deserialize)]
    struct Card {
        node: String,
    }
    let path = layout.identity();
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
    };
    let card: Card = serde_json::from_slice(&text).with_context(|| format!("{} does not fit", path.display()))?;
    Ok(Some(card.node))
}

/// Waits until the node is connected: events say when to look, and a slow poll looks all the same.
pub(super) async fn connected(client: &Arc<Client>, node: &str, layout: &Layout) -> anyhow::Result<()> {
    let tenant_id = client.tenant().await?;
    let request = NodeRef { tenant_id: tenant_id.clone(), node_id: node.to_owned() };
    let query = WatchEvents { tenant_id, node_id: Some(node.to_owned()), ..WatchEvents::default() };
    let mut events = Some(Events::watch(Arc::clone(client), query));
    let mut polls = interval(Duration::from_secs(1));
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looked = async {
        loop {
            if client.call::<Node>("nodes.get", &request).await?.connected {
                return anyhow::Ok(());
            }
            let over = async {
                match &mut events {
                    Some(events) => events.next().await.is_none_or(|said| said.is_err()),
                    None => std::future::pending().await,
                }
            };
            let over = tokio::select! {
                over = over => over,
                _ = polls.tick() => false,
            };
            if over {
                events = None;
            }
        }
    };
    let log = layout.node("bcd.log");
    let waited = timeout(CONNECT, looked).await;
    waited.with_context(|| format!("the node did not connect within a minute; see {}", log.display()))?
}

/// Labels the node with what stands behind its GPUs.
pub(super) async fn label(client: &Client, node: &str, gpus: Gpus) -> anyhow::Result<()> {
    let labels = [("gpus".to_owned(), Some(gpus.label().to_owned()))].into();
    let request = LabelNode { tenant_id: client.tenant().await?, node_id: node.to_owned(), labels };
    client.call::<Node>("nodes.label", &request).await?;
    Ok(())
}

/// Runs a kind through the queue and prints what came of it.
pub(super) async fn run(client: &Arc<Client>, node: &str, kind: &str) -> anyhow::Result<Ending> {
    let tenant_id = client.tenant().await?;
    let request = RunCommand {
        tenant_id: tenant_id.clone(),
        node_id: node.to_owned(),
        kind: kind.to_owned(),
        payload: serde_json::json!({}),
        idempotency_key: format!("dev-{}", hex::encode(shell::random::<16>())),
        not_after_seconds: None,
        batch_id: None,
        min_generation: None,
    };
    let queued: Seen = client.call("commands.run", &request).await?;
    let reference = CommandRef { tenant_id, node_id: node.to_owned(), command_id: queued.command.id.clone() };
    let never = std::future::pending();
    let followed =
        follow(Arc::clone(client), &reference, Some(queued), Pace::default(), &mut Progress::silent(), never).await;
    if let Some(error) = &followed.error {
        output::complain(&format!("error: {error}"));
    }
    if let Some(seen) = &followed.seen {
        output::complain(&seen.line());
        output::say(&seen.outcome());
    }
    Ok(followed.ending)
}
