//! Daemons: joined, and running in processes of their own.
//!
//! **Invariant:** a daemon ends with whoever started it, however that one ends: its standard input is closed then.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use bc_daemon::join::{Join, join};
use bc_daemon::run::RunDaemon;
use bc_host::api::types::Node;
use clap::Args;
use futures_util::future::try_join_all;

use super::control::Control;

/// bcd, as a part of this program.
#[derive(Debug, Args)]
pub(crate) struct Bcd {
    /// The node's configuration
    config: PathBuf,
}

impl Bcd {
    /// Runs until the other end of the standard input is closed.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        std::thread::spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(0);
        });
        RunDaemon { config: Some(self.config), boot_id_file: None, log_format: None }.block_on()
    }
}

/// What the daemons of a fleet have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kit<'a> {
    /// Where each has a folder of its own.
    pub(super) folder: &'a Path,
    /// The kinds that they serve.
    pub(super) plugins: &'a Path,
    /// More of the configuration.
    pub(super) grants: &'a str,
}

/// A daemon that runs.
pub(super) struct Daemon {
    pub(super) node: Node,
    /// Its journal is there.
    pub(super) folder: PathBuf,
    process: Process,
}

/// Dropping it kills it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    /// Joins by the gateway of one of the replicas, starts, and waits until it is connected.
    pub(super) async fn start(control: &Control, kit: Kit<'_>, at: usize) -> anyhow::Result<Self> {
        let name = format!("daemon-{at}");
        let folder = kit.folder.join(&name);
        fs::create_dir_all(&folder)?;
        let folder = fs::canonicalize(folder)?;
        let gateway = &control.replicas[at % control.replicas.len()].gateway;
        let joined = join(&Join {
            gateway: vec![gateway.parse()?],
            token_file: None,
            token: Some(control.join_token().await?),
            name: Some(name),
            role: None,
            again: false,
            state_dir: Some(folder.clone()),
            config: None,
        })
        .await?;
        let config = folder.join("bcd.toml");
        let text = format!(
            "gateways = [{gateway:?}]\nstate-dir = {:?}\nplugin-dir = {:?}\ncache-dir = {:?}\n{}",
            folder.display().to_string(),
            fs::canonicalize(kit.plugins)?.display().to_string(),
            fs::canonicalize(kit.folder)?.join("cache").display().to_string(),
            kit.grants,
        );
        fs::write(&config, text)?;
        let process = spawn(&config, File::create(folder.join("log"))?)?;
        let node = control.connected(&joined.node.to_string()).await;
        let node = node.with_context(|| fs::read_to_string(folder.join("log")).unwrap_or_default())?;
        Ok(Self { node, folder, process })
    }

    /// Starts many, each at the next replica. The first one compiles the kinds for all.
    pub(super) async fn start_many(control: &Control, kit: Kit<'_>, count: usize) -> anyhow::Result<Vec<Self>> {
        let mut daemons = vec![Self::start(control, kit, 0).await?];
        daemons.extend(try_join_all((1..count).map(|at| Self::start(control, kit, at))).await?);
        Ok(daemons)
    }

    /// Its process.
    pub(super) fn process(&self) -> u32 {
        self.process.0.id()
    }
}

#[expect(clippy::disallowed_methods, reason = "a process of its own is what is measured")]
fn spawn(config: &Path, log: File) -> anyhow::Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bcd").arg(config).stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
    Ok(Process(command.spawn()?))
}
