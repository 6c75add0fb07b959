//! `better-compute run`: queue a command, and wait for it.
//!
//! **Invariant:** the key is printed before anything is sent, so that whoever is cut off can ask for the same command again.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use bc_host::api::types::{Command, CommandRef, RunCommand};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use super::follow::{Followed, Pace, follow};
use super::progress::Progress;
use super::seen::Seen;
use crate::client::{Client, Connect};
use crate::exit::{self, Ending};
use crate::format::{Format, Output};
use crate::{complete, node, output, payload, shell};

/// The arguments.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub struct Run {
    /// The kind, `diag.nvml` for example
    #[arg(add = ArgValueCompleter::new(complete::kinds))]
    kind: String,
    /// The node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// The payload: JSON, @FILE, or - for standard input; {} by default
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Set a field of the payload, a.b=1; JSON if it parses as JSON, else text. May be repeated
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    sets: Vec<String>,
    /// How long it may wait for the node, from 10s to 1h; 10m by default
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    not_after: Option<Duration>,
    /// The idempotency key: the same key is the same command. A new one by default
    #[arg(long)]
    key: Option<String>,
    /// The batch that it belongs to; until that is approved, the command is held
    #[arg(long, value_name = "BATCH", add = ArgValueCompleter::new(complete::batches))]
    batch: Option<String>,
    /// Queue it and end
    #[arg(long)]
    no_wait: bool,
    /// Wait no longer than this; the command goes on
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration, conflicts_with = "no_wait")]
    wait_timeout: Option<Duration>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl Run {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        let payload = payload::read(self.payload.as_deref(), &self.sets)?;
        let not_after_seconds = self.not_after.map(whole_seconds).transpose()?;
        let client = Arc::new(Client::new(self.connect.target()?, crate::client::Patience::default())?);
        let tenant_id = client.tenant().await?;
        let node_id = node::resolve(&client, &self.node).await?;
        let key = self.key.unwrap_or_else(|| format!("cli-{}", hex::encode(shell::random::<16>())));
        output::complain(&format!("key: {key}"));
        let request = RunCommand {
            tenant_id,
            node_id,
            kind: self.kind,
            payload,
            idempotency_key: key.clone(),
            not_after_seconds,
            batch_id: self.batch,
        };
        let queued: Seen = match client.call("commands.run", &request).await {
            Ok(queued) => queued,
            Err(error) if error.may_have_happened() => {
                output::complain(&format!("error: {error}"));
                output::complain(&format!(
                    "whether it was queued is not known: repeat this with --key {key}, which is the same command"
                ));
                return Ok(Ending::Unknown.into());
            }
            Err(error) => return Err(error.into()),
        };
        if self.no_wait {
            self.output.one(&queued, shell::now());
            // A repeated key can name a command that is over: then that is the answer.
            let ending = queued.ending();
            let goes_on = !queued.is_over() && ending != Ending::AwaitsApproval;
            return Ok(if goes_on { Ending::Queued } else { ending }.into());
        }
        let pace = Pace { wait: self.wait_timeout, ..Pace::default() };
        Ok(wait(client, queued, pace, self.output).await.into())
    }
}

fn whole_seconds(span: Duration) -> anyhow::Result<u32> {
    match u32::try_from(span.as_secs()) {
        Ok(seconds) if span.subsec_nanos() == 0 => Ok(seconds),
        _ => bail!("--not-after takes whole seconds, from 10s to 1h"),
    }
}

/// Waits for a command and prints what came of it.
pub(crate) async fn wait(client: Arc<Client>, queued: Seen, pace: Pace, output: Output) -> Ending {
    let Command { tenant_id, node_id, id, .. } = &queued.command;
    let reference = CommandRef { tenant_id: tenant_id.clone(), node_id: node_id.clone(), command_id: id.clone() };
    let mut progress = Progress::new(std::io::stderr().is_terminal());
    let interrupt = async {
        // Where signals cannot be had, the wait goes on.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let followed = follow(client, &reference, Some(queued), pace, &mut progress, interrupt).await;
    progress.finish();
    print(&followed, &reference, output);
    followed.ending
}

/// Prints how a wait ended: a result to standard output, all else to standard error.
fn print(followed: &Followed, reference: &CommandRef, output: Output) {
    if let Some(error) = &followed.error {
        output::complain(&format!("error: {error}"));
    }
    match (&followed.seen, output.format()) {
        (Some(seen), Format::Table) if matches!(followed.ending, Ending::Stands(_)) => {
            if seen.command.state == "succeeded" {
                output::say(&seen.outcome());
            } else {
                output::complain(&seen.outcome());
            }
        }
        (Some(_), Format::Table) | (None, _) => {}
        (Some(seen), _) => output.one(seen, shell::now()),
    }
    if let Some(advice) = advice(followed.ending, reference) {
        output::complain(&advice);
    }
}

/// What to do when a wait ended before the command did.
fn advice(ending: Ending, reference: &CommandRef) -> Option<String> {
    let CommandRef { node_id, command_id, .. } = reference;
    let go_on = |how_it_is: &str| {
        format!(
            "{how_it_is}\n  to watch it:   better-compute commands watch {command_id} --node {node_id}\n  \
             to cancel it:  better-compute commands cancel {command_id} --node {node_id}"
        )
    };
    match ending {
        Ending::Interrupted => Some(go_on("stopped waiting; the command goes on.")),
        Ending::TimedOut => Some(go_on("the wait timed out; the command goes on.")),
        Ending::Unknown => Some(go_on("what becomes of it is not known here; it may go on.")),
        Ending::AwaitsApproval => Some(go_on(
            "it is held until its batch is approved: `better-compute batch list --state open` shows what is missing.",
        )),
        Ending::Stands(_) | Ending::Queued => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_stops_waiting_is_told_how_to_go_on_and_how_to_cancel() {
        let reference =
            CommandRef { tenant_id: "tenant_1".into(), node_id: "node_1".into(), command_id: "cmd_1".into() };
        let endings = [Ending::Interrupted, Ending::TimedOut, Ending::Unknown, Ending::AwaitsApproval];
        let said = endings.map(|ending| advice(ending, &reference).expect("advice"));
        insta::assert_snapshot!(said.join("\n\n"));
        assert_eq!(advice(Ending::Queued, &reference), None);
    }

    #[test]
    fn deadlines_are_whole_seconds() {
        assert_eq!(whole_seconds(Duration::from_mins(10)).ok(), Some(600));
        assert!(whole_seconds(Duration::from_millis(10_500)).is_err());
        assert!(whole_seconds(Duration::MAX).is_err());
    }
}
