//! `better-compute remediation …`: what the control plane tried by itself to mend nodes.
//!
//! **Invariant:** only what a person decided is cleared: a node is named, one at a time.

use std::process::ExitCode;

use bc_host::api::types::{ClearRemediations, Cleared, ListRemediations, Remediation, RemediationHold, Remediations};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::{json, to_value};
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, distance, moment};
use crate::{complete, node, output, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum RemediationCommand {
    /// List attempts, newest first, or with --holds the nodes that are left alone, and why
    List(List),
    /// Let a node go on after an attempt of which nobody could tell how it ended
    ///
    /// Look at the node first. What was tried counts on.
    Clear(Clear),
}

/// Which ones.
#[derive(Debug, Args)]
pub struct List {
    /// Only this node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: Option<String>,
    /// List the nodes that have something and are left alone for now
    #[arg(long, conflicts_with = "limit")]
    holds: bool,
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
pub struct Clear {
    /// The node, by id or name
    #[arg(value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    #[command(flatten)]
    connect: Connect,
}

impl RemediationCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.execute().await?,
            Self::Clear(clear) => clear.execute().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let node_id = match &self.node {
            Some(name) => Some(node::resolve(&client, name).await?),
            None => None,
        };
        let request = ListRemediations { tenant_id: client.tenant().await?, node_id, ..ListRemediations::default() };
        if self.holds {
            let found: Remediations = client.call("remediations.list", &request).await?;
            self.output.list(&found.holds, shell::now());
        } else {
            let request = to_value(request)?;
            let found: Vec<Remediation> = client.pages("remediations.list", request, self.limit).await?;
            self.output.list(&found, shell::now());
        }
        Ok(())
    }
}

impl Clear {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let (tenant_id, node_id) = (client.tenant().await?, node::resolve(&client, &self.node).await?);
        let request = ClearRemediations { tenant_id, node_id };
        let Cleared { cleared } = client.call("remediations.clear", &json!(request)).await?;
        output::say(&match cleared {
            0 => format!("{} has no attempt of an unclear outcome", self.node),
            1 => format!("{} goes on: 1 attempt was cleared", self.node),
            many => format!("{} goes on: {many} attempts were cleared", self.node),
        });
        Ok(())
    }
}

impl Shown for Remediation {
    const HEADER: &'static [&'static str] = &["NODE", "AILMENT", "ATTEMPT", "OUTCOME", "REASON", "STARTED", "COMMAND"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![
            self.node_id.clone(),
            self.ailment.clone(),
            self.attempt.to_string(),
            self.outcome.clone() + if self.cleared_at.is_some() { ", cleared" } else { "" },
            if self.reason.is_empty() { "–".to_owned() } else { self.reason.clone() },
            distance(self.started_at, now),
            self.command_id.clone(),
        ]
    }

    fn name(&self) -> String {
        self.command_id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let at = |at: Option<OffsetDateTime>| at.map(|at| moment(Some(at), now)).unwrap_or_default();
        vec![
            ("node", self.node_id.clone()),
            ("ailment", self.ailment.clone()),
            ("attempt", self.attempt.to_string()),
            ("gpus", self.gpus.join(", ")),
            ("outcome", self.outcome.clone()),
            ("reason", self.reason.clone()),
            ("command", self.command_id.clone()),
            ("batch", self.batch_id.clone()),
            ("started", moment(Some(self.started_at), now)),
            ("ended", at(self.ended_at)),
            ("cleared", at(self.cleared_at)),
            ("by", self.cleared_by.clone().unwrap_or_default()),
        ]
    }
}

impl Shown for RemediationHold {
    const HEADER: &'static [&'static str] = &["NODE", "AILMENT", "WHY", "SINCE"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![self.node_id.clone(), self.ailment.clone(), self.why.clone(), distance(self.since, now)]
    }

    fn name(&self) -> String {
        self.node_id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("node", self.node_id.clone()),
            ("ailment", self.ailment.clone()),
            ("why", self.why.clone()),
            ("since", moment(Some(self.since), now)),
        ]
    }
}
