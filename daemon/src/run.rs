//! The daemon as a whole: `bcd run`.
//!
//! It takes up its identity, opens the journal, loads its kinds, goes on with what the journal holds, and only then talks to
//! the control plane. A signal ends it: the session first, so that nothing new comes; then it waits a short time for runs that
//! go on, and leaves the rest to the journal.
//!
//! **Invariant:** it serves without a control plane: what the journal holds is gone on with before the first session, and
//! through every time without one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bc_proto::abi::HOST_ABI;
use bc_proto::id::{CommandId, JournalId};
use bc_proto::rules::daemon::{self, Intent};
use bc_proto::sign::body::AllocationBoundBody;
use bc_proto::wire::Hello;
use bc_telemetry::log::Format;
use bc_telemetry::page::Recorder;
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::capability::commanded::Provider;
use crate::capability::secrets::Exchange;
use crate::capability::system::{Reboots, Systems, boot_id};
use crate::capability::upgrade::{self, Upgrades};
use crate::capability::upload::{self as uploading, Uploads};
use crate::config::Config;
use crate::credentials::Credentials;
use crate::faults::crash_at;
use crate::gateway::{Address, Verifier};
use crate::identity::{self, Identity};
use crate::journal::{Journal, Opened, RESERVE_BYTES};
use crate::kinds::Kinds;
use crate::kinds::kept::Kept;
use crate::lanes::Lanes;
use crate::metrics;
use crate::node::Node;
use crate::plugins::{Plugins, Watching};
use crate::renewal::Renewal;
use crate::server_time::ServerTime;
use crate::service::{self, Watchdog};
use crate::session::{Context, Outbox, Random, Sessions};
use crate::shell::{Handle, NotDone, Parts, Shell, Terminal};
use crate::slots::{self, Running, Store};
use crate::spec::Desired;
use crate::spec::conditions::{Conditions, Looks};
use crate::trust::Trust;

/// The journal, below the state directory.
const JOURNAL: &str = "journal.sqlite";
/// Fetched kinds, below the state directory.
const KINDS: &str = "kinds";

/// What `run` takes.
#[derive(Debug, Args)]
pub struct RunDaemon {
    /// The node's configuration; without it, the defaults
    #[arg(long, value_name = "FILE", env = "BCD_CONFIG")]
    pub config: Option<PathBuf>,
    /// A file that stands for the kernel's boot id, for tests that play a reboot; over the configuration's `boot-id-file`
    #[arg(long, value_name = "FILE", env = "BCD_BOOT_ID_FILE", hide = true)]
    pub boot_id_file: Option<PathBuf>,
    /// The form of this process's log, text or json: an object a line
    #[arg(long, value_name = "FORMAT", env = "BETTER_COMPUTE_LOG_FORMAT")]
    pub log_format: Option<Format>,
}

impl RunDaemon {
    /// Runs until a signal ends it. Errors when the daemon cannot start, or cannot go on.
    pub fn block_on(&self) -> anyhow::Result<()> {
        let mut config = self.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        if self.boot_id_file.is_some() {
            config.boot_id_file.clone_from(&self.boot_id_file);
        }
        crate::faults::arm()?;
        // Comes back only as the binary that is to run.
        let running = slots::begin(&config.state_dir(), config.upgrade.confirm_within)
            .context("what is remembered of this daemon's binaries cannot be read or written")?;
        // Kinds compute on threads of their own pools; a node of 200 processors needs no 200 threads for its own work.
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 8);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let done = runtime.block_on(async {
            let stop = CancellationToken::new();
            on_signals(&stop)?;
            run_as(config, running.clone(), stop).await
        });
        // A host call that hangs does not keep the process.
        runtime.shutdown_background();
        match done? {
            Ended::Stopped => Ok(()),
            Ended::Restart => {
                crash_at("restart.before-exec");
                Err(slots::restart(&running)).context("the daemon cannot go on as its installed binary")
            }
        }
    }
}

/// The first signal asks for an orderly end; the second ends the process at once, which the journal is made for.
pub(crate) fn on_signals(stop: &CancellationToken) -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = stop.clone();
    tokio::spawn(async move {
        for is_first in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if is_first {
                stop.cancel();
            } else {
                tracing::warn!("ended at once by a second signal");
                std::process::exit(0);
            }
        }
    });
    Ok(())
}

