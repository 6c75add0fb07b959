//! `bcd doctor`: is this machine set up as a node, and what is missing?
//!
//! **Invariant:** it changes nothing, opens no session and runs no kind; it may run beside the daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bc_proto::grants::Capability;
use bc_proto::rules::doctor::{Finding, Level, certificate, private, room, worst};
use clap::Args;
use tokio::sync::mpsc::unbounded_channel;

use crate::capability::system::boot_id;
use crate::config::Config;
use crate::credentials::Credentials;
use crate::gateway::{Address, Verifier, chain, endpoint};
use crate::identity::{self, Identity};
use crate::journal::RESERVE_BYTES;
use crate::node::Node;
use crate::plugins::{Change, Plugins};
use crate::terminal::say;

/// How long one gateway may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What `doctor` takes.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The node's configuration; without it, the defaults
    #[arg(long, value_name = "FILE", env = "BCD_CONFIG")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Looks, and prints what it found. Answers the exit code: 1 where something does not work.
    pub fn block_on(&self) -> anyhow::Result<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let findings = runtime.block_on(self.findings());
        runtime.shutdown_background();
        say(&if self.json { serde_json::to_string_pretty(&findings)? } else { as_text(&findings) });
        Ok(u8::from(worst(&findings) == Level::Fail))
    }

    async fn findings(&self) -> Vec<Finding> {
        let config = match self.config.as_deref().map(Config::read).transpose() {
            Ok(config) => config.unwrap_or_default(),
            Err(error) => {
                return vec![Finding::fail(
                    "configuration",
                    error.to_string(),
                    "correct that line; docs/node.md has every key",
                )];
            }
        };
        let named = self.config.as_ref().map_or("the defaults".into(), |path| path.display().to_string());
        let mut findings = vec![Finding::ok("configuration", named)];
        let state_dir = config.state_dir();
        findings.extend(state(&state_dir));
        match identity::read(&state_dir) {
            Ok(identity) => {
                findings.extend(whose(&identity));
                findings.extend(gateways(&config, &identity).await);
            }
            Err(error) => {
                let text = error.to_string();
                let (found, remedy) = text.split_once("\n  → ").unwrap_or((&text, "join this machine: bcd join"));
                findings.push(Finding::fail("identity", found, remedy));
            }
        }
        findings.push(match boot_id(&config.boot_id_file()) {
            Ok(boot) => Finding::ok("boot id", boot),
            Err(error) => Finding::fail("boot id", error.to_string(), "name a file that can be read with boot-id-file"),
        });
        match Node::new(&config) {
            Ok(node) => {
                let node = Arc::new(node);
                findings.extend(plugins(&config, &node).await);
                findings.extend(driver(&config, &node));
            }
            Err(error) => findings.push(Finding::fail(
                "machine",
                format!("{error:#}"),
                "correct the key that it names in the configuration",
            )),
        }
        findings
    }
}

