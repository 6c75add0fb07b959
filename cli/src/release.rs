//! `better-compute release …`: binaries of the daemon.
//!
//! **Invariant:** the key goes nowhere: what is sent is the file, and a signature over version, digest and target.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use bc_daemon::slots;
use bc_host::api::types::{ListReleases, Page, PushRelease, Release};
use bc_proto::rules::releases::ReleaseSignature;
use bc_proto::sign::SecretKey;
use bc_proto::sign::body::ReleaseBody;
use clap::{Args, Subcommand};
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, distance, moment};
use crate::shell;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ReleaseCommand {
    /// Push a binary of the daemon, so that nodes can fetch it
    Push(Push),
    /// List the binaries of the daemon, newest first
    List(List),
}

/// Which file.
#[derive(Debug, Args)]
pub struct Push {
    /// The binary `bcd`
    file: PathBuf,
    /// The version that it is: what `bcd --version` says
    #[arg(long, value_name = "VERSION")]
    version: String,
    /// What it runs on; this machine's by default
    #[arg(long, value_name = "TARGET", default_value_t = slots::target())]
    target: String,
    /// The publisher's private key, PEM. Nodes take what is not signed only where their operator allows it
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
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

impl ReleaseCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Push(push) => push.execute().await?,
            Self::List(list) => list.execute().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Push {
    async fn execute(self) -> anyhow::Result<()> {
        let name = self.file.display();
        let sha256 = slots::digest(&self.file).with_context(|| format!("{name} cannot be read"))?;
        let body = ReleaseBody { version: &self.version, sha256: &sha256, target: &self.target };
        let signed = match &self.key {
            Some(file) => {
                let pem =
                    std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
                let key = SecretKey::from_pem(&pem).with_context(|| {
                    format!(
                        "{} is no publisher's key; make one with `openssl genpkey -algorithm ed25519`",
                        file.display()
                    )
                })?;
                Some(ReleaseSignature::sign(&body, &key))
            }
            None => None,
        };
        let query = PushRelease {
            publisher: signed.map(|it| it.publisher.to_string()),
            signature: signed.map(|it| hex::encode(it.signature.as_bytes())),
            version: self.version,
            target: self.target,
            sha256,
        };
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let bytes = std::fs::read(&self.file).with_context(|| format!("{} cannot be read", self.file.display()))?;
        let release = client.push_release(&query, bytes).await;
        let release = release.with_context(|| format!("{} was not pushed", self.file.display()))?;
        self.output.one(&release, shell::now());
        Ok(())
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let releases: Page<Release> = client.call("releases.list", &ListReleases {}).await?;
        self.output.list(&releases.items, shell::now());
        Ok(())
    }
}

impl Shown for Release {
    const HEADER: &'static [&'static str] = &["VERSION", "TARGET", "SIZE", "PUBLISHER", "AGE", "SHA256"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        let publisher = self.publisher.as_deref().map_or("not signed".to_owned(), |key| key.chars().take(12).collect());
        vec![
            self.version.clone(),
            self.target.clone(),
            format!("{} MiB", self.size_bytes.div_ceil(1024 * 1024)),
            publisher,
            distance(self.pushed_at, now),
            self.sha256.clone(),
        ]
    }

    fn name(&self) -> String {
        self.sha256.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("version", self.version.clone()),
            ("target", self.target.clone()),
            ("sha256", self.sha256.clone()),
            ("size", format!("{} bytes", self.size_bytes)),
            ("publisher", self.publisher.clone().unwrap_or_else(|| "not signed".to_owned())),
            ("pushed by", self.pushed_by.clone()),
            ("pushed", moment(Some(self.pushed_at), now)),
        ]
    }
}
