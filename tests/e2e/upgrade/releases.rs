//! Releases, good and broken, and a service manager.
//!
//! **Invariant:** a good release is the program that is tested, byte for byte but for its version.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bc_host::api::types::Command;
use bc_tests::cluster::Cluster;
use bc_tests::programs;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

/// The kind.
pub(crate) const KIND: &str = "daemon.upgrade";

/// The version of the programs that are tested.
pub(crate) const CURRENT: &str = env!("CARGO_PKG_VERSION");

/// How long the service manager lets a daemon go on. As a watchdog it is a blunt one: it may restart a daemon that is well.
const WATCHDOG: Duration = Duration::from_secs(20);

/// A release that was pushed.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) version: String,
    pub(crate) sha256: String,
}

impl Release {
    pub(crate) fn payload(&self) -> Value {
        json!({ "version": self.version, "sha256": self.sha256 })
    }
}

/// A cluster whose nodes may be upgraded, and whose releases nobody signs.
pub(crate) async fn cluster(nodes: usize) -> Cluster {
    let mut cluster = Cluster::start(1, nodes).await;
    cluster.api.register(fs::read(programs::kind(KIND)).expect("it is built")).await;
    for node in &mut cluster.nodes {
        node.configure(
            "[grants.'daemon.upgrade']\nupgrade = {}\n\
             [upgrade]\nconfirm-after = '500ms'\nconfirm-within = '6s'\nallow-unsigned = true",
        );
        node.start();
    }
    cluster
}

/// A version that is newer than the current one, as long as it, and has this at its end.
fn version(end: &str) -> String {
    let kept = CURRENT.len() - end.len();
    let version = format!("{}{end}", &CURRENT[..kept]);
    // Numbers sort below words, so any letter makes it newer; a digit has to be greater.
    assert_ne!(version, CURRENT, "another one");
    version
}

/// The tested program with another version in it.
fn patched(version: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("bcd");
    fs::copy(programs::program("bcd"), &copy).expect("it is built");
    // Debug information makes the file several times as large, and says nothing to a daemon.
    #[expect(clippy::disallowed_methods, reason = "a tool of the compiler")]
    let stripped = std::process::Command::new("strip").arg("-S").arg(&copy).status();
    assert!(stripped.is_ok_and(|status| status.success()), "`strip` of binutils is there");
    let mut bytes = fs::read(&copy).expect("it is there");
    let (old, new) = (CURRENT.as_bytes(), version.as_bytes());
    assert_eq!(old.len(), new.len());
    let places: Vec<usize> = bytes.windows(old.len()).enumerate().filter(|it| it.1 == old).map(|it| it.0).collect();
    assert!(!places.is_empty(), "its version stands in it");
    for place in places {
        bytes[place..place + new.len()].copy_from_slice(new);
    }
    bytes
}

/// Pushes a release that works.
pub(crate) async fn good(cluster: &Cluster, end: &str) -> Release {
    let version = version(end);
    push(cluster, &version, &patched(&version)).await
}

/// Pushes a release that answers its version, and does not work otherwise.
pub(crate) async fn broken(cluster: &Cluster, how: &str) -> Release {
    let version = match how {
        "exits" => "7.0.1",
        "hangs" => "7.0.2",
        "no-session" => &version("9z"),
        _ => "7.0.4",
    };
    let says = if how == "misnamed" { "7.7.7" } else { version };
    let does = match how {
        "hangs" => "exec sleep 600".to_owned(),
        "no-session" => {
            // The real program, with a gateway that nobody is at.
            let config = lonely(cluster, &cluster.nodes[0].path("bcd.toml"));
            let binary = real(cluster, version);
            format!("exec {} run --config {}", binary.display(), config.display())
        }
        _ => "exit 1".to_owned(),
    };
    let script = format!("#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'bcd {says}'; exit 0; fi\n{does}\n");
    push(cluster, version, script.as_bytes()).await
}

/// A configuration that differs in its gateways.
fn lonely(cluster: &Cluster, config: &Path) -> PathBuf {
    let text = fs::read_to_string(config).expect("it is there");
    let lines =
        text.lines().map(|line| if line.starts_with("gateways") { "gateways = ['https://127.0.0.1:9']" } else { line });
    let lonely = cluster.folder().join("lonely.toml");
    fs::write(&lonely, lines.collect::<Vec<_>>().join("\n")).expect("it is written");
    lonely
}

/// The tested program as another version, in a file that a script finds.
fn real(cluster: &Cluster, version: &str) -> PathBuf {
    let binary = cluster.folder().join(format!("bcd-{version}"));
    fs::write(&binary, patched(version)).expect("it is written");
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o700)).expect("it is ours");
    binary
}

/// Pushes a file by the command line, as people do.
async fn push(cluster: &Cluster, version: &str, bytes: &[u8]) -> Release {
    let file = cluster.folder().join(format!("release-{version}"));
    fs::write(&file, bytes).expect("it is written");
    let mut command = programs::command("better-compute");
    command.args(["release", "push", "--version", version, "--json", "--url", &cluster.replicas[0].api_url()]);
    command.arg(&file).env("BETTER_COMPUTE_TOKEN", cluster.api.token());
    let said = tokio::task::spawn_blocking(move || programs::run(&mut command)).await.expect("no panic");
    assert_eq!(said.code, Some(0), "{said:?}");
    let release: Value = serde_json::from_str(&said.out).expect("JSON");
    Release { version: version.into(), sha256: release["sha256"].as_str().expect("a digest").into() }
}

/// Changes a byte of a release in the database.
pub(crate) async fn damage(cluster: &Cluster, release: &Release) {
    let mut db = PgConnection::connect(&cluster.database.url()).await.expect("it runs");
    let changed = sqlx::query(
        "update release_chunks set bytes = set_byte(bytes, 1000, (get_byte(bytes, 1000) + 1) % 256)
         where sha256 = decode($1, 'hex') and seq = 1",
    )
    .bind(&release.sha256)
    .execute(&mut db)
    .await
    .expect("it is SQL");
    assert_eq!(changed.rows_affected(), 1);
}

/// Returns a command when it is over, and starts the node's daemon meanwhile whenever it ends or hangs, as a service manager does.
pub(crate) async fn settled(cluster: &mut Cluster, node: usize, command: &Command) -> Command {
    let Cluster { api, nodes, .. } = cluster;
    tokio::select! {
        settled = api.settled(command) => settled,
        () = serve(&mut nodes[node]) => unreachable!("it serves for ever"),
    }
}

/// The service manager.
pub(crate) async fn serve(node: &mut bc_tests::cluster::node::Node) {
    loop {
        // A daemon that hangs is killed; so is one that is well, now and then, which must not matter.
        let _ = tokio::time::timeout(WATCHDOG, node.process().ended()).await;
        node.start();
    }
}

/// Returns when the daemon's probation is over.
pub(crate) async fn wait_confirmed(cluster: &mut Cluster, node: usize) {
    let file = cluster.nodes[node].path("state/slots.json");
    let is_over = || fs::read_to_string(&file).is_ok_and(|text| text.contains("\"trial\":null"));
    tokio::select! {
        () = bc_tests::cluster::until("the probation is over", is_over) => {}
        () = serve(&mut cluster.nodes[node]) => unreachable!("it serves for ever"),
    }
}
