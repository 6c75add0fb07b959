//! `batch approve` and `batch submit`: signing, here or on a machine without a network.
//!
//! **Invariant:** nothing is signed that was not shown and said yes to.

use std::io::{BufRead as _, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bc_host::api::types::{ApproveBatch, Batch, BatchRef};
use bc_proto::batch::{Approval, Document};
use bc_proto::sign::SecretKey;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde::de::DeserializeOwned;
use serde_json::json;
use time::OffsetDateTime;

use super::paper::{Paper, Signed};
use crate::client::{Client, Connect, Patience};
use crate::format::Output;
use crate::{complete, output, shell};

/// What to approve, and with what.
#[derive(Debug, Args)]
pub struct Approve {
    /// The batch, `batch_…`
    #[arg(long, value_name = "BATCH", required_unless_present = "file", add = ArgValueCompleter::new(complete::batches))]
    batch: Option<String>,
    /// Approve what `batch export` wrote, without a network. Goes with --out
    #[arg(long, value_name = "EXPORT", conflicts_with = "batch", requires = "out")]
    file: Option<PathBuf>,
    /// Your private key: Ed25519, PKCS #8 in PEM, as `openssl genpkey -algorithm ed25519` writes it
    #[arg(long, value_name = "PEM")]
    key: PathBuf,
    /// How long your approval counts
    #[arg(long, value_name = "SPAN", default_value = "24h", value_parser = humantime::parse_duration)]
    expires: Duration,
    /// Write the approval to this file in place of sending it; `batch submit` sends it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Do not ask: you have read the scope
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// An approval to hand in.
#[derive(Debug, Args)]
pub struct Submit {
    /// What `batch approve --out` wrote
    file: PathBuf,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

impl Approve {
    pub(super) async fn execute(self) -> anyhow::Result<()> {
        let key = key(&self.key)?;
        if let Some(file) = &self.file {
            let signed = self.sign(&key, &read::<Paper>(file)?)?;
            return self.write(&signed);
        }
        let batch_id = self.batch.clone().context("name a batch with --batch, or a file with --file")?;
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let reference = BatchRef { tenant_id: client.tenant().await?, batch_id };
        let batch: Batch = client.call("commandBatches.get", &reference).await?;
        let paper = Paper::of(&batch)?;
        is_asked_for(&paper.document, &reference)?;
        let signed = self.sign(&key, &paper)?;
        if self.out.is_some() {
            return self.write(&signed);
        }
        let approved = send(&client, signed).await?;
        self.output.one(&approved, shell::now());
        Ok(())
    }

    /// Shows it, asks, and signs.
    fn sign(&self, key: &SecretKey, paper: &Paper) -> anyhow::Result<Signed> {
        let now = shell::now();
        paper.check()?;
        let document = &paper.document;
        let now_ms = unix_ms(now);
        if now_ms >= document.expires_at_ms {
            bail!("{} has expired; ask for another batch", document.batch_id);
        }
        output::complain(&paper.text(now));
        if !self.yes {
            agree(&format!("\nsign this with {}? Type yes: ", key.public()))?;
        }
        let expires_at_ms = now_ms.saturating_add(u64::try_from(self.expires.as_millis()).unwrap_or(u64::MAX));
        let approval = Approval::sign(key, document, now_ms, expires_at_ms);
        Ok(Signed { tenant_id: document.tenant_id.to_string(), batch_id: document.batch_id.to_string(), approval })
    }

    fn write(&self, signed: &Signed) -> anyhow::Result<()> {
        let file = self.out.as_deref().context("say with --out where the approval goes")?;
        std::fs::write(file, format!("{:#}\n", json!(signed)))
            .with_context(|| format!("{} cannot be written", file.display()))?;
        output::complain(&format!(
            "the approval is in {0}; hand it in with: better-compute batch submit {0}",
            file.display()
        ));
        Ok(())
    }
}

/// Refuses another batch than the one that was named: the scope would fit, and it would still be the wrong one.
fn is_asked_for(document: &Document, reference: &BatchRef) -> anyhow::Result<()> {
    if document.batch_id.to_string() != reference.batch_id || document.tenant_id.to_string() != reference.tenant_id {
        bail!(
            "the server answers with {} of {} for {}. Do not sign this",
            document.batch_id,
            document.tenant_id,
            reference.batch_id
        );
    }
    Ok(())
}

impl Submit {
    pub(super) async fn execute(self) -> anyhow::Result<()> {
        let signed: Signed = read(&self.file)?;
        let client = Client::new(self.connect.target()?, Patience::default())?;
        self.output.one(&send(&client, signed).await?, shell::now());
        Ok(())
    }
}

async fn send(client: &Client, signed: Signed) -> anyhow::Result<Batch> {
    let Signed { tenant_id, batch_id, approval } = signed;
    Ok(client.call("commandBatches.approve", &ApproveBatch { tenant_id, batch_id, approval }).await?)
}

fn key(file: &Path) -> anyhow::Result<SecretKey> {
    let name = file.display();
    let read =
        || -> std::io::Result<(u32, String)> { Ok((std::fs::metadata(file)?.mode(), std::fs::read_to_string(file)?)) };
    let (mode, pem) = read().with_context(|| format!("{name} cannot be read"))?;
    if mode & 0o077 != 0 {
        bail!(
            "{name} can be read by others than its owner, and whoever has it approves in your name\n  → chmod 600 {name}"
        );
    }
    SecretKey::from_pem(&pem).with_context(|| format!("{name} is no approver's key"))
}

fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("{name} cannot be read"))?;
    serde_json::from_str(&text).with_context(|| format!("{name} is not what `better-compute batch` wrote"))
}

/// Takes a yes from the terminal, and nothing else.
fn agree(question: &str) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("nobody is there to say yes: read the scope above, and repeat this with --yes");
    }
    output::complain(question);
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).context("the answer cannot be read")?;
    if answer.trim() != "yes" {
        bail!("nothing was signed");
    }
    Ok(())
}

fn unix_ms(at: OffsetDateTime) -> u64 {
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}