/// How a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// It was asked to stop.
    Stopped,
    /// It is to begin anew, as whichever binary is chosen then.
    Restart,
}

/// Runs until `stop` is cancelled, or another binary is to go on.
async fn run_as(config: Config, running: Running, stop: CancellationToken) -> anyhow::Result<Ended> {
    let config = Config { state_dir: Some(config.state_dir()), ..config };
    let node = Arc::new(Node::new(&config)?);
    serve_node(node, config, running, stop).await
}

/// The same on a machine that is given, which may have other capabilities than this one. It never becomes another binary.
pub async fn run_on(node: Arc<Node>, config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    serve_node(node, config, Running::default(), stop).await.map(drop)
}

#[expect(clippy::too_many_lines, reason = "the parts of the daemon, in the order in which they need each other")]
async fn serve_node(
    node: Arc<Node>,
    config: Config,
    running: Running,
    stop: CancellationToken,
) -> anyhow::Result<Ended> {
    let state_dir = config.state_dir();
    // Before anything is counted.
    let measured = match config.metrics {
        None => None,
        Some(address) => {
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("metrics cannot be served on {address}"))?;
            Some((Recorder::install()?, listener))
        }
    };
    let identity = identity::read(&state_dir)?;
    let gateways = gateways(&config, &identity)?;
    let boot = boot_id(&config.boot_id_file())?;

    let path = state_dir.join(JOURNAL);
    // A damaged one is set aside in there, and that is logged.
    let Opened { journal, book, .. } = Journal::open(&path, random_bytes()?, RESERVE_BYTES).await?;
    // Before kinds are loaded: it says whose.
    let trust = node.trust.clone();
    trust.restore(&state_dir, &identity.card);
    let (kinds, watching) = load_kinds(&config, &node).await?;
    if let Err(error) = crate::about::write(&state_dir, &identity, &boot, &config.role.to_string(), &kinds) {
        tracing::warn!(%error, "what this daemon is cannot be written down for support bundles");
    }
    let kept = Kept::new(state_dir.join(KINDS), Arc::clone(&node), kinds.clone(), journal.clone());

    let time = ServerTime::unknown(Instant::now());
    time.advance(trust.floor_ms(), Instant::now());
    let credentials = Credentials::new(&identity);
    if let Some(allowed) = &credentials.now().certificate.allowed_kinds {
        tracing::info!(?allowed, "this node's certificate allows these kinds alone");
        kinds.restrict(allowed);
    }
    let secrets = Exchange::new(credentials.clone(), trust.clone(), time.clone());
    let settings = uploading::Settings::new(&state_dir, config.uploads.ca_file.clone());
    let uploads = Uploads::new(settings, Arc::new(secrets.way().clone()), time.clone())?;
    let outbox = Outbox::signing(credentials.clone());
    let watchdog = Watchdog::from_environment();
    let who = daemon::Identity {
        node: identity.card.node,
        incarnation: identity.card.incarnation,
        role: config.role,
        boot: boot.clone(),
        version: slots::VERSION.to_owned(),
    };
    let desired = desired(&state_dir, who.clone(), &credentials, trust.clone())?;
    if let Some(gpus) = node.gpus.clone() {
        gpus.follow(desired.held());
        tokio::task::spawn_blocking(move || gpus.put_back_leftovers());
    }
    let looks = Looks::default();
    outbox.on_finished({
        let looks = looks.clone();
        move || looks.again()
    });
    let conditions = Conditions {
        looks: looks.clone(),
        desired: desired.clone(),
        root: config.root.clone(),
        nvml: node.capabilities.nvml.clone(),
        time: time.clone(),
        outbox: outbox.clone(),
    };
    let lanes = Lanes::default();
    if let Some((recorder, listener)) = measured {
        let states =
            metrics::States { state_dir: state_dir.clone(), reserve: Journal::reserve(&path), lanes: lanes.clone() };
        recorder.serve(listener, states.look(), stop.clone());
    }
    let upgrades = Upgrades::new(upgrade::Parts {
        store: Store::new(state_dir.clone()),
        running,
        settings: config.upgrade.clone(),
        trust: trust.clone(),
        supervisor: node.supervisor.clone(),
        lanes: lanes.clone(),
    });
    let restart = upgrades.restart();
    let reboots = Reboots::new(config.reboot.clone(), node.supervisor.clone());
    let systems = Systems { boot_id_file: config.boot_id_file(), reboots: reboots.clone() };
    let mut providers: Vec<Arc<dyn Provider>> =
        vec![Arc::new(secrets.clone()), Arc::new(upgrades.clone()), Arc::new(systems), Arc::new(uploads.clone())];
    if let Some(disks) = node.disks.clone() {
        providers.push(Arc::new(disks));
    }
    let parts = Parts {
        node: Arc::clone(&node),
        identity: who,
        kinds: kinds.clone(),
        kept: Some(kept.clone()),
        journal: journal.clone(),
        lanes,
        time: time.clone(),
        trust: trust.clone(),
        providers,
        terminal: Arc::new(Terminals { reboot: reboots, switch: upgrades.clone() }),
        sink: Arc::new(outbox.clone()),
        alive: Box::new(move || watchdog.feed()),
    };
    let (shell, handle) = Shell::start(parts, desired.generation(), book).await?;
    let hello = hello(&config, &boot, &identity, journal.id(), &kinds, &desired, &trust)?;
    let joined_ms = identity.card.joined_ms;
    let known_ms = {
        let time = time.clone();
        Box::new(move || time.at(Instant::now()).max(joined_ms))
    };
    let verifier = Verifier::of_authority(identity.authority.clone(), known_ms)
        .context("the authority of this node's identity cannot be used\n  → join again")?;
    let renewal = Renewal {
        state_dir: state_dir.clone(),
        gateways: gateways.clone(),
        verifier: Arc::clone(&verifier),
        credentials: credentials.clone(),
        time: time.clone(),
        joined_ms,
        status: Box::new(service::status),
    };
    let sending = outbox.clone().send_output();
    let context = Context {
        hello,
        handle: handle.clone(),
        outbox,
        secrets,
        upgrades: upgrades.clone(),
        kinds,
        kept,
        desired,
        looks,
        time,
        trust,
        status: Box::new(service::status),
    };
    let sessions = Sessions::new(context, gateways, verifier, credentials, random()?)?;
    tracing::info!(
        node = %identity.card.node, incarnation = identity.card.incarnation, journal = %journal.id(),
        version = slots::VERSION, "bcd runs"
    );
    service::ready("not connected yet");
    tokio::spawn(stop.clone().run_until_cancelled_owned(sending));
    tokio::spawn(renewal.run(random()?, stop.child_token()));
    tokio::spawn(conditions.run(stop.clone()));
    tokio::spawn(upgrades.watch(handle.clone()));
    tokio::spawn({
        let (restart, stop) = (restart.clone(), stop.clone());
        async move {
            restart.cancelled().await;
            stop.cancel();
        }
    });
    // What waited for the others to end, before this, need not be waited for.
    let grace = || Some(config.stop_grace).filter(|_| !restart.is_cancelled());
    let done = serve(shell, handle, sessions, watching, stop, grace).await;
    journal.close().await;
    done.map(|()| if restart.is_cancelled() { Ended::Restart } else { Ended::Stopped })
}

