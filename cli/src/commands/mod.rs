//! `better-compute run` and `better-compute commands …`.
//!
//! **Invariant:** nothing here cancels a command but `commands cancel`.

pub mod follow;
pub mod progress;
mod run;
pub mod seen;
mod tail;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bc_host::api::types::{Command, CommandRef, ListCommands, Node, NodeRef, RunnerGateway};
use bc_host::words;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use time::OffsetDateTime;

use crate::client::{CallError, Client, Connect};
use crate::exit::{self, Ending};
use crate::format::Output;
use crate::{complete, node, output, shell};
use follow::Pace;
pub use run::Run;
pub(crate) use run::wait;
use seen::Seen;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Commands {
    /// List a node's commands, newest first
    List(List),
    /// Show a command as it stands
    Get(One),
    /// Wait for a command to end, and print what came of it
    #[command(after_help = exit::HELP)]
    Watch(Watch),
    /// Print what a command's programs have written; with -f as they write it
    #[command(after_help = exit::HELP)]
    Tail(tail::Tail),
    /// Call a command off: one that waits never runs, one that runs is stopped between two actions
    Cancel(One),
    /// Say in words why a command waits, or what happened to it
    Explain(One),
}

/// Which commands.
#[derive(Debug, Args)]
pub struct List {
    /// Only this node's, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: Option<String>,
    /// Only those of the gateway whose runners lease under this slug
    #[arg(long, value_name = "SLUG", conflicts_with = "node")]
    gateway: Option<String>,
    /// Only those of this batch
    #[arg(long, value_name = "BATCH", add = ArgValueCompleter::new(complete::batches), conflicts_with = "gateway")]
    batch: Option<String>,
    /// Only this kind
    #[arg(long, value_name = "KIND", add = ArgValueCompleter::new(complete::kinds))]
    kind: Option<String>,
    /// Only those in this state
    #[arg(long, value_parser = STATES)]
    state: Option<String>,
    /// At most as many; 0 for all
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which command.
#[derive(Debug, Args)]
pub struct One {
    /// The command's id, `cmd_…`
    command: String,
    /// Its node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which command, and how long.
#[derive(Debug, Args)]
pub struct Watch {
    #[command(flatten)]
    one: One,
    /// Wait no longer than this; the command goes on
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    wait_timeout: Option<Duration>,
}

/// The words for states, in the order of a command's life.
const STATES: [&str; 9] =
    ["pending", "dispatched", "acked", "running", "succeeded", "failed", "rejected", "expired", "cancelled"];

impl Commands {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.execute().await?,
            Self::Get(one) => {
                let (client, reference) = one.reach().await?;
                one.output.one(&follow::get(&client, &reference).await?, shell::now());
            }
            Self::Watch(Watch { one, wait_timeout }) => {
                let (client, reference) = one.reach().await?;
                let seen = follow::get(&client, &reference).await?;
                let pace = Pace { wait: wait_timeout, ..Pace::default() };
                return Ok(wait(client, seen, pace, one.output).await.into());
            }
            Self::Tail(tail) => return tail.execute().await,
            Self::Cancel(one) => {
                let (client, reference) = one.reach().await?;
                let seen: Seen = client.call("commands.cancel", &reference).await?;
                output::complain(called_off(&seen));
                one.output.one(&seen, shell::now());
            }
            Self::Explain(one) => one.explain().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What asking to cancel did.
pub(crate) fn called_off(seen: &Seen) -> &'static str {
    match seen.ending() {
        Ending::Stands(bc_proto::rules::state::State::Cancelled) => "it is cancelled",
        _ if seen.is_over() => "it was over already; nothing changed",
        _ => "it was asked to stop; it stops between two actions, and reports what it had done",
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, crate::client::Patience::default())?;
        let node_id = match &self.node {
            Some(node) => Some(node::resolve(&client, node).await?),
            None => None,
        };
        let Self { gateway, batch: batch_id, kind, state, .. } = self;
        let tenant_id = client.tenant().await?;
        let request = ListCommands { tenant_id, node_id, gateway, batch_id, kind, state, limit: None, cursor: None };
        let commands: Vec<Seen> = client.pages("commands.list", json!(request), self.limit).await?;
        self.output.list(&commands, shell::now());
        Ok(())
    }
}

impl One {
    async fn reach(&self) -> anyhow::Result<(Arc<Client>, CommandRef)> {
        let client = Arc::new(Client::new(self.connect.target()?, crate::client::Patience::default())?);
        let reference = CommandRef {
            tenant_id: client.tenant().await?,
            node_id: node::resolve(&client, &self.node).await?,
            command_id: self.command.clone(),
        };
        Ok((client, reference))
    }

    async fn explain(self) -> anyhow::Result<()> {
        let (client, reference) = self.reach().await?;
        let (seen, reasons) = explained(&client, &reference, shell::now()).await?;
        if self.output.format() == crate::format::Format::Table {
            output::say(&format!("{}\n  {}", seen.line(), reasons.join("\n  ")));
        } else {
            output::say(&json!({ "command": seen, "reasons": reasons }).to_string());
        }
        Ok(())
    }
}

/// A command, and why it waits or what happened to it.
pub(crate) async fn explained(
    client: &Client,
    reference: &CommandRef,
    now: OffsetDateTime,
) -> Result<(Seen, Vec<String>), CallError> {
    let seen = follow::get(client, reference).await?;
    let CommandRef { tenant_id, node_id, .. } = reference;
    let mut around = words::Around::default();
    if !seen.is_over() {
        let request = NodeRef { tenant_id: tenant_id.clone(), node_id: node_id.clone() };
        let node = client.call::<Node>("nodes.get", &request).await?;
        if node.role == "gateway" {
            let runner = client.call::<RunnerGateway>("runners.get", &request).await?;
            around.runner = Some(runner).filter(|it| it.slug.is_some());
        }
        around.node = Some(node);
        for state in ["dispatched", "acked", "running"] {
            let request = json!({ "tenantId": tenant_id, "nodeId": node_id, "state": state });
            around.in_flight.extend(client.pages::<Command>("commands.list", request, 200).await?);
        }
    }
    let reasons = words::explain(&seen.command, &around, now);
    Ok((seen, reasons))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_state_can_be_asked_for() {
        let states = bc_proto::rules::state::State::ALL.map(|state| state.to_string());
        assert_eq!(states, super::STATES);
    }
}
