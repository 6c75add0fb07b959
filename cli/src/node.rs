//! `better-compute node …`.
//!
//! **Invariant:** a node is named by its id or by its name, everywhere.

mod spec;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use bc_daemon::join::{self, Join};
use bc_host::api::types::{
    Condition, CreateJoinToken, JoinToken, LabelNode, Node, NodeCertificate, NodeCertificates, NodeRef, QuarantineNode,
    RevokeCertificate,
};
use bc_proto::id::NodeId;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Format, Output, Shown, distance, moment};
use crate::{complete, contexts, output, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List nodes
    List(List),
    /// Show a node
    #[command(alias = "show")]
    Get(One),
    /// Set labels of a node, or take them away
    Label(Label),
    /// Set a node apart: nothing of it is reserved, it is not mended, and no destructive command is taken for it
    Quarantine(Apart),
    /// Let a node go that is set apart
    Release(One),
    /// Delete a node: its certificate is worth nothing then, and its pending commands are cancelled
    Delete(One),
    /// List a node's certificates, the newest first
    Certificates(One),
    /// Revoke a node's certificates: its session ends at once, and it has to join again
    Revoke(Revoke),
    /// Show and set what a node should be
    #[command(subcommand)]
    Spec(spec::SpecCommand),
    /// Make a token that one machine can join with, once
    CreateJoinToken(Create),
    /// Make this machine a node, as `bcd join` does
    ///
    /// Exit codes: 0 joined, 1 not joined.
    Join(Box<Join>),
}