/// What ends the daemon, by what it is.
struct Terminals<R> {
    reboot: R,
    switch: Upgrades,
}

impl<R: Terminal> Terminal for Terminals<R> {
    fn carry_out(&self, command: CommandId, intent: &Intent) -> Result<(), NotDone> {
        match intent {
            Intent::Reboot { .. } => self.reboot.carry_out(command, intent),
            Intent::Switch { .. } => self.switch.carry_out(command, intent),
        }
    }

    fn on_trial(&self) -> bool {
        self.switch.on_trial()
    }
}

/// The spec that the node has applied, which signs by the key that it has at that time.
fn desired(
    state_dir: &Path,
    who: daemon::Identity,
    credentials: &Credentials,
    trust: Trust,
) -> anyhow::Result<Desired> {
    let credentials = credentials.clone();
    let sign = Box::new(move |body: &AllocationBoundBody| credentials.sign(body));
    Desired::open(state_dir, who, sign, trust).context("the spec that this node has applied cannot be read")
}

/// What the node says of itself whenever a session begins.
fn hello(
    config: &Config,
    boot: &str,
    identity: &Identity,
    journal: JournalId,
    kinds: &Kinds,
    desired: &Desired,
    trust: &Trust,
) -> anyhow::Result<Box<dyn Fn() -> Hello + Send + Sync>> {
    let (kinds, desired, trust) = (kinds.clone(), desired.clone(), trust.clone());
    let (role, uptime, boot) = (config.role, config.root.join("proc/uptime"), boot.to_owned());
    let incarnation = identity.card.incarnation;
    let bcd_version: semver::Version = slots::VERSION.parse()?;
    Ok(Box::new(move || Hello {
        journal,
        boot: boot.clone(),
        role,
        incarnation,
        bcd_version: bcd_version.clone(),
        host_abi: HOST_ABI,
        generation: desired.generation(),
        kinds: kinds.loaded(),
        uptime_ms: uptime_ms(&uptime),
        // The session knows.
        last_epoch: 0,
        trust_version: trust.now().version,
    }))
}

