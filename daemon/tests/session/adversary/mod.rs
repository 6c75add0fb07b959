//! A gateway that was taken over: it has all that a real one has, and attacks the daemon behind it.
//!
//! The tests play it and write down what refused each attempt. `UPDATE_ADVERSARY=1 cargo nextest run -p bc-daemon adversary`
//! writes `docs/adversary-node.md` anew; no attempt that has an effect gets into it unless the test says that it may.
//!
//! **Invariant:** the attacker holds every signed frame and no key that signs.

mod batches;
mod commands;
mod control_plane;
mod flips;
mod kinds;
mod replays;
mod secrets;
mod specs;
mod trust;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bc_daemon::trust::Trust;
use bc_proto::id::CommandId;
use bc_proto::rules::trust::TrustBundle;
use bc_proto::wire::{Deliver, Report, Update, v1};
use bc_runtime::capability::{Answer, Gpus, Secrets, System, gpus};

use self::control_plane::{Batch, ControlPlane, by_root, names};
use crate::bench::{Bench, Daemon, HOSTILE};
use crate::gateway::{Gateway, Link, PATIENCE, SERVER_TIME_MS, id};

/// What happens on the node when nothing does.
const NOTHING: &str = "nothing";
/// What is within the power of whoever relays.
const DROP: &str = "drop: it does not run";
const DELAY: &str = "delay: each runs once";

/// One attempt.
#[derive(Clone)]
struct Row {
    attempt: String,
    refused_by: String,
    on_node: &'static str,
}

/// What was tried, and what came of it.
#[derive(Clone)]
struct Table {
    title: &'static str,
    rows: Vec<Row>,
}

impl Table {
    fn new(title: &'static str) -> Self {
        Self { title, rows: Vec::new() }
    }

    fn row(&mut self, attempt: &str, refused_by: &str, on_node: &'static str) {
        assert!(self.rows.iter().all(|row| row.attempt != attempt), "twice: {attempt}");
        self.rows.push(Row { attempt: attempt.into(), refused_by: plain(refused_by), on_node });
    }
}

/// Without what differs from run to run, or nobody reads: times, keys and hashes.
fn plain(text: &str) -> String {
    let text = names().into_iter().fold(text.to_owned(), |text, (key, name)| text.replace(&key, name));
    let mut plain = String::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let long = rest.chars().take_while(char::is_ascii_hexdigit).count();
        let word = if long >= 10 { "…" } else { &rest[..long] };
        plain.push_str(word);
        rest = &rest[long..];
        let other = rest.find(|it: char| it.is_ascii_hexdigit()).unwrap_or(rest.len());
        plain.push_str(&rest[..other]);
        rest = &rest[other..];
    }
    plain.replace('|', "\\|")
}

/// What runs do, counted outside of them.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Gpus for Counted {
    fn holds(&self) -> Answer<Vec<gpus::Hold>> {
        Ok(Vec::new())
    }
    fn pass_throughs(&self) -> Answer<Vec<gpus::PassThrough>> {
        Ok(Vec::new())
    }
    fn reset(&self, _: &[String]) -> Answer<Vec<gpus::ResetOutcome>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Vec::new())
    }
}

impl System for Counted {
    fn boot_id(&self) -> Answer<String> {
        Ok("boot-1".into())
    }
    fn reboot(&self, _: &str) -> Answer<()> {
        Ok(())
    }
}

impl Secrets for Counted {
    fn get(&self, _: &str) -> Answer<String> {
        Ok(String::new())
    }
}

/// A node of the control plane's, behind the attacker's gateway.
struct Scene {
    table: Table,
    honest: ControlPlane,
    bench: Bench,
    gateway: Gateway,
    link: Option<Link>,
    daemon: Option<Daemon>,
    trust: Trust,
    counted: Arc<Counted>,
    /// Everything that was said of commands.
    said: Vec<Update>,
    /// Generations that were applied.
    applied: Vec<u64>,
    seq: u64,
    epoch: u64,
}

impl Scene {
    /// A node that trusts this, as the root says.
    async fn new(title: &'static str, bundle: TrustBundle) -> Self {
        Self::on(title, bundle, |bench| bench.plug(HOSTILE)).await
    }

