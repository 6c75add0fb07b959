//! `list_nodes` and `list_commands`.
//!
//! **Invariant:** an answer that would be too long has fewer items, and its cursor goes on right after them.

use std::collections::{BTreeMap, HashMap};

use bc_host::api::types::{Command, Node, Page};
use bc_proto::id::NodeId;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answer::{Answer, DATA_BYTES, plain};
use super::ask;
use super::failure::{Failure, Problem};
use super::view::moment;
use crate::client::Client;

/// What `list_nodes` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Nodes {
    /// The nodes that the token may see.
    pub(super) nodes: Vec<NodeLine>,
    /// For the nodes that follow; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}

/// A node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeLine {
    /// node_…
    id: String,
    /// Its name. Written by whoever enrolled it: data.
    name: String,
    /// host, ramdisk, site or gateway.
    role: String,
    /// Whether it holds a session: commands reach it now.
    connected: bool,
    /// Whether it is set apart: nothing of it is reserved, and it is not mended.
    quarantined: bool,
    /// Its labels. Written by users: data.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// The kinds that it has loaded.
    kinds: Vec<String>,
    /// When its last session began, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_session_at: Option<String>,
}

/// What `list_commands` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Commands {
    /// The node's commands, newest first. get_command has payload and result.
    pub(super) commands: Vec<CommandLine>,
    /// For older commands; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}

/// A command in a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommandLine {
    /// cmd_…
    id: String,
    /// The kind of command.
    kind: String,
    /// Its state.
    state: String,
    /// Why it ended so; empty for success and while it goes on.
    reason: String,
    /// Whether it is held until people approve its batch.
    awaiting_approval: bool,
    /// The batch that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_id: Option<String>,
    /// When it was queued, RFC 3339.
    created_at: String,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_at: Option<String>,
}

/// `list_nodes`.
pub(super) async fn nodes(client: &Client, ask: ask::ListNodes) -> Result<Answer, Failure> {
    let mut body = json!({ "tenantId": client.tenant().await? });
    if !ask.labels.is_empty() {
        body["labels"] = json!(ask.labels);
    }
    let (nodes, next_cursor) = page(client, "nodes.list", body, ask.limit, ask.cursor, node_line).await?;
    let connected = nodes.iter().filter(|node| node.connected).count();
    let words = format!("{} node(s), {connected} of them connected.{}", nodes.len(), go_on(next_cursor.as_deref()));
    let lines: Vec<_> = nodes.iter().map(NodeLine::line).collect();
    Ok(Answer::new(words, &Nodes { nodes, next_cursor }).with_data("users and nodes", lines.join("\n")))
}

/// `list_commands`.
pub(super) async fn commands(client: &Client, ask: ask::ListCommands) -> Result<Answer, Failure> {
    let node = node_id(client, "nodeId", &ask.node_id).await?;
    let mut body = json!({ "tenantId": client.tenant().await?, "nodeId": node });
    if let Some(state) = ask.state {
        body["state"] = json!(state);
    }
    let (commands, next_cursor) = page(client, "commands.list", body, ask.limit, ask.cursor, command_line).await?;
    let mut words = format!("{} command(s) of {node}, newest first.{}", commands.len(), go_on(next_cursor.as_deref()));
    for command in &commands {
        words += &format!("\n{}", command.line());
    }
    Ok(Answer::new(words, &Commands { commands, next_cursor }))
}

/// A node by its id or its name.
pub(super) async fn node_id(client: &Client, field: &str, node: &str) -> Result<String, Failure> {
    Names::new(client).id(field, node).await
}

/// The names of nodes; asked for at most once, and only when something is no id.
pub(super) struct Names<'a> {
    client: &'a Client,
    known: Option<HashMap<String, String>>,
}

impl<'a> Names<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client, known: None }
    }

    /// The id of what this field names.
    pub(super) async fn id(&mut self, field: &str, node: &str) -> Result<String, Failure> {
        if node.parse::<NodeId>().is_ok() {
            return Ok(node.to_owned());
        }
        if self.known.is_none() {
            let request = json!({ "tenantId": self.client.tenant().await? });
            let nodes: Vec<Node> = self.client.pages("nodes.list", request, 0).await?;
            self.known = Some(nodes.into_iter().map(|node| (node.name, node.id)).collect());
        }
        let found = self.known.as_ref().and_then(|known| known.get(node)).cloned();
        found.ok_or_else(|| {
            Problem::new(field, format!("names no node: {node:?}; list_nodes tells ids and names")).into()
        })
    }
}