/// All of it at once, until the end.
async fn serve(
    shell: Shell,
    handle: Handle,
    sessions: Sessions,
    watching: Option<Watching>,
    stop: CancellationToken,
    grace: impl FnOnce() -> Option<Duration>,
) -> anyhow::Result<()> {
    let stop_loop = CancellationToken::new();
    let mut event_loop = tokio::spawn(shell.run(stop_loop.clone()));
    let mut sessions = tokio::spawn(sessions.run(stop.clone()));
    let following = tokio::spawn(async move {
        match watching {
            Some(watching) => match watching.follow().await {},
            None => std::future::pending::<()>().await,
        }
    });
    let ended = tokio::select! {
        ended = &mut event_loop => Some(ended),
        ended = &mut sessions => {
            ended.context("the sessions broke down")?;
            None
        }
    };
    following.abort();
    if let Some(ended) = ended {
        stop.cancel();
        ended.context("the event loop broke down")?.context("the daemon cannot go on without its journal")?;
        anyhow::bail!("the event loop ended by itself");
    }
    // A daemon that goes on as another binary does not stop, as far as the service manager knows: it would be killed for it.
    if let Some(grace) = grace() {
        service::stopping(grace);
        let outstanding = handle.outstanding();
        if outstanding > 0 {
            tracing::info!(outstanding, grace_ms = grace.as_millis(), "waiting for runs to end");
        }
        // A second wait for the loop itself would be for nothing: it stops between two writes.
        if tokio::time::timeout(grace, handle.idle()).await.is_err() {
            tracing::warn!(outstanding = handle.outstanding(), "runs that go on are left to the journal");
        }
    }
    stop_loop.cancel();
    event_loop.await.context("the event loop broke down")??;
    tracing::info!("bcd has stopped");
    Ok(())
}

fn gateways(config: &Config, identity: &Identity) -> anyhow::Result<Vec<Address>> {
    if !config.gateways.is_empty() {
        return Ok(config.gateways.clone());
    }
    let joined = identity.card.gateways.iter().map(|address| address.parse());
    Ok(joined.collect::<Result<_, _>>()?)
}

async fn load_kinds(config: &Config, node: &Arc<Node>) -> anyhow::Result<(Kinds, Option<Watching>)> {
    let Some(dir) = &config.plugin_dir else { return Ok((Kinds::default(), None)) };
    // Changes are logged where they are made.
    let watched = Plugins::watch(dir, Arc::clone(node), drop).await;
    let (plugins, watching) = watched.map_err(|error| anyhow::anyhow!("{error}\n  → {}", error.remedy()))?;
    Ok((plugins.kinds(), Some(watching)))
}

/// Since the boot, for display; 0 where it cannot be read.
fn uptime_ms(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0_f64);
    Duration::try_from_secs_f64(seconds).map_or(0, |uptime| u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX))
}

fn random_bytes() -> anyhow::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    Ok(bytes)
}

fn random() -> anyhow::Result<Random> {
    // Asked once, so that a system without random numbers is an error at the start and not a storm later.
    random_bytes()?;
    Ok(Box::new(|| {
        let random = getrandom::u64().unwrap_or(u64::MAX / 2);
        random as f64 / u64::MAX as f64
    }))
}
