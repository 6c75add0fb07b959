//! `better-compute node spec …`: what a node should be.
//!
//! **Invariant:** what was read is what is replaced: `set` names the generation that it follows, unless it is told not to.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use bc_host::api::types::{HostSettings, Instance, NodeRef, SetSpec, Spec};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde::Deserialize;
use time::OffsetDateTime;

use super::One;
use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, moment};
use crate::{complete, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum SpecCommand {
    /// Show what a node should be, and which generation of that it has applied
    Get(One),
    /// Set what a node should be, all but its holds, which come from reservations
    Set(Box<Set>),
}

/// What it should be.
#[derive(Debug, Args)]
pub struct Set {
    /// The node, by id or name
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// A JSON file with `instances` and `host`; what it leaves out is empty. - for standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// The generation that this one follows, 0 for the first; without it, the newest one
    #[arg(long, value_name = "GENERATION")]
    after: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// What a file says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    instances: Vec<Instance>,
    #[serde(default)]
    host: HostSettings,
}

impl SpecCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Get(one) => {
                let (client, reference) = one.reach().await?;
                one.output.one(&client.call::<Spec>("nodes.getSpec", &reference).await?, shell::now());
            }
            Self::Set(set) => set.execute().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Set {
    async fn execute(self) -> anyhow::Result<()> {
        let text = if self.file.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?
        } else {
            std::fs::read_to_string(&self.file).with_context(|| format!("{} cannot be read", self.file.display()))?
        };
        let Wanted { instances, host } = serde_json::from_str(&text).with_context(|| {
            let hint = r#"write {"instances": […], "host": {…}}, each of them optional"#;
            format!("{} is no spec; {hint}", self.file.display())
        })?;
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let reference =
            NodeRef { tenant_id: client.tenant().await?, node_id: super::resolve(&client, &self.node).await? };
        let expected_generation = match self.after {
            Some(generation) => generation,
            None => client.call::<Spec>("nodes.getSpec", &reference).await?.generation,
        };
        let NodeRef { tenant_id, node_id } = reference;
        let request = SetSpec { tenant_id, node_id, expected_generation: Some(expected_generation), instances, host };
        self.output.one(&client.call::<Spec>("nodes.setSpec", &request).await?, shell::now());
        Ok(())
    }
}

impl Shown for Spec {
    const HEADER: &'static [&'static str] = &["NODE", "GENERATION", "APPLIED"];

    fn cells(&self, _: OffsetDateTime) -> Vec<String> {
        vec![self.node_id.clone(), self.generation.to_string(), self.applied_generation.to_string()]
    }

    fn name(&self) -> String {
        self.node_id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let signed = self.signed_by.as_ref().map(|by| format!("worker {}, root {}", by.key, by.root));
        let document = self.document.as_ref();
        let part = |name: &str| {
            let part = document.map(|document| &document[name]);
            let is_empty = |part: &serde_json::Value| {
                part.as_array().is_some_and(Vec::is_empty) || part.as_object().is_some_and(serde_json::Map::is_empty)
            };
            part.filter(|part| !is_empty(part)).map(|part| format!("{part:#}")).unwrap_or_default()
        };
        vec![
            ("node", self.node_id.clone()),
            ("generation", self.generation.to_string()),
            ("applied", self.applied_generation.to_string()),
            ("made", moment(self.created_at, now)),
            ("by", self.created_by.clone().unwrap_or_default()),
            ("signed by", signed.unwrap_or_default()),
            ("holds", part("holds")),
            ("instances", part("instances")),
            ("host", part("host")),
        ]
    }
}