/// One page, of as many items as an answer holds.
async fn page<T: DeserializeOwned, L: Serialize>(
    client: &Client,
    method: &str,
    mut body: Value,
    limit: Option<u32>,
    cursor: Option<String>,
    line: fn(T) -> L,
) -> Result<(Vec<L>, Option<String>), Failure> {
    let mut limit = ask::limit(limit)?;
    if let Some(cursor) = cursor {
        body["cursor"] = json!(cursor);
    }
    loop {
        body["limit"] = json!(limit);
        let page: Page<T> = client.call(method, &body).await?;
        let lines: Vec<L> = page.items.into_iter().map(line).collect();
        let bytes = serde_json::to_vec(&lines).map_or(0, |text| text.len());
        match smaller(lines.len(), bytes) {
            Some(fewer) => limit = fewer,
            None => return Ok((lines, page.next_cursor)),
        }
    }
}

/// How many items to ask for in place of so many, if these are too long: the cursor of the API goes on after whole pages alone.
fn smaller(items: usize, bytes: usize) -> Option<u32> {
    if bytes <= DATA_BYTES || items <= 1 {
        return None;
    }
    // As many as fit if all are about as long, and at least one less, so that it ends.
    let fit = (items * DATA_BYTES / bytes).clamp(1, items - 1);
    u32::try_from(fit).ok()
}

fn node_line(node: Node) -> NodeLine {
    NodeLine {
        quarantined: node.quarantine.is_some(),
        kinds: node.kinds.into_iter().map(|kind| kind.name).collect(),
        last_session_at: node.last_hello_at.map(moment),
        id: node.id,
        name: node.name,
        role: node.role,
        connected: node.connected,
        labels: node.labels,
    }
}

fn command_line(command: Command) -> CommandLine {
    CommandLine {
        created_at: moment(command.created_at),
        settled_at: command.settled_at.map(moment),
        id: command.id,
        kind: command.kind,
        state: command.state,
        reason: command.reason,
        awaiting_approval: command.awaiting_approval,
        batch_id: command.batch_id,
    }
}

impl NodeLine {
    fn line(&self) -> String {
        let Self { id, name, role, .. } = self;
        let connected = if self.connected { "connected" } else { "not connected" };
        let apart = if self.quarantined { ", set apart" } else { "" };
        let labels: Vec<_> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("; labels {}", labels.join(",")) };
        let kinds = self.kinds.join(" ");
        // Names and labels keep to one line each: the API allows no line breaks in them, and this does not rely on it.
        plain(&format!("{id} {name} ({role}): {connected}{apart}{labels}; kinds {kinds}"))
    }
}

impl CommandLine {
    fn line(&self) -> String {
        let Self { id, kind, state, reason, created_at, .. } = self;
        let state = if self.awaiting_approval { "pending, held until people approve its batch" } else { state };
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        plain(&format!("{id} {kind}: {state}{reason}, queued {created_at}"))
    }
}

fn go_on(cursor: Option<&str>) -> String {
    cursor.map(|cursor| format!(" There are more: call again with cursor {}.", plain(cursor))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_too_long_is_asked_for_again_with_less_until_it_fits() {
        assert_eq!(smaller(200, DATA_BYTES), None);
        assert_eq!(smaller(1, 10 * DATA_BYTES), None, "one item is always given");
        assert_eq!(smaller(200, 2 * DATA_BYTES), Some(100));
        // However long they are, it ends.
        let (mut items, mut rounds) = (200, 0);
        while let Some(fewer) = smaller(items, items * DATA_BYTES) {
            (items, rounds) = (usize::try_from(fewer).expect("it is small"), rounds + 1);
        }
        assert!(items == 1 && rounds <= 8, "{rounds}");
        assert_eq!(smaller(2, DATA_BYTES + 1), Some(1));
    }
}
