//! A daemon without a session, in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bc_daemon::config::Config;
use bc_daemon::journal::{Journal, Opened};
use bc_daemon::kinds::Kinds;
use bc_daemon::lanes::Lanes;
use bc_daemon::node::Node;
use bc_daemon::server_time::ServerTime;
use bc_daemon::shell::{FrameSink, Handle, NoTerminal, Parts, Shell};
use bc_daemon::trust::Trust;
use bc_proto::grants::Policy;
use bc_proto::id::{CommandId, NodeId};
use bc_proto::manifest::Role;
use bc_proto::rules::daemon::{Book, Frame, Identity, Input};
use bc_proto::wire::{Deliver, Update};
use bc_runtime::capability::Capabilities;
use bc_runtime::v1::wit::log::Level;
use bc_runtime::{Inspected, Kind};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Nothing here takes that long unless it never comes.
const PATIENCE: Duration = Duration::from_mins(1);
const START_MS: u64 = 1_700_000_000_000;

pub(crate) fn id(seq: u64) -> CommandId {
    CommandId::from_uuid(Uuid::from_u128(u128::from(seq)))
}

fn node_id() -> NodeId {
    NodeId::from_uuid(Uuid::from_u128(7))
}

/// A kind's name and digest.
pub(crate) struct Named(String, String);

pub(crate) fn deliver(kind: &Named, seq: u64, payload: Value) -> Deliver {
    Deliver {
        command: id(seq),
        seq,
        node: node_id(),
        incarnation: 1,
        kind: kind.0.clone(),
        kind_digest: kind.1.clone(),
        payload,
        not_after_ms: START_MS + 600_000,
        timeout_ms: 30_000,
        min_generation: None,
        signature: None,
        batch: None,
        approved: None,
        upload: None,
    }
}

/// What came to the sink.
#[derive(Debug)]
pub(crate) enum Said {
    Frame(Frame),
    Log(CommandId, String),
}

pub(crate) struct Bench {
    folder: Arc<TempDir>,
    node: Arc<Node>,
    kinds: Kinds,
    journal: PathBuf,
    pub(crate) reserve_bytes: u64,
    pub(crate) noop: Named,
    pub(crate) hostile: Named,
    pub(crate) unknown: Named,
}

fn load(node: &Node, name: &str) -> Kind {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in the repository").join("plugins/dist");
    let file = dist.join(name).with_added_extension("wasm");
    let component = Inspected::read(&file).unwrap_or_else(|error| panic!("{error}: build it with cargo xtask plugins"));
    node.engine.load(&component).expect("it loads")
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = std::env::current_exe().expect("a running program has a path").with_file_name("compiled-kinds");
        let config = Config { root: folder.path().into(), cache_dir: Some(cache), ..Config::default() };
        let mut node = Node::new(&config).expect("a node");
        let grants = "[grants.'test.*']\nnvml = {}\ngpus = { reset = true }\nsystem = { reboot = true }\n\
                      process.programs = [{ program = 'sh', argv = ['-c', '*'] }]";
        node.policy = Policy::from_toml(grants).expect("a policy");
        let (noop, hostile) = (load(&node, "bench.noop"), load(&node, "test.hostile"));
        let named = |kind: &Kind| Named(kind.manifest().name.clone(), kind.digest().to_owned());
        let kinds = Kinds::default();
        kinds.add(&noop);
        kinds.add(&hostile);
        Self {
            journal: folder.path().join("journal.db"),
            folder: Arc::new(folder),
            node: Arc::new(node),
            kinds,
            reserve_bytes: 64 * 1024,
            noop: named(&noop),
            hostile: named(&hostile),
            unknown: Named("test.unknown".into(), "00".repeat(32)),
        }
    }

    /// The kind that runs programs, on a node that supervises them with the daemon's own binary.
    pub(crate) fn program(&mut self) -> Named {
        let node = Arc::get_mut(&mut self.node).expect("no daemon runs yet");
        node.supervisor = Some(env!("CARGO_BIN_EXE_bcd").into());
        let kind = load(node, "test.program");
        self.kinds.add(&kind);
        Named(kind.manifest().name.clone(), kind.digest().to_owned())
    }

    /// Changes what the node offers.
    pub(crate) fn offer(&mut self, change: impl FnOnce(&mut Capabilities)) {
        change(&mut Arc::get_mut(&mut self.node).expect("no daemon runs yet").capabilities);
    }

    pub(crate) async fn open_journal(&self) -> Opened {
        // A copy stands for the disk as it was, so it is the same file.
        Journal::open_as(&self.journal, [1; 16], self.reserve_bytes, |_| Ok(1)).await.expect("the journal opens")
    }

    /// Starts a daemon on the journal as it is, with session 1 open.
    pub(crate) async fn daemon(&self) -> Daemon {
        let Opened { journal, book, set_aside } = self.open_journal().await;
        assert_eq!(set_aside, None);
        let time = ServerTime::unknown(Instant::now());
        time.set(START_MS, Instant::now());
        let (said, heard) = mpsc::unbounded_channel();
        let parts = Parts {
            trust: Trust::default(),
            providers: Vec::new(),
            terminal: Arc::new(NoTerminal),
            node: Arc::clone(&self.node),
            identity: Identity {
                node: node_id(),
                incarnation: 1,
                role: Role::Host,
                boot: "boot-1".into(),
                version: "1.0.0".into(),
            },
            kinds: self.kinds.clone(),
            kept: None,
            journal: journal.clone(),
            lanes: Lanes::default(),
            time,
            sink: Arc::new(List { said, journal: self.journal.clone(), _folder: Arc::clone(&self.folder) }),
            alive: Box::new(|| {}),
        };
        let (shell, handle) = Shell::start(parts, 0, book).await.expect("the journal takes it");
        let stop = CancellationToken::new();
        tokio::spawn(shell.run(stop.clone()));
        let daemon = Daemon { handle, heard, journal, _stop: stop.drop_guard() };
        daemon.input(Input::SessionOpened { epoch: 1, settled_below_seq: 1 }).await;
        daemon
    }

    /// The journal's files as they were when this command's acknowledgement left.
    pub(crate) fn after_crash_at_ack(&self, seq: u64) -> Self {
        Self {
            folder: Arc::clone(&self.folder),
            node: Arc::clone(&self.node),
            kinds: self.kinds.clone(),
            journal: at_ack(&self.journal, id(seq)).0,
            reserve_bytes: self.reserve_bytes,
            noop: Named(self.noop.0.clone(), self.noop.1.clone()),
            hostile: Named(self.hostile.0.clone(), self.hostile.1.clone()),
            unknown: Named(self.unknown.0.clone(), self.unknown.1.clone()),
        }
    }

    /// What they held.
    pub(crate) async fn disk_at_ack(&self, seq: u64) -> Book {
        let Opened { book, set_aside, .. } = self.after_crash_at_ack(seq).open_journal().await;
        assert_eq!(set_aside, None);
        book
    }
}

