//! `better-compute audit …`: the transparency log, seen by somebody who does not take the server's word for it.
//!
//! **Invariant:** what does not hold exits with its own code and never with 0; what could not be checked is said.

mod receipt;
mod remembered;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bc_host::api::types::{ListLogEntries, LogEntries, LogEntry, LogHead, MakeReceipt, ShowLogHead};
use bc_proto::audit::Head;
use bc_proto::sign::PublicKey;
use clap::{Args, Subcommand};
use serde_json::Value;
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, instant};
use crate::{exit, output, shell};

/// The most entries that the API gives in one page.
const PAGE: u32 = 500;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Show the head of the transparency log
    Head(Plain),
    /// List what stands in the log
    Entries(Entries),
    /// Check the whole log, and that it only grew since the last time; or check a receipt, without the server
    #[command(after_help = exit::HELP)]
    Verify(verify::Verify),
    /// Make the receipt of a destructive command: one file that proves what became of it
    Receipt(Make),
}

/// What is flattened into all of them.
#[derive(Debug, Args)]
pub struct Plain {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which entries.
#[derive(Debug, Args)]
pub struct Entries {
    /// The place to begin at
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many at most; 0 for all
    #[arg(long, default_value_t = 100)]
    limit: u64,
    #[command(flatten)]
    plain: Plain,
}

/// Which command.
#[derive(Debug, Args)]
pub struct Make {
    /// The command, `cmd_…`
    command: String,
    /// Write the receipt to this file in place of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

impl AuditCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Head(Plain { output: shown, connect }) => {
                let client = Client::new(connect.target()?, Patience::default())?;
                let tenant_id = client.tenant().await?;
                let head: LogHead = client.call("audit.head", &ShowLogHead { tenant_id }).await?;
                shown.one(&head, shell::now());
            }
            Self::Entries(Entries { from, limit, plain: Plain { output: shown, connect } }) => {
                let client = Client::new(connect.target()?, Patience::default())?;
                let limit = if limit == 0 { u64::MAX } else { limit };
                let mut items: Vec<LogEntry> = Vec::new();
                let end = from.saturating_add(limit);
                each(&client, from, end, |entry| items.push(entry)).await?;
                shown.list(&items, shell::now());
            }
            Self::Verify(verify) => return verify.execute().await,
            Self::Receipt(make) => make.execute().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Make {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let request = MakeReceipt { tenant_id: client.tenant().await?, command_id: self.command };
        let receipt: Value = client.call("audit.receipt", &request).await?;
        let text = format!("{receipt:#}");
        match &self.out {
            None => output::say(&text),
            Some(file) => {
                std::fs::write(file, text + "\n").with_context(|| format!("{} cannot be written", file.display()))?;
                output::complain(&format!("the receipt is in {}", file.display()));
            }
        }
        Ok(())
    }
}

/// Reads the entries from one place up to another, page by page, and ends where the log does.
async fn each(client: &Client, from: u64, end: u64, mut with: impl FnMut(LogEntry)) -> anyhow::Result<()> {
    let tenant_id = client.tenant().await?;
    let mut next = Some(from);
    while let Some(at) = next.filter(|at| *at < end) {
        let limit = u32::try_from(end - at).unwrap_or(PAGE).min(PAGE);
        let request = ListLogEntries { tenant_id: tenant_id.clone(), from: Some(at), limit: Some(limit) };
        let page: LogEntries = client.call("audit.entries", &request).await?;
        page.items.into_iter().for_each(&mut with);
        // A server that does not move on would keep this going for ever.
        next = page.next.filter(|next| *next > at);
    }
    Ok(())
}

/// The head, as it is verified.
fn checked(head: LogHead) -> anyhow::Result<Head> {
    let LogHead { size, root, signature } = head;
    let signature = signature.map(serde_json::from_value).transpose();
    Ok(Head { size, root, signature: signature.context("the head's signature is none that this program knows")? })
}

/// A root: 64 hexadecimal digits, or a file that holds them or a PEM `PUBLIC KEY`.
fn root(word: &str) -> anyhow::Result<PublicKey> {
    if let Ok(key) = word.parse() {
        return Ok(key);
    }
    let Ok(text) = std::fs::read_to_string(word) else {
        bail!("--root {word}: it is neither a public key of 64 hexadecimal digits nor a file that can be read");
    };
    let text = text.trim();
    let key = if text.starts_with("-----") { PublicKey::from_pem(text) } else { text.parse() };
    key.with_context(|| format!("--root {word}: it holds no public key"))
}

impl Shown for LogHead {
    const HEADER: &'static [&'static str] = &["SIZE", "ROOT", "SIGNED"];

    fn cells(&self, _now: OffsetDateTime) -> Vec<String> {
        let signed = if self.signature.is_some() { "yes" } else { "no" };
        vec![self.size.to_string(), self.root.clone(), signed.to_owned()]
    }

    fn name(&self) -> String {
        self.root.clone()
    }

    fn facts(&self, _now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let signature = self.signature.as_ref();
        let by = signature.and_then(|it| it["worker"]["root"].as_str()).map(|it| format!("by the root {it}"));
        vec![
            ("size", self.size.to_string()),
            ("root", self.root.clone()),
            ("signed", by.unwrap_or_else(|| "by nobody".to_owned())),
        ]
    }
}

impl Shown for LogEntry {
    const HEADER: &'static [&'static str] = &["INDEX", "WHEN", "ENTRY", "ABOUT", "WHAT"];

    fn cells(&self, _now: OffsetDateTime) -> Vec<String> {
        let body: Value = self.body.as_deref().and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        let first = |names: &[&str]| names.iter().map(|it| text(it)).find(|it| !it.is_empty()).unwrap_or("").to_owned();
        let at = body["atMs"].as_i64().and_then(|ms| OffsetDateTime::from_unix_timestamp(ms / 1000).ok());
        let entry = if self.body.is_some() { text("entry") } else { "another tenant's" };
        vec![
            self.index.to_string(),
            at.map(instant).unwrap_or_default(),
            entry.to_owned(),
            first(&["command", "batch"]),
            first(&["kind", "state", "topic"]),
        ]
    }

    fn name(&self) -> String {
        self.index.to_string()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let [index, at, entry, about, what] = self.cells(now).try_into().unwrap_or_default();
        vec![("index", index), ("when", at), ("entry", entry), ("about", about), ("what", what)]
    }
}

#[cfg(test)]
mod tests {
    use bc_proto::sign::SecretKey;

    use super::*;

    #[test]
    fn a_root_is_digits_or_a_file_of_either_form() {
        let key = SecretKey::from_seed([1; 32]).public();
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        for word in [key.to_string(), file("hex", &format!("{key}\n")), file("pem", &key.to_pem())] {
            assert_eq!(root(&word).expect("a root"), key, "{word}");
        }
        for (word, why) in [
            ("abc".to_owned(), "neither"),
            (file("empty", ""), "holds no public key"),
            (file("secret", &SecretKey::from_seed([1; 32]).to_pem()), "holds no public key"),
        ] {
            let refused = root(&word).expect_err(&word).to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
