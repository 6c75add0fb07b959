//! `better-compute runner …`: gateways that hold no session, whose commands runners lease from the database.
//!
//! **Invariant:** a password is neither taken nor made here: users of the database are its administrator's.

use std::process::ExitCode;

use bc_host::api::types::{ListRunnerCommands, NodeRef, RunnerCommand, RunnerGateway, RunnerLogin, SetRunner};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, distance, moment};
use crate::{complete, node, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum RunnerCommands {
    /// Have a gateway's commands leased by runners under a slug, or give it back to sessions
    Set(Set),
    /// Show a gateway's slug, who may lease, what waits and what is leased
    Show(Show),
    /// Let a user of the database lease a gateway's commands
    Allow(Login),
    /// Take that back
    Disallow(Login),
    /// List what gateways' runners did, newest first
    History(History),
}

/// Which gateway, and how.
#[derive(Debug, Args)]
pub struct Set {
    /// The gateway, by id or name
    #[arg(value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// The name under which runners lease: a-z, 0-9 and dashes
    #[arg(long, required_unless_present = "none")]
    slug: Option<String>,
    /// Let sessions serve it again
    #[arg(long, conflicts_with = "slug")]
    none: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which gateway.
#[derive(Debug, Args)]
pub struct Show {
    /// The gateway, by id or name
    #[arg(value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which gateway, and who.
#[derive(Debug, Args)]
pub struct Login {
    /// The gateway, by id or name
    #[arg(value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// The user of the database, a member of better_compute_runner
    #[arg(value_name = "LOGIN")]
    user: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which commands.
#[derive(Debug, Args)]
pub struct History {
    /// Only this gateway's
    #[arg(long, value_name = "SLUG")]
    gateway: Option<String>,
    /// At most as many; 0 for all
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl RunnerCommands {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Set(Set { node, slug, none: _, output, connect }) => {
                let (client, NodeRef { tenant_id, node_id }) = reach(&connect, &node).await?;
                let request = SetRunner { tenant_id, node_id, slug };
                output.one(&client.call::<RunnerGateway>("runners.set", &request).await?, shell::now());
            }
            Self::Show(Show { node, output, connect }) => {
                let (client, reference) = reach(&connect, &node).await?;
                output.one(&client.call::<RunnerGateway>("runners.get", &reference).await?, shell::now());
            }
            Self::Allow(login) => login.change("runners.allow").await?,
            Self::Disallow(login) => login.change("runners.disallow").await?,
            Self::History(History { gateway, limit, output, connect }) => {
                let client = Client::new(connect.target()?, Patience::default())?;
                let request =
                    ListRunnerCommands { tenant_id: client.tenant().await?, gateway, ..ListRunnerCommands::default() };
                let found: Vec<RunnerCommand> = client.pages("runners.history", json!(request), limit).await?;
                output.list(&found, shell::now());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Login {
    async fn change(self, method: &str) -> anyhow::Result<()> {
        let (client, NodeRef { tenant_id, node_id }) = reach(&self.connect, &self.node).await?;
        let request = RunnerLogin { tenant_id, node_id, login: self.user };
        self.output.one(&client.call::<RunnerGateway>(method, &request).await?, shell::now());
        Ok(())
    }
}

/// The server, and the gateway there.
async fn reach(connect: &Connect, name: &str) -> anyhow::Result<(Client, NodeRef)> {
    let client = Client::new(connect.target()?, Patience::default())?;
    let reference = NodeRef { tenant_id: client.tenant().await?, node_id: node::resolve(&client, name).await? };
    Ok((client, reference))
}

impl Shown for RunnerGateway {
    const HEADER: &'static [&'static str] = &["NODE", "SLUG", "LOGINS", "PENDING", "LEASED"];

    fn cells(&self, _now: OffsetDateTime) -> Vec<String> {
        vec![
            self.node_id.clone(),
            self.slug.clone().unwrap_or_else(|| "–".to_owned()),
            self.logins.join(", "),
            self.pending.to_string(),
            self.leases.len().to_string(),
        ]
    }

    fn name(&self) -> String {
        self.slug.clone().unwrap_or_else(|| self.node_id.clone())
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let slug = self.slug.clone().unwrap_or_else(|| "none: sessions serve it".to_owned());
        let mut facts = vec![("node", self.node_id.clone()), ("slug", slug), ("logins", self.logins.join(", "))];
        facts.push(("pending", self.pending.to_string()));
        if let Some(at) = self.oldest_pending_at {
            facts.push(("oldest", moment(Some(at), now)));
        }
        facts.extend(self.leases.iter().map(|it| {
            let what = if it.started_at.is_some() { "runs" } else { "leased" };
            let until = distance(it.expires_at, now);
            (
                what,
                format!("{} by {} since {}, until {until}", it.command_id, it.leased_by, distance(it.leased_at, now)),
            )
        }));
        facts
    }
}

impl Shown for RunnerCommand {
    const HEADER: &'static [&'static str] = &["ID", "GATEWAY", "ACTION", "STATUS", "EXIT", "BY", "AGE"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![
            self.id.clone(),
            self.gateway.clone(),
            self.action.clone(),
            self.status.clone(),
            self.exit_code.map_or_else(|| "–".to_owned(), |code| code.to_string()),
            self.requested_by.clone().unwrap_or_default(),
            distance(self.created_at, now),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("id", self.id.clone()),
            ("action", self.action.clone()),
            ("status", self.status.clone()),
            ("queued", moment(Some(self.created_at), now)),
            ("error", self.error.clone().unwrap_or_default()),
        ]
    }
}