/// Findings for people: a line each, what to do below it.
pub fn as_text(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|Finding { check, level, found, remedy }| {
        let level = match level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        let remedy =
            remedy.as_ref().map(|it| format!("\n        → {}", it.replace('\n', "\n          "))).unwrap_or_default();
        format!("{level}  {check}: {}{remedy}", found.replace('\n', "\n        "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The state folder: there, private, with room.
fn state(folder: &Path) -> Vec<Finding> {
    const CHECK: &str = "state folder";
    let name = folder.display();
    let mode = match fs::metadata(folder) {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) => {
            return vec![Finding::fail(
                CHECK,
                format!("{name}: {error}"),
                "join this machine (bcd join), or correct state-dir",
            )];
        }
    };
    let mut findings = vec![private(CHECK, &name.to_string(), mode)];
    findings.push(match rustix::fs::statvfs(folder) {
        Ok(disk) => room("journal's room", disk.f_bavail.saturating_mul(disk.f_frsize), RESERVE_BYTES),
        Err(error) => Finding::warn(
            "journal's room",
            format!("it cannot be asked: {error}"),
            "look at the disk below the state folder",
        ),
    });
    findings
}

/// Who the node is, and for how long.
fn whose(identity: &Identity) -> [Finding; 2] {
    let (card, own) = (&identity.card, identity.certificate());
    let renew = "start bcd where it can reach a gateway: it renews by itself; an ended one needs `bcd join --again`";
    [
        Finding::ok("identity", format!("{} is {}, incarnation {}", card.name, card.node, card.incarnation)),
        certificate("certificate", own.not_before_ms, own.not_after_ms, now_ms(), renew),
    ]
}

/// Whether each gateway answers with a certificate of the right authority.
async fn gateways(config: &Config, identity: &Identity) -> Vec<Finding> {
    let joined = identity.card.gateways.iter().filter_map(|url| url.parse().ok()).collect::<Vec<Address>>();
    let addresses = if config.gateways.is_empty() { joined } else { config.gateways.clone() };
    let credentials = Credentials::new(identity);
    let mut findings = Vec::new();
    for address in addresses {
        let check = format!("gateway {address}");
        let reached = async {
            let verifier =
                Verifier::of_authority(identity.authority.clone(), Box::new(now_ms)).map_err(|it| chain(&it))?;
            let endpoint = endpoint(&address, verifier, Some(credentials.tls())).map_err(|it| chain(&it))?;
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, endpoint.connect()).await;
            connected.map_err(|_| "it does not answer".to_owned())?.map_err(|it| chain(&it)).map(drop)
        };
        findings.push(match reached.await {
            Ok(()) => Finding::ok(&check, "reached, and its certificate is of our authority"),
            Err(why) => Finding::fail(
                &check,
                why,
                "look at name, route and firewall; `gateways` in the configuration names others",
            ),
        });
    }
    if findings.is_empty() {
        findings.push(Finding::fail(
            "gateways",
            "none is known",
            "name them in the configuration: gateways = [\"https://host:port\"]",
        ));
    }
    findings
}

/// What the plugin directory would serve here, and why not the rest.
async fn plugins(config: &Config, node: &Arc<Node>) -> Vec<Finding> {
    const CHECK: &str = "kinds";
    let Some(dir) = &config.plugin_dir else {
        return vec![Finding::ok(CHECK, "no plugin-dir: components are fetched from the control plane, by digest")];
    };
    let (reports, mut changes) = unbounded_channel();
    let opened = Plugins::open(dir, Arc::clone(node), move |change| drop(reports.send(change))).await;
    if let Err(error) = opened.map(drop) {
        return vec![Finding::fail(CHECK, error.to_string(), error.remedy())];
    }
    let mut findings = Vec::new();
    while let Some(change) = changes.recv().await {
        let file = change.file().file_name().unwrap_or_default().to_string_lossy().into_owned();
        findings.push(match change {
            Change::Refused { reason, remedy, .. } => Finding::fail(&format!("kind {file}"), reason, remedy),
            served => Finding::ok(&format!("kind {file}"), served.to_string()),
        });
    }
    if findings.is_empty() {
        findings.push(Finding::warn(
            CHECK,
            format!("{} holds no component", dir.display()),
            "put .wasm files there, or leave plugin-dir out",
        ));
    }
    findings
}

/// NVIDIA's driver, where something is granted that needs it.
fn driver(config: &Config, node: &Node) -> Option<Finding> {
    const CHECK: &str = "NVIDIA driver";
    let wanted = config.grants.values().any(|it| it.nvml.is_some() || it.gpus.is_some());
    let nvml = node.capabilities.nvml.as_ref().filter(|_| wanted && node.offers().contains(&Capability::Nvml))?;
    Some(match nvml.driver() {
        Ok(driver) => Finding::ok(CHECK, format!("version {}", driver.version)),
        Err(failure) => {
            Finding::fail(CHECK, failure.message, "install the driver, or name its library with nvml.library")
        }
    })
}

#[expect(clippy::disallowed_methods, reason = "a person asks how this machine is now, by its own clock")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
