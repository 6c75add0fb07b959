//! A plugin directory under watch, and versions of one real kind to put into it.
//!
//! **Invariant:** a test goes on when a change is told or a guest is where it should be, never after a while.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bc_daemon::config::Config;
use bc_daemon::node::Node;
use bc_daemon::plugins::{Change, Plugins};
use bc_proto::rules::plugins::Release;
use bc_proto::rules::trust::SignedBundle;
use bc_runtime::capability::{Answer, Inventory};
use bc_runtime::{Inspected, Kind, Outcome, Report, Run};
use better_compute::kind::pack;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The kind that the tests replace.
pub(crate) const KIND: &str = "inventory.refresh";

/// A change or a guest that takes longer than this will not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// A kind that was built before the tests.
pub(crate) fn built(name: &str) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/dist").join(name).with_added_extension("wasm");
    fs::read(&file).unwrap_or_else(|error| {
        panic!("{}: {error}; build it with `better-compute kind build --out plugins/dist`", file.display())
    })
}

/// [`KIND`] as another version: the same component under a changed manifest.
pub(crate) fn version(version: &str) -> Vec<u8> {
    let Inspected { mut bytes, mut manifest, .. } = Inspected::from_bytes(built(KIND)).expect("a kind");
    // The manifest was appended to the component, so that it is as long as it is appended to nothing.
    bytes.truncate(bytes.len() - pack::embed(Vec::new(), &manifest).len());
    manifest.version = version.parse().expect("semver");
    pack::embed(bytes, &manifest)
}

/// What a component is, as changes name it.
pub(crate) fn release(bytes: &[u8]) -> Release {
    let Inspected { manifest, digest, .. } = Inspected::from_bytes(bytes.to_vec()).expect("a kind");
    Release { kind: manifest.name, version: manifest.version, digest }
}

/// The directory, the node that serves it, and what is told of it.
pub(crate) struct Bench {
    folder: TempDir,
    node: Arc<Node>,
    pub(crate) plugins: Plugins,
    changes: UnboundedReceiver<Change>,
    following: JoinHandle<Infallible>,
    held: UnboundedReceiver<()>,
    let_go: mpsc::Sender<()>,
}

impl Bench {
    /// Serves a directory that already holds [`KIND`].
    pub(crate) async fn serving(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("plugins")).expect("a folder");
        let (entered, held) = unbounded_channel();
        let (let_go, freed) = mpsc::channel();
        let config = Config {
            grants: [("inventory.*".into(), granting_inventory())].into(),
            cache_dir: Some(folder.path().join("cache")),
            ..Config::default()
        };
        let mut node = Node::new(&config).expect("a node");
        node.capabilities.inventory = Some(Arc::new(Holding { entered, freed: Mutex::new(freed) }));
        let node = Arc::new(node);
        let file = folder.path().join("plugins").join(KIND).with_added_extension("wasm");
        fs::write(&file, bytes).expect("a file");

        let (reports, changes) = unbounded_channel();
        let dir = folder.path().join("plugins");
        let report = move |change| drop(reports.send(change));
        let watched = Plugins::watch(&dir, Arc::clone(&node), report).await;
        let (plugins, watching) = watched.expect("a directory that can be watched");
        let following = tokio::spawn(watching.follow());
        let mut bench = Self { folder, node, plugins, changes, following, held, let_go };
        assert_eq!(bench.change().await, Change::Loaded { file, release: release(bytes) });
        bench
    }

    /// The node is told whom to trust.
    pub(crate) fn trust(&self, bundle: SignedBundle) {
        assert!(self.node.trust.offer(bundle).expect("a root vouches for it"));
    }

    /// The plugin directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("plugins")
    }

    /// A file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name).with_added_extension("wasm")
    }

    /// Writes a file in place.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let file = self.file(name);
        fs::write(&file, bytes).expect("the directory is writable");
        file
    }

    /// Writes a file beside its place and renames it into it.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let beside = self.write(".new", bytes);
        fs::rename(beside, self.file(name)).expect("one file system");
        self.file(name)
    }

    /// The next change.
    pub(crate) async fn change(&mut self) -> Change {
        let change = tokio::time::timeout(PATIENCE, self.changes.recv()).await.expect("a change is told");
        change.expect("the directory is followed")
    }

    /// The next change, which refuses a file: why, and what stays.
    pub(crate) async fn refusal(&mut self, of: &Path) -> (String, String, Option<Release>) {
        match self.change().await {
            Change::Refused { file, reason, remedy, serving, .. } if file == of => (reason, remedy, serving),
            other => panic!("not a refusal of {}: {other}", of.display()),
        }
    }

    /// Asserts that every change was taken note of.
    pub(crate) fn no_more_changes(&mut self) {
        assert_eq!(self.changes.try_recv().ok(), None);
    }

    /// The kind as new commands get it.
    pub(crate) fn kind(&self) -> Kind {
        self.plugins.kind(KIND).expect("it is served")
    }

    /// Runs what is served now, and answers the digest of what ran.
    pub(crate) async fn run(&self) -> String {
        digest_of(&self.kind().run(self.run_of(&self.kind(), json!({ "sections": ["os"] }))).await)
    }

    /// Starts what is served now; returns when it is in the middle of its work, where it stays until [`Bench::let_go`].
    pub(crate) async fn start(&mut self) -> JoinHandle<Report> {
        let kind = self.kind();
        let run = self.run_of(&kind, json!({ "sections": ["cpu"] }));
        let running = tokio::spawn(async move { kind.run(run).await });
        tokio::time::timeout(PATIENCE, self.held.recv()).await.expect("it starts").expect("the node lives");
        running
    }

    /// Lets a started run go on.
    pub(crate) fn let_go(&self) {
        self.let_go.send(()).expect("a run is held");
    }

    fn run_of(&self, kind: &Kind, payload: Value) -> Run {
        Run { record: true, ..self.node.run_of(kind, payload, CancellationToken::new()) }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// The digest of the component that a run succeeded with.
pub(crate) fn digest_of(report: &Report) -> String {
    assert!(matches!(report.outcome, Outcome::Succeeded { .. }), "{}", report.outcome);
    report.transcript.as_ref().expect("it was recorded").digest.clone()
}

fn granting_inventory() -> bc_proto::grants::Grants {
    bc_proto::grants::Grants { inventory: Some(bc_proto::grants::Plain {}), ..Default::default() }
}

/// An inventory that answers about `cpu` only when it is let.
struct Holding {
    entered: UnboundedSender<()>,
    freed: Mutex<mpsc::Receiver<()>>,
}

impl Inventory for Holding {
    fn sections(&self) -> Vec<String> {
        vec!["os".into(), "cpu".into()]
    }

    fn collected(&self, sections: &[String]) -> Answer<String> {
        if sections == ["cpu"] {
            self.entered.send(()).expect("the test waits");
            self.freed.lock().expect("one run is held").recv().expect("the test lets go");
        }
        let section = json!({ "collectedAtMs": 1, "data": null, "problems": [] });
        Ok(Value::Object(sections.iter().map(|name| (name.clone(), section.clone())).collect()).to_string())
    }

    fn rescan(&self, sections: &[String]) -> Answer<String> {
        self.collected(sections)
    }
}