/// Which nodes.
#[derive(Debug, Args)]
pub struct List {
    /// Only those with this label, `rack=7`. May be repeated
    #[arg(long = "label", short = 'l', value_name = "NAME=VALUE")]
    labels: Vec<String>,
    /// At most as many; 0 for all
    #[arg(long, default_value_t = 0)]
    limit: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which node.
#[derive(Debug, Args)]
pub struct One {
    /// The node, by id or name
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which certificates.
#[derive(Debug, Args)]
pub struct Revoke {
    /// The node, by id or name
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// Only the certificate with this SHA-256, 64 hexadecimal digits; without it, all that the node has
    #[arg(long, value_name = "SHA256")]
    fingerprint: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which node, and why.
#[derive(Debug, Args)]
pub struct Apart {
    #[command(flatten)]
    one: One,
    /// Why
    #[arg(long)]
    reason: String,
}

/// Which labels.
#[derive(Debug, Args)]
pub struct Label {
    /// `NAME=VALUE` sets, `NAME-` takes away
    #[arg(required = true, value_name = "LABEL")]
    labels: Vec<String>,
    /// The node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// What kind of token.
#[derive(Debug, Args)]
pub struct Create {
    /// The node that enrols again with it, in a new life; without it, a new node
    #[arg(long, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: Option<String>,
    /// How long it is good, from 1m to 24h; 1h by default
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    expires_in: Option<Duration>,
    /// The only kinds that the node may ever run. May be repeated
    #[arg(long = "allow-kind", value_name = "KIND", add = ArgValueCompleter::new(complete::kinds))]
    allowed_kinds: Vec<String>,
    /// Write the token to this file, for its owner alone, in place of printing it
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl NodeCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.execute().await?,
            Self::Get(one) => {
                let (client, reference) = one.reach().await?;
                one.output.one(&client.call::<Node>("nodes.get", &reference).await?, shell::now());
            }
            Self::Quarantine(Apart { one, reason }) => {
                let (client, NodeRef { tenant_id, node_id }) = one.reach().await?;
                let request = QuarantineNode { tenant_id, node_id, reason };
                one.output.one(&client.call::<Node>("nodes.quarantine", &request).await?, shell::now());
            }
            Self::Release(one) => {
                let (client, reference) = one.reach().await?;
                one.output.one(&client.call::<Node>("nodes.release", &reference).await?, shell::now());
            }
            Self::Delete(one) => {
                let (client, reference) = one.reach().await?;
                client.call::<Value>("nodes.delete", &reference).await?;
                output::complain(&format!("{} is deleted", reference.node_id));
            }
            Self::Certificates(one) => {
                let (client, reference) = one.reach().await?;
                let all: NodeCertificates = client.call("nodes.certificates", &reference).await?;
                one.output.list(&all.items, shell::now());
            }
            Self::Revoke(revoke) => revoke.execute().await?,
            Self::Label(label) => label.execute().await?,
            Self::Spec(command) => return command.execute().await,
            Self::CreateJoinToken(create) => create.execute().await?,
            Self::Join(arguments) => output::say(&join::join(&arguments).await?.to_string()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl One {
    async fn reach(&self) -> anyhow::Result<(Client, NodeRef)> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let reference = NodeRef { tenant_id: client.tenant().await?, node_id: resolve(&client, &self.node).await? };
        Ok((client, reference))
    }
}

impl Revoke {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let node_id = resolve(&client, &self.node).await?;
        let request = RevokeCertificate { tenant_id: client.tenant().await?, node_id, fingerprint: self.fingerprint };
        let all: NodeCertificates = client.call("nodes.revokeCertificate", &request).await?;
        self.output.list(&all.items, shell::now());
        if all.items.iter().all(|it| it.revoked_at.is_some()) {
            output::complain(&format!(
                "{node} has no certificate any more. To make the machine a node again: better-compute node create-join-token \
                 --node {node}, and on the machine: bcd join --again",
                node = self.node
            ));
        }
        Ok(())
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let mut labels = BTreeMap::new();
        for label in &self.labels {
            let Some((name, value)) = label.split_once('=') else {
                bail!("--label {label:?} has no `=`; write rack=7");
            };
            labels.insert(name, value);
        }
        let mut request = json!({ "tenantId": client.tenant().await? });
        if !labels.is_empty() {
            request["labels"] = json!(labels);
        }
        let nodes: Vec<Node> = client.pages("nodes.list", request, self.limit).await?;
        self.output.list(&nodes, shell::now());
        Ok(())
    }
}

impl Label {
    async fn execute(self) -> anyhow::Result<()> {
        let labels = changes(&self.labels)?;
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let request =
            LabelNode { tenant_id: client.tenant().await?, node_id: resolve(&client, &self.node).await?, labels };
        let node: Node = client.call("nodes.label", &request).await?;
        self.output.one(&node, shell::now());
        Ok(())
    }
}

/// `NAME=VALUE` sets, `NAME-` takes away.
fn changes(words: &[String]) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let change = |word: &String| match (word.split_once('='), word.strip_suffix('-')) {
        (Some((name, value)), _) => Ok((name.to_owned(), Some(value.to_owned()))),
        (None, Some(name)) if !name.is_empty() => Ok((name.to_owned(), None)),
        _ => bail!("{word:?} is no label; write rack=7 to set one, rack- to take it away"),
    };
    words.iter().map(change).collect()
}

impl Create {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let node_id = match &self.node {
            Some(node) => Some(resolve(&client, node).await?),
            None => None,
        };
        let request = CreateJoinToken {
            tenant_id: client.tenant().await?,
            node_id,
            expires_in_seconds: self.expires_in.map(|span| u32::try_from(span.as_secs()).unwrap_or(u32::MAX)),
            allowed_kinds: Some(self.allowed_kinds).filter(|kinds| !kinds.is_empty()),
        };
        let made: JoinToken = client.call("nodes.createJoinToken", &request).await?;
        match &self.to {
            Some(file) => {
                contexts::write_private(file, made.token.as_bytes())
                    .with_context(|| format!("{} cannot be written", file.display()))?;
                output::complain(&format!(
                    "on the machine: bcd join --gateway {} --token-file {}",
                    made.gateway_url,
                    file.display()
                ));
            }
            None if self.output.format() == Format::Table => {
                output::say(&made.token);
                output::complain(&format!(
                    "good until {}, for one machine. On it, give the token on standard input to:\n  bcd join --gateway {} \
                     --token-file -",
                    moment(Some(made.expires_at), shell::now()),
                    made.gateway_url
                ));
            }
            None => self.output.one(&made, shell::now()),
        }
        Ok(())
    }
}

/// The id of a node that is named by id or by name.
pub(crate) async fn resolve(client: &Client, node: &str) -> anyhow::Result<String> {
    if node.parse::<NodeId>().is_ok() {
        return Ok(node.to_owned());
    }
    let request = json!({ "tenantId": client.tenant().await? });
    let nodes: Vec<Node> = client.pages("nodes.list", request, 0).await?;
    match nodes.into_iter().find(|known| known.name == node || known.id == node) {
        Some(known) => Ok(known.id),
        None => bail!("no node is called {node:?}; `better-compute node list` shows those that are"),
    }
}

impl Shown for Node {
    const HEADER: &'static [&'static str] = &["NAME", "ID", "CONNECTED", "ROLE", "BCD", "LABELS", "LAST SESSION"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![
            self.name.clone(),
            self.id.clone(),
            match (self.connected, &self.quarantine) {
                (true, None) => "yes".to_owned(),
                (false, None) => "no".to_owned(),
                (true, Some(_)) => "yes, set apart".to_owned(),
                (false, Some(_)) => "no, set apart".to_owned(),
            },
            self.role.clone(),
            self.bcd_version.clone().unwrap_or_else(|| "–".to_owned()),
            labels(self),
            self.last_hello_at.map_or_else(|| "never".to_owned(), |at| distance(at, now)),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let kinds: Vec<_> = self.kinds.iter().map(|kind| format!("{} {}", kind.name, kind.version)).collect();
        vec![
            ("name", self.name.clone()),
            ("id", self.id.clone()),
            ("connected", if self.connected { "yes" } else { "no" }.to_owned()),
            ("last session", moment(self.last_hello_at, now)),
            ("epoch", self.session_epoch.to_string()),
            ("role", self.role.clone()),
            ("incarnation", self.incarnation.to_string()),
            ("labels", labels(self)),
            ("bcd", self.bcd_version.clone().unwrap_or_default()),
            ("kinds", kinds.join(", ")),
            ("conditions", conditions(self)),
            ("left alone", left_alone(self)),
            ("set apart", set_apart(self)),
            ("enrolled", moment(Some(self.created_at), now)),
        ]
    }
}

fn conditions(node: &Node) -> String {
    let line = |it: &Condition| {
        let of = if it.subject.is_empty() { String::new() } else { format!(" of {}", it.subject) };
        format!("{}{of}: {}", it.kind, it.message)
    };
    node.conditions.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Why the control plane does not mend it by itself, if it would have to.
fn left_alone(node: &Node) -> String {
    node.remediation_hold.as_ref().map(|it| format!("{}: {}", it.ailment, it.why)).unwrap_or_default()
}

/// Why it is set apart, if it is.
fn set_apart(node: &Node) -> String {
    let by = |it: &bc_host::api::types::Quarantine| it.workflow_id.clone().unwrap_or_else(|| it.by.clone());
    node.quarantine.as_ref().map(|it| format!("{} (by {})", it.reason, by(it))).unwrap_or_default()
}

fn labels(node: &Node) -> String {
    node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

impl Shown for NodeCertificate {
    const HEADER: &'static [&'static str] = &["FINGERPRINT", "INCARNATION", "KINDS", "EXPIRES", "REVOKED"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![
            self.fingerprint.clone(),
            self.incarnation.to_string(),
            self.allowed_kinds.as_ref().map_or_else(|| "all".to_owned(), |kinds| kinds.join(", ")),
            distance(self.not_after, now),
            self.revoked_at.map_or_else(|| "no".to_owned(), |at| distance(at, now)),
        ]
    }

    fn name(&self) -> String {
        self.fingerprint.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("fingerprint", self.fingerprint.clone()),
            ("incarnation", self.incarnation.to_string()),
            ("key", self.key.clone().unwrap_or_else(|| "not Ed25519".to_owned())),
            ("kinds", self.allowed_kinds.as_ref().map_or_else(|| "all".to_owned(), |kinds| kinds.join(", "))),
            ("issued", moment(Some(self.not_before), now)),
            ("expires", moment(Some(self.not_after), now)),
            ("revoked", moment(self.revoked_at, now)),
        ]
    }
}

impl Shown for JoinToken {
    const HEADER: &'static [&'static str] = &["TOKEN", "GATEWAY", "EXPIRES"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![self.token.clone(), self.gateway_url.clone(), distance(self.expires_at, now)]
    }

