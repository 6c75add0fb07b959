//! `better-compute bundle …`: the files that commands uploaded.
//!
//! **Invariant:** what a bundle holds is written to files and to standard output as it is, and never unpacked: names in it lead
//! nowhere.

mod fetch;

use std::path::PathBuf;
use std::process::ExitCode;

use bc_host::api::types::{Bundle, BundleFile, BundleFiles, BundleRef, BundleState, ListBundles, ReadBundle};
use bytesize::ByteSize;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::{json, to_value};
use time::OffsetDateTime;

use self::fetch::{Fetch, Fetched, Target};
use crate::client::{Client, Connect, Patience};
use crate::format::{Format, Output, Shown, distance, moment};
use crate::{complete, node, output, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// List a node's support bundles, newest first, and whether they are in the store
    List(List),
    /// Download a bundle: a tar, compressed with Zstandard
    ///
    /// What was downloaded before the connection broke is kept in FILE.part and goes on from there.
    Download(Download),
    /// List the files in a bundle
    Files(Files),
    /// Print one file of a bundle, or write it to a file
    Read(Read),
}

/// Whose.
#[derive(Debug, Args)]
pub struct List {
    /// The node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    /// At most as many; 0 for all
    #[arg(long, default_value_t = 20)]
    limit: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which one.
#[derive(Debug, Args)]
struct Which {
    /// The command that made it, `cmd_…`
    command: String,
    /// Its node, by id or name
    #[arg(long, short, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    node: String,
    #[command(flatten)]
    connect: Connect,
}

/// Which one, and where to.
#[derive(Debug, Args)]
pub struct Download {
    #[command(flatten)]
    which: Which,
    /// The file to write, or `-` for standard output; COMMAND.tar.zst by default
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

/// Which one, and how to print.
#[derive(Debug, Args)]
pub struct Files {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    output: Output,
}

/// Which file of it, and where to.
#[derive(Debug, Args)]
pub struct Read {
    #[command(flatten)]
    which: Which,
    /// The file, as `bundle files` names it
    path: String,
    /// The file to write, or `-` for standard output, which is the default
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Print what was written as JSON; not with `-`
    #[arg(long)]
    json: bool,
}

impl BundleCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.execute().await?,
            Self::Download(download) => download.execute().await?,
            Self::Files(files) => files.execute().await?,
            Self::Read(read) => read.execute().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Which {
    async fn reach(&self) -> anyhow::Result<(Client, BundleRef)> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let reference = BundleRef {
            tenant_id: client.tenant().await?,
            node_id: node::resolve(&client, &self.node).await?,
            command_id: self.command.clone(),
        };
        Ok((client, reference))
    }
}

impl List {
    async fn execute(self) -> anyhow::Result<()> {
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let node_id = node::resolve(&client, &self.node).await?;
        let mut request = ListBundles { tenant_id: client.tenant().await?, node_id, ..ListBundles::default() };
        let mut bundles: Vec<Bundle> = Vec::new();
        let wanted = if self.limit == 0 { usize::MAX } else { usize::try_from(self.limit).unwrap_or(usize::MAX) };
        loop {
            // A page is smaller than those of other lists: the store is asked about each of its bundles.
            request.limit = Some(u32::try_from(wanted - bundles.len()).unwrap_or(u32::MAX).min(PAGE));
            let page: bc_host::api::types::Page<Bundle> = client.call("bundles.list", &request).await?;
            bundles.extend(page.items);
            match page.next_cursor {
                Some(cursor) if bundles.len() < wanted => request.cursor = Some(cursor),
                _ => break,
            }
        }
        self.output.list(&bundles, shell::now());
        Ok(())
    }
}

/// The most bundles of one page.
const PAGE: u32 = 50;

impl Download {
    async fn execute(self) -> anyhow::Result<()> {
        let (client, reference) = self.which.reach().await?;
        let name = || PathBuf::from(format!("{}.tar.zst", reference.command_id));
        let target = Target::of(self.output.unwrap_or_else(name), self.json)?;
        let fetch = Fetch { client: &client, method: "bundles.download", query: to_value(&reference)?, resumes: true };
        told(&fetch.to(&target).await?, &target, self.json);
        Ok(())
    }
}

impl Files {
    async fn execute(self) -> anyhow::Result<()> {
        let (client, reference) = self.which.reach().await?;
        let found: BundleFiles = client.call("bundles.files", &reference).await?;
        if self.output.format() == Format::Json {
            output::say(&format!("{:#}", json!(found)));
            return Ok(());
        }
        self.output.list(&found.files, shell::now());
        for left_out in found.skipped.iter().chain(&found.problems) {
            let what = left_out["path"].as_str().or(left_out["source"].as_str()).unwrap_or("something");
            let why = left_out["reason"].as_str().map_or_else(|| left_out.to_string(), str::to_owned);
            output::complain(&format!("not in it: {what}: {why}"));
        }
        Ok(())
    }
}

impl Read {
    async fn execute(self) -> anyhow::Result<()> {
        let (client, reference) = self.which.reach().await?;
        let target = Target::of(self.output, self.json)?;
        let BundleRef { tenant_id, node_id, command_id } = reference;
        let query = to_value(ReadBundle { tenant_id, node_id, command_id, path: self.path })?;
        let fetch = Fetch { client: &client, method: "bundles.read", query, resumes: false };
        told(&fetch.to(&target).await?, &target, self.json);
        Ok(())
    }
}

/// Says what was written, unless that is what was printed.
fn told(fetched: &Fetched, target: &Target, is_json: bool) {
    let Target::File(path) = target else { return };
    if is_json {
        let file = path.display().to_string();
        output::say(
            &json!({ "file": file, "bytes": fetched.bytes, "sha256": fetched.sha256, "verified": fetched.is_verified })
                .to_string(),
        );
        return;
    }
    let size = ByteSize(fetched.bytes).display().iec();
    let verified =
        if fetched.is_verified { "its SHA-256 is what the node told" } else { "the node told no SHA-256 of it" };
    output::complain(&format!("{}: {size}, {verified}", path.display()));
}

impl Shown for Bundle {
    const HEADER: &'static [&'static str] = &["COMMAND", "KIND", "COMMAND STATE", "BUNDLE", "SIZE", "STORED", "QUEUED"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        vec![
            self.command_id.clone(),
            self.kind.clone(),
            self.command_state.clone(),
            self.state.to_string(),
            self.bytes.map_or_else(|| "–".to_owned(), |bytes| ByteSize(bytes).display().iec().to_string()),
            self.stored_at.map_or_else(|| "–".to_owned(), |at| distance(at, now)),
            distance(self.created_at, now),
        ]
    }