/// Copies of the database and its log.
fn at_ack(journal: &Path, command: CommandId) -> (PathBuf, PathBuf) {
    let name = format!("at-{command}.db");
    (journal.with_file_name(&name), journal.with_file_name(name + "-wal"))
}

pub(crate) struct Daemon {
    handle: Handle,
    heard: mpsc::UnboundedReceiver<Said>,
    pub(crate) journal: Journal,
    _stop: tokio_util::sync::DropGuard,
}

impl Daemon {
    pub(crate) async fn input(&self, input: Input) {
        assert!(self.handle.input(input).await, "the loop runs");
    }

    pub(crate) async fn deliver(&self, command: &Deliver) {
        self.input(Input::Delivered { epoch: 1, deliver: Box::new(command.clone()) }).await;
    }

    pub(crate) async fn said(&mut self) -> Said {
        let said = tokio::time::timeout(PATIENCE, self.heard.recv()).await;
        said.expect("something is said in time").expect("the loop runs")
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> Frame {
        loop {
            if let Said::Frame(frame) = self.said().await {
                return frame;
            }
        }
    }

    /// The next frame, which is a report about this command.
    pub(crate) async fn report(&mut self, seq: u64) -> Update {
        match self.frame().await {
            Frame::Update(update) | Frame::Denied(update) if update.command == id(seq) => update,
            other => panic!("no report about {}: {other:?}", id(seq)),
        }
    }

    /// The terminal report about this command, whatever else is said before.
    pub(crate) async fn report_of(&mut self, seq: u64) -> Update {
        let [update] = self.reports_of([seq]).await;
        update
    }

    /// The terminal reports about these commands, in whatever order they are said.
    pub(crate) async fn reports_of<const N: usize>(&mut self, seqs: [u64; N]) -> [Update; N] {
        let mut found = seqs.map(|_| None);
        while found.iter().any(Option::is_none) {
            let (Frame::Update(update) | Frame::Denied(update)) = self.frame().await else { continue };
            if let Some(at) = seqs.iter().position(|&seq| id(seq) == update.command)
                && update.report.is_terminal()
            {
                found[at] = Some(update);
            }
        }
        found.map(|update| update.expect("all were found"))
    }
}

struct List {
    said: mpsc::UnboundedSender<Said>,
    journal: PathBuf,
    _folder: Arc<TempDir>,
}

impl FrameSink for List {
    fn frame(&self, frame: Frame) {
        if let Frame::Ack(command) = &frame {
            let (database, log) = at_ack(&self.journal, *command);
            fs::copy(&self.journal, database).expect("the journal is copied");
            fs::copy(self.journal.with_extension("db-wal"), log).expect("its log is copied");
        }
        let _ = self.said.send(Said::Frame(frame));
    }

    fn progress(&self, _: CommandId, _: u64, _: Option<u64>, _: &str, _: &str) {}

    fn log(&self, command: CommandId, _: Level, _: &str, message: &str, _: &str) {
        let _ = self.said.send(Said::Log(command, message.to_owned()));
    }
}
