//! A daemon in a folder of its own, joined to a gateway of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bc_daemon::config::Config;
use bc_daemon::join::{self, Join, Joined};
use bc_daemon::node::Node;
use bc_daemon::run;
use bc_proto::wire::Deliver;
use bc_runtime::capability::Capabilities;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gateway::{Authority, Gateway, deliver, soon};

pub(crate) const NOOP: &str = "bench.noop";
pub(crate) const HOSTILE: &str = "test.hostile";

/// A kind's component as `cargo xtask plugins` builds it.
pub(crate) fn component(kind: &str) -> Vec<u8> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in the repository").join("plugins/dist");
    let file = dist.join(kind).with_added_extension("wasm");
    fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}: build it with cargo xtask plugins", file.display()))
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A command without payload.
pub(crate) fn noop(seq: u64) -> Deliver {
    deliver(NOOP, &digest(&component(NOOP)), seq, json!({}))
}

pub(crate) fn hostile(seq: u64, payload: Value) -> Deliver {
    deliver(HOSTILE, &digest(&component(HOSTILE)), seq, payload)
}

/// Joins `state_dir`'s machine.
pub(crate) fn joining(gateways: &[String], token: &str, state_dir: &Path) -> Join {
    Join {
        gateway: gateways.iter().map(|url| url.parse().expect("an address")).collect(),
        token_file: None,
        token: Some(token.to_owned()),
        name: Some("node-1".into()),
        role: None,
        again: false,
        state_dir: Some(state_dir.to_owned()),
        config: None,
    }
}

pub(crate) struct Bench {
    folder: TempDir,
    pub(crate) authority: Arc<Authority>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::of(Authority::new())
    }

    pub(crate) fn of(authority: Arc<Authority>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("plugins")).expect("a folder");
        fs::write(folder.path().join("boot-id"), "boot-1\n").expect("a file");
        let bench = Self { folder, authority };
        bench.plug(NOOP);
        bench
    }

    /// Puts a kind into the plugin directory.
    pub(crate) fn plug(&self, kind: &str) {
        let file = self.path("plugins").join(kind).with_added_extension("wasm");
        fs::write(file, component(kind)).expect("it is written");
    }

    pub(crate) fn unplug(&self, kind: &str) {
        fs::remove_file(self.path("plugins").join(kind).with_added_extension("wasm")).expect("it was there");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    pub(crate) async fn gateway(&self) -> Gateway {
        Gateway::start(&self.authority).await
    }

    /// Makes it a node of these gateways.
    pub(crate) async fn join(&self, gateways: &[&Gateway]) -> Joined {
        let token = self.authority.token("first");
        gateways[0].desk().token.clone_from(&token);
        let urls: Vec<_> = gateways.iter().map(|gateway| gateway.url()).collect();
        soon(join::join(&joining(&urls, &token, &self.state_dir()))).await.expect("it joins")
    }

    pub(crate) fn config(&self) -> Config {
        let cache = std::env::current_exe().expect("a running program has a path").with_file_name("compiled-kinds");
        let text = "[grants.'test.*']\nnvml = {}\ngpus = { reset = true }\nsystem = { reboot = true }\n\
                    secrets = { refs = ['token'] }\n[grants.'logs.collect']\ninventory = {}\nupload = {}\n\
                    files.folders = ['/var/log', '/var/lib/bcd/public']\n\
                    process.programs = [\
                    { program = 'journalctl', argv = ['--no-pager', '--quiet', '--output=short-iso', '--lines=*', '--since=-*s'], read-only = true }, \
                    { program = 'journalctl', argv = ['--no-pager', '--quiet', '--output=short-iso', '--lines=*', '--since=-*s', '--unit=bcd.service'], read-only = true }, \
                    { program = 'dmesg', argv = ['--decode', '--time-format', 'iso'], read-only = true }, \
                    { program = 'nvidia-bug-report.sh', argv = ['--safe-mode', '--output-file', '/var/log/nvidia-bug-report-bcd.log'] }]";
        fs::write(self.path("bcd.toml"), text).expect("a file");
        Config {
            cache_dir: Some(cache),
            state_dir: Some(self.state_dir()),
            plugin_dir: Some(self.path("plugins")),
            boot_id_file: Some(self.path("boot-id")),
            ..Config::read(&self.path("bcd.toml")).expect("it fits")
        }
    }

    /// Starts the daemon.
    pub(crate) fn daemon(&self) -> Daemon {
        self.daemon_offering(|_| ())
    }

    /// Starts the daemon on a machine with other capabilities.
    pub(crate) fn daemon_offering(&self, change: impl FnOnce(&mut Capabilities)) -> Daemon {
        self.daemon_on(|node| change(&mut node.capabilities))
    }

    /// Starts the daemon on a machine that is changed before.
    pub(crate) fn daemon_on(&self, change: impl FnOnce(&mut Node)) -> Daemon {
        let config = self.config();
        let mut node = Node::new(&config).expect("a node");
        change(&mut node);
        let stop = CancellationToken::new();
        let task = tokio::spawn(run::run_on(Arc::new(node), config, stop.clone()));
        Daemon { stop, task }
    }
}

pub(crate) struct Daemon {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Daemon {
    /// Stops it in an orderly way.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        soon(self.task).await.expect("it does not panic").expect("it stops well");
    }
}
