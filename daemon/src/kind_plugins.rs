//! A plugin directory on the command line: `bcd kind list` and `bcd kind watch`.
//!
//! **Invariant:** both see what the daemon would do with the directory, and neither changes anything in it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use tokio::sync::mpsc::unbounded_channel;

use crate::config::Config;
use crate::node::Node;
use crate::plugins::{Change, OpenError, Plugins};

/// The exit code when something was refused.
const REFUSED: u8 = 3;

/// Where the kinds are, and on which node.
#[derive(Debug, Args)]
pub struct Source {
    /// The directory that holds the components; by default the configuration's `plugin-dir`
    #[arg(long, value_name = "DIR")]
    pub plugin_dir: Option<PathBuf>,
    /// The node's configuration; without it, the defaults
    #[arg(long, value_name = "FILE", env = "BCD_CONFIG")]
    pub config: Option<PathBuf>,
}

/// What `kind list` takes.
#[derive(Debug, Args)]
pub struct KindList {
    #[command(flatten)]
    source: Source,
    /// Print one JSON object a file
    #[arg(long)]
    json: bool,
}

/// What `kind watch` takes.
#[derive(Debug, Args)]
pub struct KindWatch {
    #[command(flatten)]
    source: Source,
}

impl Source {
    /// The directory, and the node that it is for.
    fn resolve(&self) -> anyhow::Result<(PathBuf, Arc<Node>)> {
        let config = self.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        let dir = self.plugin_dir.as_ref().or(config.plugin_dir.as_ref()).ok_or_else(|| {
            anyhow!("no plugin directory is named\n  → give --plugin-dir, or set plugin-dir in the configuration")
        })?;
        Ok((dir.clone(), Arc::new(Node::new(&config)?)))
    }
}

fn with_remedy(error: &OpenError) -> anyhow::Error {
    anyhow!("{error}\n  → {}", error.remedy())
}

impl KindList {
    /// Lists. Answers the exit code.
    pub fn block_on(&self) -> anyhow::Result<u8> {
        runtime()?.block_on(async {
            let (dir, node) = self.source.resolve()?;
            let (reports, mut changes) = unbounded_channel();
            let report = move |change| drop(reports.send(change));
            // With the plugins goes the sender: what was reported is the list.
            drop(Plugins::open(&dir, node, report).await.map_err(|error| with_remedy(&error))?);
            let mut code = 0;
            let mut out = io::stdout().lock();
            while let Some(change) = changes.recv().await {
                if self.json {
                    writeln!(out, "{}", change.to_json())?;
                } else {
                    write_text(&mut out, &change)?;
                }
                if matches!(change, Change::Refused { .. }) {
                    code = REFUSED;
                }
            }
            Ok(code)
        })
    }
}

impl KindWatch {
    /// Follows until it is interrupted, or nobody reads its output any more.
    pub fn block_on(&self) -> anyhow::Result<()> {
        let runtime = runtime()?;
        let done = runtime.block_on(async {
            // Heard from here on, so that an interrupt during the first load ends it properly too.
            let interrupted = tokio::signal::ctrl_c();
            let watching = async {
                let (dir, node) = self.source.resolve()?;
                let (reports, mut changes) = unbounded_channel();
                let report = move |change| drop(reports.send(change));
                let watched = Plugins::watch(&dir, node, report).await;
                let (_, watching) = watched.map_err(|error| with_remedy(&error))?;
                let printing = async {
                    while let Some(change) = changes.recv().await {
                        if writeln!(io::stdout(), "{}", change.to_json()).is_err() {
                            break;
                        }
                    }
                };
                tokio::select! {
                    never = watching.follow() => match never {},
                    () = printing => Ok(()),
                }
            };
            tokio::select! {
                biased;
                interrupted = interrupted => Ok(interrupted?),
                done = watching => done,
            }
        });
        runtime.shutdown_background();
        done
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

fn write_text(out: &mut impl Write, change: &Change) -> io::Result<()> {
    match change {
        Change::Refused { remedy, .. } => writeln!(out, "{change}\n  → {}", remedy.replace('\n', "\n    ")),
        Change::Loaded { release, .. } => writeln!(out, "{change}, sha256:{}", release.digest),
        Change::Replaced { .. } | Change::Retired { .. } => writeln!(out, "{change}"),
    }
}
