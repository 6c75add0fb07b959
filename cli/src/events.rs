//! `better-compute events watch`.
//!
//! **Invariant:** each line names where to resume after it.

use std::process::ExitCode;
use std::sync::Arc;

use bc_host::api::types::{Event, WatchEvents};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;

use crate::client::events::{Events, Said};
use crate::client::{Client, Connect, Patience};
use crate::format::{Format, Output, instant};
use crate::{complete, node, output};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum EventsCommand {
    /// Print events as they happen, until interrupted; table is a line each, json and ndjson a document a line
    Watch(Watch),
}

/// Which events.
#[derive(Debug, Args)]
pub struct Watch {
    /// Only what came after this event; 0 for all there are. By default from now on
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Only this node's, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: Option<String>,
    /// Only this command's
    #[arg(long, value_name = "ID")]
    command: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl EventsCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        let Self::Watch(watch) = self;
        let client = Arc::new(Client::new(watch.connect.target()?, Patience::default())?);
        let node_id = match &watch.node {
            Some(node) => Some(node::resolve(&client, node).await?),
            None => None,
        };
        let query =
            WatchEvents { tenant_id: client.tenant().await?, node_id, command_id: watch.command, after: watch.after };
        let mut events = Events::watch(Arc::clone(&client), query);
        let mut last = None;
        while let Some(said) = events.next().await {
            match said? {
                Said::Happened(event) => {
                    output::say(&line(&event, watch.output.format()));
                    last = Some(event.id);
                }
                Said::Progress(_) => {}
                Said::Interrupted(error) => {
                    let resumed = match &last {
                        Some(_) => "resuming after the last event",
                        None => "events until it is back are missed; --after 0 shows all",
                    };
                    output::complain(&format!("the stream was cut ({resumed}): {error}"));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn line(event: &Event, format: Format) -> String {
    match format {
        Format::Table => {
            let node = event.node_id.as_deref().unwrap_or("–");
            format!("{}  {}  {}  {node}  {}", event.id, instant(event.at), event.topic, event.body)
        }
        // A stream has no end, so it is no one document.
        Format::Json | Format::Ndjson => serde_json::to_string(event).expect("events are JSON"),
        Format::Name => event.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let event = serde_json::from_value(json!({
            "id": "7-1", "topic": "command.settled", "tenantId": "tenant_1", "nodeId": "node_1",
            "body": { "state": "succeeded" }, "at": "2024-10-04T00:00:00Z",
        }));
        let event = event.expect("an event");
        assert_eq!(
            line(&event, Format::Table),
            r#"7-1  2024-10-04T00:00:00Z  command.settled  node_1  {"state":"succeeded"}"#
        );
        assert_eq!(line(&event, Format::Name), "7-1");
    }
}