    fn name(&self) -> String {
        self.command_id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let stored = self.state == BundleState::Stored;
        vec![
            ("command", self.command_id.clone()),
            ("node", self.node_id.clone()),
            ("kind", self.kind.clone()),
            ("state", self.state.to_string()),
            ("bytes", self.bytes.filter(|_| stored).map(|it| it.to_string()).unwrap_or_default()),
            ("sha256", self.sha256.clone().unwrap_or_default()),
            ("key", self.bundle_key.clone()),
            ("stored", moment(self.stored_at, now)),
        ]
    }
}

impl Shown for BundleFile {
    const HEADER: &'static [&'static str] = &["FILE", "SIZE", "SOURCE", "TRUNCATED"];

    fn cells(&self, _: OffsetDateTime) -> Vec<String> {
        vec![
            self.path.clone(),
            ByteSize(self.bytes).display().iec().to_string(),
            self.source.clone(),
            if self.truncated { "yes, its oldest part" } else { "no" }.to_owned(),
        ]
    }

    fn name(&self) -> String {
        self.path.clone()
    }

    fn facts(&self, _: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("file", self.path.clone()),
            ("bytes", self.bytes.to_string()),
            ("sha256", self.sha256.clone()),
            ("source", self.source.clone()),
        ]
    }
}
