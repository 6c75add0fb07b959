//! `better-compute doctor`: is the command line set up, does the server answer, and what is missing?
//!
//! **Invariant:** it changes nothing: not the database's schema, no file, no row.

use std::path::PathBuf;
use std::process::ExitCode;

use bc_daemon::doctor::as_text;
use bc_host::api::types::{Kind, Node, Page};
use bc_proto::rules::doctor::{Finding, Level, clock, worst};
use clap::Args;
use serde_json::json;

use crate::client::{CallError, Client, Connect, Patience};
use crate::server::Settings;
use crate::{contexts, output, server, shell};

/// The arguments.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Look at the set-up of a server by its settings as well: files, keys and database
    #[arg(long, value_name = "FILE")]
    server_config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Doctor {
    /// Looks, and prints what it found. The exit code is 1 where something does not work.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        let mut findings = Vec::new();
        if let Some(file) = self.server_config {
            findings.extend(server::check::findings(Settings::of_file(file)).await);
        }
        findings.extend(client(&self.connect).await);
        output::say(&if self.json { serde_json::to_string_pretty(&findings)? } else { as_text(&findings) });
        Ok(if worst(&findings) == Level::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// From here to the API.
async fn client(connect: &Connect) -> Vec<Finding> {
    let mut findings = Vec::new();
    let target = match connect.target() {
        Ok(target) => target,
        Err(error) => {
            return vec![Finding::fail("command line", format!("{error:#}"), "name a server with --url, or a context")];
        }
    };
    let file = contexts::path().map(|path| path.display().to_string()).unwrap_or_default();
    findings.push(Finding::ok("command line", format!("{} (contexts: {file})", target.url)));
    if target.token.is_none() {
        findings.push(Finding::fail("token", "there is none", "give --token-file, or a context that names one"));
    }
    let client = match Client::new(target, Patience { attempts: 1, ..Patience::default() }) {
        Ok(client) => client,
        Err(error) => {
            findings.push(Finding::fail("client", format!("{error:#}"), "correct --ca-file"));
            return findings;
        }
    };
    match client.server_time_ms().await {
        Ok(Some(there)) => {
            findings.push(Finding::ok("server", "it answers"));
            findings.push(clock("clock", shell::now_ms(), there, "the server"));
        }
        Ok(None) => {
            findings.push(Finding::warn("server", "it answers without the time", "is something else at that address?"));
        }
        Err(error) => {
            findings.push(refused("server", &error, "start the server, or correct the address"));
            return findings;
        }
    }
    match client.whoami().await {
        Ok(caller) => findings.push(Finding::ok("token", format!("it is {}'s, of {}", caller.identity, caller.tenant))),
        Err(error) => {
            findings.push(refused("token", &error, "make another one: better-compute token create"));
            return findings;
        }
    }
    findings.push(match client.call::<Page<Kind>>("kinds.list", &json!({})).await.map(|page| page.items) {
        Ok(kinds) if kinds.is_empty() => {
            Finding::warn("kinds", "none is registered", "better-compute kind register FILE --activate")
        }
        Ok(kinds) => Finding::ok("kinds", format!("{} take commands", kinds.len())),
        Err(error) => refused("kinds", &error, "ask for the grant compute:kinds:read"),
    });
    findings.push(match nodes(&client).await {
        Ok(nodes) if nodes.is_empty() => Finding::warn(
            "nodes",
            "there is none",
            "better-compute node create-join-token, and bcd join on the machine",
        ),
        Ok(nodes) => {
            let away: Vec<_> =
                nodes.iter().filter(|it| !it.connected && it.role != "gateway").map(|it| it.name.as_str()).collect();
            if away.is_empty() {
                Finding::ok("nodes", format!("{}, all with a session", nodes.len()))
            } else {
                let shown = away.iter().take(5).copied().collect::<Vec<_>>().join(", ");
                let found = format!(
                    "{} of {} have no session: {shown}{}",
                    away.len(),
                    nodes.len(),
                    if away.len() > 5 { ", …" } else { "" }
                );
                Finding::warn("nodes", found, "run bcd doctor on them")
            }
        }
        Err(error) => refused("nodes", &error, "ask for the grant compute:nodes:read"),
    });
    findings
}

async fn nodes(client: &Client) -> Result<Vec<Node>, CallError> {
    let tenant = client.tenant().await?;
    client.pages("nodes.list", json!({ "tenantId": tenant }), 0).await
}

fn refused(check: &str, error: &CallError, remedy: &str) -> Finding {
    Finding::fail(check, error.to_string(), remedy)
}