    async fn on(title: &'static str, bundle: TrustBundle, prepare: impl FnOnce(&Bench)) -> Self {
        let bench = Bench::new();
        prepare(&bench);
        let gateway = bench.gateway().await;
        gateway.desk().trust_bundle = serde_json::to_vec(&by_root(bundle)).expect("JSON");
        bench.join(&[&gateway]).await;
        let mut scene = Self {
            table: Table::new(title),
            honest: ControlPlane::honest(),
            bench,
            gateway,
            link: None,
            daemon: None,
            trust: Trust::default(),
            counted: Arc::default(),
            said: Vec::new(),
            applied: Vec::new(),
            seq: 0,
            epoch: 0,
        };
        scene.start();
        scene.enter(SERVER_TIME_MS, 1, Vec::new()).await;
        scene
    }

    fn start(&mut self) {
        let (trust, counted) = (self.trust.clone(), self.counted.clone());
        self.daemon = Some(self.bench.daemon_on(|node| {
            node.trust = trust;
            node.capabilities.gpus = Some(counted.clone());
            node.capabilities.system = Some(counted.clone());
            node.capabilities.secrets = Some(counted);
        }));
    }

    /// Lets the node in to a new session.
    async fn enter(&mut self, server_time_ms: u64, settled_below_seq: u64, trust_bundle: Vec<u8>) {
        self.link = None;
        self.epoch += 1;
        let link = self.gateway.link().await;
        self.link = Some(link.welcome_with(self.epoch, settled_below_seq, server_time_ms, trust_bundle).await);
    }

    async fn restart(&mut self) {
        self.daemon.take().expect("it runs").stop().await;
        self.start();
    }

    fn next(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn runs(&self) -> usize {
        self.counted.0.load(Ordering::SeqCst)
    }

    fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("a session")
    }

    async fn send(&mut self, frame: v1::to_node::Frame) {
        self.link().send(frame).await;
    }

    /// What becomes of a command: the next thing that is said of it, but for its start.
    async fn answer(&mut self, command: CommandId) -> Update {
        let (title, rows) = (self.table.title, self.table.rows.len());
        let answer = tokio::time::timeout(PATIENCE / 6, self.first_of(command)).await;
        answer.unwrap_or_else(|_| panic!("{title}: after {rows} rows nothing is said of {command}"))
    }

    async fn first_of(&mut self, command: CommandId) -> Update {
        loop {
            match self.link().frame().await {
                v1::from_node::Frame::Update(update) => {
                    let update = Update::try_from(update).expect("it is right");
                    self.said.push(update.clone());
                    if update.command == command && update.report != Report::Running {
                        return update;
                    }
                }
                v1::from_node::Frame::SpecApplied(applied) => self.applied.push(applied.generation),
                _ => {}
            }
        }
    }

    /// Sends a command, whoever made it.
    async fn deliver(&mut self, deliver: &Deliver) -> Update {
        self.link().deliver(deliver).await;
        self.answer(deliver.command).await
    }

    /// A true command does what it should, once, and that is acknowledged.
    async fn runs_once(&mut self, deliver: &Deliver) -> Update {
        let before = self.runs();
        let answer = self.deliver(deliver).await;
        assert_eq!(answer.report, Report::Succeeded, "{}", String::from_utf8_lossy(&answer.result));
        assert_eq!(self.runs(), before + 1, "once");
        assert!(!answer.node_sig.is_empty(), "the node stands for it");
        let (command_ids, settled_below_seq) = (vec![deliver.command.to_string()], 1);
        self.send(v1::to_node::Frame::UpdateAck(v1::UpdateAck { command_ids, settled_below_seq })).await;
        answer
    }

    /// The node works: it runs a true command. What was sent before has been taken by then.
    async fn works(&mut self) {
        let seq = self.next();
        let is_batched = self.trust.now().approvers.is_some();
        let probe = if is_batched { Batch::new(77, false).command(seq) } else { self.honest.command(seq) };
        self.runs_once(&probe).await;
    }

