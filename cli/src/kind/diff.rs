//! `kind diff`: what one component of a kind may do that another may not.
//!
//! **Invariant:** nothing of either component is run.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use bc_host::api::types::{Kind, ListKinds, Page};
use bc_proto::manifest::Manifest;
use bc_proto::rules::diff::Diff as Differences;
use bc_runtime::Inspected;
use clap::Args;

use crate::client::{Client, Connect, Patience};
use crate::output;

/// The arguments.
#[derive(Debug, Args)]
pub struct Diff {
    /// A component's file, or a registered one as NAME@VERSION
    old: String,
    /// The same; what it may do is compared with the first
    new: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Diff {
    pub(super) async fn execute(self) -> anyhow::Result<ExitCode> {
        let (old, new) = (manifest(&self.old, &self.connect).await?, manifest(&self.new, &self.connect).await?);
        if old.name != new.name {
            bail!("{} and {} are different kinds; compare two components of one", old.name, new.name);
        }
        let differences = Differences::between(&old, &new);
        output::say(&if self.json { format!("{:#}", serde_json::to_value(&differences)?) } else { text(&differences) });
        Ok(ExitCode::SUCCESS)
    }
}

/// A component's manifest, from its file or from the control plane.
async fn manifest(word: &str, connect: &Connect) -> anyhow::Result<Manifest> {
    let path = Path::new(word);
    if path.is_file() {
        return Ok(Inspected::read(path)?.manifest);
    }
    let Some((name, version)) = word.split_once('@') else {
        bail!("there is no file {word}; a registered component is written NAME@VERSION");
    };
    let client = Client::new(connect.target()?, Patience::default())?;
    let kinds: Page<Kind> = client.call("kinds.list", &ListKinds { all: true }).await?;
    let found = kinds.items.into_iter().find(|kind| kind.name == name && kind.version == version);
    let found =
        found.with_context(|| format!("{word} is not registered; `better-compute kind list --all` lists what is"))?;
    serde_json::from_value(found.manifest).with_context(|| format!("the manifest of {word} is of another release"))
}

/// For people.
pub(super) fn text(differences: &Differences) -> String {
    let Differences { kind, from, to, .. } = differences;
    if differences.is_same() {
        return format!("{kind} {to} may do the same as {from}");
    }
    let lines = differences.lines().iter().map(|line| format!("\n  {line}")).collect::<String>();
    let verdict = if differences.needs_yes { "\nactivating it needs --accept-wider" } else { "" };
    format!("{kind} {from} → {to}{lines}{verdict}")
}