    fn name(&self) -> String {
        self.token.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("token", self.token.clone()),
            ("gateway", self.gateway_url.clone()),
            ("expires", moment(Some(self.expires_at), now)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format;

    #[test]
    fn labels_are_set_and_taken_away() {
        let words = ["rack=7", "old-", "empty=", "a=b-"].map(String::from);
        let changes = changes(&words).expect("labels");
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(changes["rack"], some("7"));
        assert_eq!((&changes["old"], &changes["empty"], &changes["a"]), (&None, &some(""), &some("b-")));
        for wrong in ["-", "rack", ""] {
            assert!(super::changes(&[wrong.to_owned()]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn nodes_are_shown_in_every_format() {
        let document = |name: &str, connected| {
            json!({
                "id": format!("node_{name}"), "tenantId": "tenant_1", "name": name, "labels": { "gpus": "simulated" },
                "role": "host", "incarnation": 1, "connected": connected, "sessionEpoch": 3, "bcdVersion": "1.0.0",
                "kinds": [{ "name": "diag.nvml", "version": "1.2.0", "digest": "ab" }],
                "conditions": [{ "type": "RowRemapPending", "subject": "GPU-1", "message": "rows wait",
                                 "since": "2024-10-03T00:00:00Z" }],
                "createdAt": "2024-10-01T00:00:00Z", "lastHelloAt": "2024-10-03T23:00:00Z",
            })
        };
        let nodes: Vec<Node> = ["gpu-17", "gpu-18"]
            .iter()
            .zip([true, false])
            .map(|(name, connected)| serde_json::from_value(document(name, connected)).expect("a node"))
            .collect();
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        let mut text = String::new();
        for format in [Format::Table, Format::Json, Format::Ndjson, Format::Name] {
            text += &format!("{format:?}\n{}\n\n", format::list(&nodes, format, now));
        }
        text += &format::one(&nodes[0], Format::Table, now);
        insta::assert_snapshot!(text);
        assert_eq!(format::list::<Node>(&[], Format::Table, now), "none");
        assert_eq!(format::list::<Node>(&[], Format::Json, now), "[]");
        assert_eq!(format::list::<Node>(&[], Format::Name, now), "");
    }
}
