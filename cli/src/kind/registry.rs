//! `kind push|activate|retire|list|get`: the kinds that the control plane knows.
//!
//! **Invariant:** what is pushed is the file as it is; the control plane decides whether it is a kind.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bc_host::api::types::{ActivateKind, Kind, KindRef, ListKinds, Page, RegisterKind};
use bc_proto::rules::diff::Diff;
use bc_proto::rules::publishing::KindSignature;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use time::OffsetDateTime;

use super::{diff, sign};
use crate::client::{CallError, Client, Connect, Patience};
use crate::format::{Output, Shown, distance, moment};
use crate::{complete, output, shell};

/// Which files.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Push {
    /// Components that `kind build` wrote
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Make it the version that takes new commands
    #[arg(long)]
    activate: bool,
    /// Activate it although it may do more than the one in service; `kind diff` shows what
    #[arg(long, requires = "activate")]
    accept_wider: bool,
    /// The approved batch that holds its activation, where a quorum is configured and it may do more
    #[arg(long, value_name = "BATCH", requires = "activate")]
    batch: Option<String>,
    /// Let `run` and `commands.run` accept it
    #[arg(long, overrides_with = "no_expose")]
    expose: bool,
    /// Do not let them
    #[arg(long)]
    no_expose: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which kinds.
#[derive(Debug, Args)]
pub struct List {
    /// Retired and withdrawn ones as well
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which kind.
#[derive(Debug, Args)]
pub struct One {
    /// The kind's name, or the SHA-256 of one of its components
    #[arg(add = ArgValueCompleter::new(complete::kinds))]
    kind: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which component is to take new commands.
#[derive(Debug, Args)]
pub struct Activate {
    /// The SHA-256 of the component, as `kind list --all -o json` shows it
    #[arg(add = ArgValueCompleter::new(complete::kinds))]
    kind: String,
    /// Activate it although it may do more than the one in service, or is watched less
    #[arg(long)]
    accept_wider: bool,
    /// The approved batch that holds its activation, where a quorum is configured and it may do more
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl Push {
    pub(super) async fn execute(self) -> anyhow::Result<ExitCode> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let exposed = if self.expose { Some(true) } else { self.no_expose.then_some(false) };
        let mut kinds = Vec::new();
        for file in &self.files {
            let bytes = sign::read(file)?;
            let signed = sign::beside(file, &bytes)?;
            let query = RegisterKind {
                activate: self.activate,
                exposed,
                publisher: signed.as_ref().map(|it| it.publisher.to_string()),
                signature: signed.as_ref().map(hex_of),
                accept_wider: self.accept_wider,
                batch_id: self.batch.clone(),
            };
            let kind = client.register(&query, bytes).await.map_err(explained);
            kinds.push(kind.with_context(|| format!("{} was not registered", file.display()))?);
        }
        self.output.list(&kinds, shell::now());
        Ok(ExitCode::SUCCESS)
    }
}

impl List {
    pub(super) async fn execute(self) -> anyhow::Result<ExitCode> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let kinds: Page<Kind> = client.call("kinds.list", &ListKinds { all: self.all }).await?;
        self.output.list(&kinds.items, shell::now());
        Ok(ExitCode::SUCCESS)
    }
}

impl One {
    /// Calls a method that takes a kind and gives it as it is then.
    pub(super) async fn execute(self, method: &str) -> anyhow::Result<ExitCode> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let kind: Kind = client.call(method, &reference(&self.kind)).await?;
        self.output.one(&kind, shell::now());
        Ok(ExitCode::SUCCESS)
    }
}

impl Activate {
    pub(super) async fn execute(self) -> anyhow::Result<ExitCode> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let KindRef { name, digest } = reference(&self.kind);
        let ask = ActivateKind { name, digest, accept_wider: self.accept_wider, batch_id: self.batch };
        let answer = client.call("kinds.activate", &ask).await;
        let kind: Kind = match answer {
            Err(error) if wider(&error).is_some_and(|diff| agrees(&diff)) => {
                client.call("kinds.activate", &ActivateKind { accept_wider: true, ..ask }).await
            }
            answer => answer,
        }
        .map_err(explained)?;
        self.output.one(&kind, shell::now());
        Ok(ExitCode::SUCCESS)
    }
}

/// What a component may do more, if that is why it was refused.
fn wider(error: &CallError) -> Option<Diff> {
    let CallError::Refused(refusal) = error else { return None };
    (refusal.details["reason"] == "wider-grant")
        .then(|| serde_json::from_value(refusal.details["diff"].clone()).ok())?
}

/// Shows it to whoever sits there, and asks.
fn agrees(diff: &Diff) -> bool {
    let mut line = String::new();
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return false;
    }
    output::complain(&format!("{}\nActivate it? [y/N]", diff::text(diff)));
    std::io::stdin().read_line(&mut line).is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}

/// The refusal in the words of this program.
fn explained(error: CallError) -> anyhow::Error {
    match wider(&error) {
        Some(diff) => anyhow::anyhow!("{}\n  → say --accept-wider if that is meant", diff::text(&diff)),
        None => error.into(),
    }
}

fn hex_of(signed: &KindSignature) -> String {
    hex::encode(signed.signature.as_bytes())
}

/// A digest has 64 hexadecimal digits, which no name has: names hold a dot.
fn reference(word: &str) -> KindRef {
    let digest = word.strip_prefix("sha256:").unwrap_or(word);
    if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        KindRef { name: None, digest: Some(digest.to_ascii_lowercase()) }
    } else {
        KindRef { name: Some(word.to_owned()), digest: None }
    }
}

impl Shown for Kind {
    const HEADER: &'static [&'static str] =
        &["NAME", "VERSION", "STATUS", "EXPOSED", "LANE", "TRAITS", "SHA256", "AGE"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![
            self.name.clone(),
            self.version.clone(),
            self.status.clone(),
            if self.exposed { "yes" } else { "no" }.to_owned(),
            self.lane.clone(),
            self.traits.join(", "),
            self.digest.chars().take(12).collect(),
            distance(self.created_at, now),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let timeout = humantime::format_duration(std::time::Duration::from_millis(self.timeout_ms));
        vec![
            ("name", self.name.clone()),
            ("version", self.version.clone()),
            ("summary", self.manifest["summary"].as_str().unwrap_or_default().to_owned()),
            ("status", self.status.clone()),
            ("exposed", if self.exposed { "yes" } else { "no" }.to_owned()),
            ("lane", self.lane.clone()),
            ("timeout", timeout.to_string()),
            ("traits", self.traits.join(", ")),
            ("roles", self.roles.join(", ")),
            ("sha256", self.digest.clone()),
            ("publisher", self.publisher.clone().unwrap_or_else(|| "not signed".to_owned())),
            ("registered", moment(Some(self.created_at), now)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_named_by_name_or_digest() {
        let digest = "AB".repeat(32);
        let expected = KindRef { name: None, digest: Some("ab".repeat(32)) };
        assert_eq!((reference(&digest), reference(&format!("sha256:{digest}"))), (expected.clone(), expected));
        assert_eq!(reference("diag.nvml").name.as_deref(), Some("diag.nvml"));
    }
}
