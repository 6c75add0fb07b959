//! `better-compute rollout …`: a release on its way to many nodes.
//!
//! **Invariant:** what is decided about steps, the control plane decides; this starts, shows, holds up and ends.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use bc_host::api::types::{ListReleases, ListRollouts, Page, Release, Rollout, RolloutNode, RolloutRef, StartRollout};
use clap::{Args, Subcommand};
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, distance, moment};
use crate::shell;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Bring a release to nodes, few at a time
    Start(Start),
    /// List rollouts, newest first
    List(List),
    /// Show a rollout's nodes, and where each stands
    Show(One),
    /// Begin no more steps for now; what is under way goes on
    Pause(One),
    /// Go on; failures so far count no more
    Resume(One),
    /// Begin no more steps for good; what is under way goes on, and nothing is taken back
    Cancel(One),
}

/// What goes where.
#[derive(Debug, Args)]
pub struct Start {
    /// The release: its SHA-256, or its version where that is one file
    release: String,
    /// Only nodes that have this label; may be given several times
    #[arg(long = "label", short = 'l', value_name = "NAME=VALUE")]
    labels: Vec<String>,
    /// How many nodes may be under way, or without a session, at once
    #[arg(long, default_value_t = 1)]
    max_unavailable: u32,
    /// How many may fail before it pauses by itself
    #[arg(long, default_value_t = 0)]
    max_failures: u32,
    /// Where waves end, in percent of the nodes: 5,25 makes three waves
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    waves: Vec<u32>,
    /// Nodes may get an older version than theirs
    #[arg(long)]
    allow_downgrade: bool,
    /// The same key again is the same rollout; by default each is a new one
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// How to list.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which rollout.
#[derive(Debug, Args)]
pub struct One {
    /// The rollout, `rollout_…`
    rollout: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl RolloutCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Start(start) => start.execute().await?,
            Self::List(list) => list.execute().await?,
            Self::Show(one) => {
                let (output, rollout) = one.call("rollouts.get").await?;
                output.list(&rollout.nodes, shell::now());
            }
            Self::Pause(one) => one.change("rollouts.pause").await?,
            Self::Resume(one) => one.change("rollouts.resume").await?,
            Self::Cancel(one) => one.change("rollouts.cancel").await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Start {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let mut labels = BTreeMap::new();
        for word in &self.labels {
            let Some((name, value)) = word.split_once('=') else { bail!("{word:?} is no label; write pool=train") };
            labels.insert(name.to_owned(), value.to_owned());
        }
        let request = StartRollout {
            tenant_id: client.tenant().await?,
            sha256: digest(&client, &self.release).await?,
            labels,
            max_unavailable: Some(self.max_unavailable),
            max_failures: Some(self.max_failures),
            waves: self.waves,
            allow_downgrade: self.allow_downgrade,
            idempotency_key: self.key.unwrap_or_else(|| format!("cli-{}", hex::encode(shell::random::<16>()))),
        };
        let rollout: Rollout = client.call("rollouts.start", &request).await?;
        self.output.one(&rollout, shell::now());
        Ok(())
    }
}

/// The digest of a release that was named by that or by its version.
async fn digest(client: &Client, name: &str) -> anyhow::Result<String> {
    if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(name.to_ascii_lowercase());
    }
    let releases: Page<Release> = client.call("releases.list", &ListReleases {}).await?;
    let found: Vec<_> = releases.items.iter().filter(|it| it.version == name).collect();
    match found.as_slice() {
        [one] => Ok(one.sha256.clone()),
        [] => bail!("there is no release {name}; `better-compute release list` shows them"),
        _ => {
            bail!("version {name} was pushed for several targets: name one by its SHA-256, as `release list` shows it")
        }
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let request = ListRollouts { tenant_id: client.tenant().await? };
        let rollouts: Page<Rollout> = client.call("rollouts.list", &request).await?;
        self.output.list(&rollouts.items, shell::now());
        Ok(())
    }
}

impl One {
    async fn call(self, method: &str) -> anyhow::Result<(Output, Rollout)> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let request = RolloutRef { tenant_id: client.tenant().await?, rollout_id: self.rollout };
        Ok((self.output, client.call(method, &request).await?))
    }

    async fn change(self, method: &str) -> anyhow::Result<()> {
        let (output, rollout) = self.call(method).await?;
        output.one(&rollout, shell::now());
        Ok(())
    }
}

fn state(state: &str, reason: &str) -> String {
    if reason.is_empty() { state.to_owned() } else { format!("{state}: {reason}") }
}

impl Shown for Rollout {
    const HEADER: &'static [&'static str] = &["ROLLOUT", "VERSION", "STATE", "AGE", "BY"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![
            self.id.clone(),
            self.version.clone(),
            state(&self.state, &self.reason),
            distance(self.created_at, now),
            self.requested_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let count = |step: &str| self.nodes.iter().filter(|node| node.step == step).count();
        vec![
            ("rollout", self.id.clone()),
            ("version", self.version.clone()),
            ("sha256", self.sha256.clone()),
            ("state", state(&self.state, &self.reason)),
            ("max unavailable", self.max_unavailable.to_string()),
            ("max failures", self.max_failures.to_string()),
            ("nodes", self.nodes.len().to_string()),
            ("succeeded", count("succeeded").to_string()),
            ("failed", count("failed").to_string()),
            ("by", self.requested_by.clone()),
            ("started", moment(Some(self.created_at), now)),
            ("ended", self.ended_at.map(|at| moment(Some(at), now)).unwrap_or_default()),
        ]
    }
}

impl Shown for RolloutNode {
    const HEADER: &'static [&'static str] = &["NODE", "WAVE", "STEP", "REASON", "COMMAND"];

    fn cells(&self, _: OffsetDateTime) -> Vec<String> {
        let dash = || "–".to_owned();
        vec![
            self.name.clone(),
            (self.wave + 1).to_string(),
            if self.step == "waiting" && !self.connected {
                "waiting, no session".to_owned()
            } else {
                self.step.clone()
            },
            if self.reason.is_empty() { dash() } else { self.reason.clone() },
            self.command_id.clone().unwrap_or_else(dash),
        ]
    }

    fn name(&self) -> String {
        self.node_id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let names = ["node", "wave", "step", "reason", "command"];
        names.into_iter().zip(self.cells(now)).collect()
    }
}
