//! `better-compute batch …`: propose batches of destructive commands, and approve them.
//!
//! **Invariant:** an approver's key is read by `batch approve` alone, signs here, and goes nowhere.

mod approve;
mod paper;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use bc_host::api::types::{Batch, BatchLeaf, BatchRef, CreateBatch, RejectBatch};
use bc_proto::canonical;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use time::OffsetDateTime;

use self::approve::{Approve, Submit};
use self::paper::Paper;
use crate::client::{Client, Connect, Patience};
use crate::format::{Format, Output, Shown, distance, moment};
use crate::{complete, node, output, payload, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum BatchCommand {
    /// Propose a batch: which kinds, on which nodes
    Create(Create),
    /// List batches, newest first
    List(List),
    /// Show a batch, its approvals and its whole scope
    Show(One),
    /// Print all that somebody needs to approve it on a machine without a network
    Export(One),
    /// Show a batch's whole scope, check it against what is signed, and sign it with your key
    Approve(Approve),
    /// Hand in an approval that was signed elsewhere
    Submit(Submit),
    /// Reject a batch: what of it was not sent yet is cancelled
    Reject(Reject),
}

/// What to propose.
#[derive(Debug, Args)]
pub struct Create {
    /// Why, for those who approve
    #[arg(long)]
    reason: String,
    /// A kind that it allows on each of the nodes. May be repeated
    #[arg(long = "kind", value_name = "KIND", add = ArgValueCompleter::new(complete::kinds))]
    kinds: Vec<String>,
    /// A node that it allows the kinds on, by id or name. May be repeated
    #[arg(long = "node", short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    nodes: Vec<String>,
    /// Allow this payload and no other: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The scope in place of these, a JSON list: [{"subject":"node_…","kind":"…","payloadSha256":"…"}]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kinds", "nodes", "payload"])]
    scope: Option<PathBuf>,
    /// How long its commands may be accepted, up to 7d; 24h by default
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    expires: Option<Duration>,
    /// The idempotency key: the same key is the same batch. A new one by default
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which batches.
#[derive(Debug, Args)]
pub struct List {
    /// Only those in this state
    #[arg(long, value_parser = ["open", "approved", "rejected", "expired"])]
    state: Option<String>,
    /// At most as many; 0 for all
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which batch.
#[derive(Debug, Args)]
pub struct One {
    /// The batch, `batch_…`
    #[arg(add = ArgValueCompleter::new(complete::batches))]
    batch: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which batch, and why not.
#[derive(Debug, Args)]
pub struct Reject {
    #[command(flatten)]
    one: One,
    /// Why, for those who asked
    #[arg(long)]
    reason: String,
}

impl BatchCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(create) => create.execute().await?,
            Self::List(list) => list.execute().await?,
            Self::Show(one) => {
                let batch = one.get().await?;
                one.output.one(&batch, shell::now());
                if one.output.format() == Format::Table {
                    output::say(&format!("\n{}", Paper::of(&batch)?.leaves()));
                }
            }
            Self::Export(one) => {
                let paper = Paper::of(&one.get().await?)?;
                paper.check()?;
                output::say(&format!("{:#}", json!(paper)));
            }
            Self::Approve(approve) => approve.execute().await?,
            Self::Submit(submit) => submit.execute().await?,
            Self::Reject(Reject { one, reason }) => {
                let (client, BatchRef { tenant_id, batch_id }) = one.reach().await?;
                let batch: Batch =
                    client.call("commandBatches.reject", &RejectBatch { tenant_id, batch_id, reason }).await?;
                one.output.one(&batch, shell::now());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl One {
    async fn reach(&self) -> anyhow::Result<(Client, BatchRef)> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let reference = BatchRef { tenant_id: client.tenant().await?, batch_id: self.batch.clone() };
        Ok((client, reference))
    }

    async fn get(&self) -> anyhow::Result<Batch> {
        let (client, reference) = self.reach().await?;
        Ok(client.call("commandBatches.get", &reference).await?)
    }
}

impl Create {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let scope = match &self.scope {
            Some(file) => {
                let name = file.display();
                let text = std::fs::read_to_string(file).with_context(|| format!("{name} cannot be read"))?;
                serde_json::from_str(&text).with_context(|| format!("{name} is no scope"))?
            }
            None => self.product(&client).await?,
        };
        let key = self.key.unwrap_or_else(|| format!("cli-{}", hex::encode(shell::random::<16>())));
        output::complain(&format!("key: {key}"));
        let request = CreateBatch {
            tenant_id: client.tenant().await?,
            reason: self.reason,
            scope,
            idempotency_key: key,
            expires_in_seconds: self.expires.map(|span| u32::try_from(span.as_secs()).unwrap_or(u32::MAX)),
        };
        let batch: Batch = client.call("commandBatches.create", &request).await?;
        self.output.one(&batch, shell::now());
        Ok(())
    }

    /// Each kind on each node.
    async fn product(&self, client: &Client) -> anyhow::Result<Vec<BatchLeaf>> {
        if self.kinds.is_empty() || self.nodes.is_empty() {
            bail!("a batch needs a scope: give --kind and --node, or --scope FILE");
        }
        let payload_sha256 = match &self.payload {
            Some(text) => {
                let payload = payload::read(Some(text), &[])?;
                Some(canonical::sha256_hex(&canonical::to_vec(&payload)?))
            }
            None => None,
        };
        let mut scope = Vec::new();
        for name in &self.nodes {
            let subject = node::resolve(client, name).await?;
            for kind in &self.kinds {
                let (kind, payload_sha256) = (kind.clone(), payload_sha256.clone());
                scope.push(BatchLeaf { subject: subject.clone(), kind, payload_sha256 });
            }
        }
        Ok(scope)
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let mut request = json!({ "tenantId": client.tenant().await? });
        if let Some(state) = self.state {
            request["state"] = json!(state);
        }
        let batches: Vec<Batch> = client.pages("commandBatches.list", request, self.limit).await?;
        self.output.list(&batches, shell::now());
        Ok(())
    }
}

/// What is missing, in words.
fn missing(batch: &Batch) -> String {
    match (batch.state.as_str(), batch.missing) {
        ("open", Some(0)) => "none".to_owned(),
        ("open" | "approved", Some(missing)) if missing > 0 => format!("{missing} more"),
        ("open", None) => "nobody is asked".to_owned(),
        _ => String::new(),
    }
}

/// `2 of group a, 1 of anybody`.
fn policy(batch: &Batch) -> String {
    let parts = batch.policy.as_ref().and_then(|it| it.as_array()).into_iter().flatten();
    let part = |it: &serde_json::Value| match it["group"].as_str() {
        Some(group) => format!("{} of group {group}", it["count"]),
        None => format!("{} of anybody", it["count"]),
    };
    parts.map(part).collect::<Vec<_>>().join(", ")
}

impl Shown for Batch {
    const HEADER: &'static [&'static str] = &["ID", "STATE", "MISSING", "SIZE", "REQUESTED BY", "REASON", "EXPIRES"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        let Self { batch_id, state, size, requested_by, reason, expires_at, .. } = self;
        let (batch_id, state, requested_by) = (batch_id.clone(), state.clone(), requested_by.clone());
        vec![batch_id, state, missing(self), size.to_string(), requested_by, reason.clone(), distance(*expires_at, now)]
    }

    fn name(&self) -> String {
        self.batch_id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let approval = |it: &bc_host::api::types::BatchApproval| {
            let why = it.void.as_ref().map(|why| format!(", does not count: {why}")).unwrap_or_default();
            format!("{} until {}{why}", it.name, moment(Some(it.expires_at), now))
        };
        vec![
            ("id", self.batch_id.clone()),
            ("state", self.state.clone()),
            ("reason", self.reason.clone()),
            ("requested by", self.requested_by.clone()),
            ("created", moment(Some(self.created_at), now)),
            ("expires", moment(Some(self.expires_at), now)),
            ("takes", policy(self)),
            ("approvals", self.approvals.iter().map(approval).collect::<Vec<_>>().join("\n")),
            ("missing", missing(self)),
            ("closed", moment(self.closed_at, now)),
            ("rejected by", self.rejected_by.clone().unwrap_or_default()),
            ("rejection", self.rejection.clone().unwrap_or_default()),
            ("size", self.size.to_string()),
            ("root", self.document.root.clone()),
        ]
    }
}