    /// A command that was made of a true one is refused, and the node swears to nothing; the true one then runs once.
    async fn attack(&mut self, attempt: &str, reason: &str, genuine: &Deliver, forge: impl FnOnce(&mut Deliver)) {
        let mut forged = genuine.clone();
        forge(&mut forged);
        let refused_by = self.denied(attempt, reason, &forged).await;
        self.runs_once(genuine).await;
        self.table.row(attempt, &refused_by, NOTHING);
    }

    /// A command is refused, and nothing is signed or done. What refused it, in words.
    async fn denied(&mut self, attempt: &str, reason: &str, forged: &Deliver) -> String {
        let before = self.runs();
        let answer = self.deliver(forged).await;
        let text = words(&answer);
        assert_eq!((answer.report, answer.reason.as_str()), (Report::Rejected, reason), "{attempt}: {text}");
        assert_eq!(self.runs(), before, "IT RAN: {attempt}");
        assert!(answer.node_sig.is_empty(), "{attempt}: the node swears that a command was refused that may run yet");
        text
    }

    /// A true command that is refused all the same, for good: that is dropping it.
    async fn dropped(&mut self, attempt: &str, reason: &str, deliver: &Deliver) {
        let before = self.runs();
        let answer = self.deliver(deliver).await;
        assert_eq!(
            (answer.report, answer.reason.as_str()),
            (Report::Rejected, reason),
            "{attempt}: {}",
            words(&answer)
        );
        let again = self.deliver(&Deliver { seq: deliver.seq + 1_000, ..deliver.clone() }).await;
        assert_eq!(again, answer, "what is refused for good stays so");
        assert_eq!(self.runs(), before, "IT RAN: {attempt}");
        self.table.row(attempt, &words(&answer), DROP);
    }

    async fn end(mut self) -> Table {
        self.works().await;
        self.daemon.take().expect("it runs").stop().await;
        self.table
    }
}

/// A refusal, as the node says it.
fn words(answer: &Update) -> String {
    let result: serde_json::Value = serde_json::from_slice(&answer.result).unwrap_or_default();
    let message = result["message"].as_str().unwrap_or_default();
    if message.is_empty() { format!("`{}`", answer.reason) } else { format!("`{}`: {message}", answer.reason) }
}

const HEAD: &str = "\
# What a gateway that was taken over can do to a node

Generated by `daemon/tests/session/adversary`: do not edit. `UPDATE_ADVERSARY=1 cargo nextest run -p bc-daemon adversary` writes it
anew. Each line is an attempt that a test makes against a real daemon over real TLS, unless its section says otherwise. The attacker
is the gateway: it has every signed frame, old ones and those of other nodes too, and none of the keys that sign.

The daemon answers a refused command with the code and the words given here. It says over the wire neither why it ignores a Cancel,
a bundle or a spec nor why it does not take a component: for those, the words are what the rule that it applies says of the same
bytes, and what the test sees on the daemon is that nothing changed.

*Nothing*: no run, no change, and no signature of the node under a refusal; where a true command was tampered with, the true one
then ran once. *Drop* and *delay* are what whoever relays frames can always do.
";

#[tokio::test(flavor = "multi_thread")]
async fn no_attempt_of_a_gateway_that_was_taken_over_does_more_than_drop_or_delay() {
    let (commands, replays, batches, trust) =
        tokio::join!(commands::play(), replays::play(), batches::play(), trust::play());
    let (specs, kinds) = tokio::join!(specs::play(), kinds::play());
    let tables = [commands, replays, batches, vec![trust, specs, kinds, secrets::play()]].concat();
    let mut text = HEAD.to_owned();
    for Table { title, rows } in tables {
        write!(text, "\n## {title}\n\n| Attempt | What refused it | On the node |\n|---|---|---|\n").expect("a string");
        for Row { attempt, refused_by, on_node } in rows {
            writeln!(text, "| {attempt} | {refused_by} | {on_node} |").expect("a string");
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a repository").join("docs/adversary-node.md");
    if std::env::var_os("UPDATE_ADVERSARY").is_some() {
        std::fs::write(&file, &text).expect("written");
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, written, "UPDATE_ADVERSARY=1 writes it anew");
}

/// The id by which somebody else's command is known.
fn told_of(said: &[Update], seq: u64) -> usize {
    said.iter().filter(|update| update.command == id(seq)).count()
}
