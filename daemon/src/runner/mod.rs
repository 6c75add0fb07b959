//! `bcd runner`: runs the commands of a gateway that holds no session, leased from Postgres (`docs/runner.md`).
//!
//! It keeps no journal: the database is the truth. Whatever happens to it, a command's lease runs out, and its programs end with it.
//!
//! **Invariant:** nothing is run that the file does not list, and nothing without a lease that counts.

mod allowed;
mod command;
mod config;
mod live;
mod postgres;
mod report;
mod reports;
mod watcher;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bc_proto::grants::{Capability, Policy};
use bc_proto::manifest::Role;
use bc_proto::rules::action::{KIND, MAX_TIMEOUT};
use bc_proto::rules::admission::Site;
use bc_proto::rules::lease::MAX_SECONDS;
use bc_runtime::{Engine, Inspected, Kind, LoadError};
use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;

use self::command::Common;
use self::config::Config;
use self::postgres::Database;
pub use self::report::Saying;
use self::work::Work;
use crate::capability::process;

/// The lease outlives the command by this much, so that its end can be told.
const LEASE_MARGIN: Duration = Duration::from_mins(1);

/// Where the database's URL stands if no file names it. Not an argument: everybody on the machine can read those.
const URL_VARIABLE: &str = "DATABASE_URL";

/// What `runner` takes.
#[derive(Debug, Args)]
pub struct Runner {
    /// Something else than serving.
    #[command(subcommand)]
    pub saying: Option<Sub>,
    /// Serving.
    #[command(flatten)]
    pub serve: Serve,
}

/// Besides serving.
#[derive(Debug, Subcommand)]
pub enum Sub {
    /// Say how far the program of a self-reporting action is; for such programs
    #[command(subcommand)]
    Report(Saying),
}

/// What a runner takes.
#[derive(Debug, Args)]
pub struct Serve {
    /// The gateway's slug
    #[arg(long, value_name = "SLUG", env = "GATEWAY_SLUG")]
    pub gateway: Option<String>,
    /// The actions: which programs they are
    #[arg(long, value_name = "FILE", env = "RUNNER_CONFIG", default_value = "/etc/bcd/runner.toml")]
    pub config: PathBuf,
    /// A file that holds the database's URL, with the login and its password; without it, `DATABASE_URL`
    #[arg(long, value_name = "FILE", env = "DATABASE_URL_FILE")]
    pub database_url_file: Option<PathBuf>,
    /// How many commands run at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub concurrency: u16,
    /// How long an action may take that says nothing of its own; the lease is a minute longer
    #[arg(long, value_name = "SPAN", env = "COMMAND_TIMEOUT", default_value = "15m", value_parser = timeout)]
    pub command_timeout: Duration,
    /// How often the database is asked for commands that nobody told of
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = poll)]
    pub poll: Duration,
    /// How long a runner that was told to stop waits for what runs
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = humantime::parse_duration)]
    pub stop_grace: Duration,
    /// By how much the lease outlives the command, for tests that play a database which stays away
    #[arg(long, value_name = "SPAN", default_value = "60s", hide = true, value_parser = humantime::parse_duration)]
    pub lease_margin: Duration,
    /// What the runner is called in the database's lists; by default the machine's host name
    #[arg(long)]
    pub name: Option<String>,
}

/// `900`, as the seed's runners have it, or `15m`.
fn timeout(text: &str) -> Result<Duration, String> {
    let span = text
        .parse()
        .map(Duration::from_secs)
        .or_else(|_| humantime::parse_duration(text).map_err(|error| error.to_string()))?;
    let most = Duration::from_secs(MAX_SECONDS.into()).saturating_sub(LEASE_MARGIN);
    if (Duration::from_secs(1)..=most).contains(&span) {
        return Ok(span);
    }
    Err(format!("between 1s and {}: the lease is a minute longer, and a day at most", humantime::format_duration(most)))
}

fn poll(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_secs(1)..=MAX_TIMEOUT).contains(&span) { Ok(span) } else { Err("between 1s and 1day".into()) }
}

impl Runner {
    /// Runs until a signal ends it, or says what it is to say.
    pub fn block_on(&self) -> anyhow::Result<()> {
        match &self.saying {
            Some(Sub::Report(saying)) => saying.say(),
            None => self.serve.block_on(),
        }
    }
}

impl Serve {
    fn block_on(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let done = runtime.block_on(async {
            let stop = CancellationToken::new();
            crate::run::on_signals(&stop)?;
            self.run(stop).await
        });
        runtime.shutdown_background();
        done
    }

    async fn run(&self, stop: CancellationToken) -> anyhow::Result<()> {
        // Whatever in this process speaks TLS does so with the same provider; one that is installed already stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let gateway = self.gateway.as_deref().context("no gateway is named\n  → give --gateway SLUG")?;
        let config = Config::read(&self.config)?;
        let url = self.url()?;
        let name = self.name.clone().unwrap_or_else(host_name);
        // Each command has its run, its heartbeat and its output; one more leases.
        let connections = u32::from(self.concurrency) * 2 + 1;
        let db = Database::new(&url, gateway, &name, connections)?;
        let kind = load(&config, self.concurrency)?;
        let supervisor = process::supervisor().context("there is no bcd that could supervise programs")?;
        tracing::info!(
            gateway,
            name,
            concurrency = self.concurrency,
            actions = config.actions.names().collect::<Vec<_>>().join(","),
            "the runner starts",
        );
        let common = Common {
            db,
            actions: config.actions,
            kind,
            supervisor,
            timeout: self.command_timeout,
            lease: self.command_timeout + self.lease_margin,
            stop: CancellationToken::new(),
            leave: CancellationToken::new(),
        };
        let concurrency = usize::from(self.concurrency);
        Work { common: Arc::new(common), concurrency, poll: self.poll, grace: self.stop_grace }.run(stop).await
    }

    fn url(&self) -> anyhow::Result<String> {
        if let Some(file) = &self.database_url_file {
            let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
            return Ok(text.trim().to_owned());
        }
        std::env::var(URL_VARIABLE)
            .map_err(|_| anyhow::anyhow!("no database is named\n  → give --database-url-file, or set {URL_VARIABLE}"))
    }
}

/// The kind, as a node would load it: with everything that stands in its way.
fn load(config: &Config, concurrency: u16) -> anyhow::Result<Kind> {
    let component = Inspected::read(&config.kind)?;
    let name = &component.manifest.name;
    if name != KIND {
        bail!("{} is the kind {name}; a runner needs {KIND}", config.kind.display());
    }
    // The manifest may ask for what a run is granted at the most, and for nothing else.
    let policy = Policy { grants: [(KIND.into(), allowed::grants("*"))].into() };
    let offers = [Capability::Process].into();
    let obstacles = component.obstacles(&Site { role: Role::Gateway, policy: &policy, offers: &offers });
    if !obstacles.is_empty() {
        let said: Vec<_> = obstacles.iter().map(|obstacle| format!("{obstacle}\n  → {}", obstacle.remedy())).collect();
        bail!("{} is not taken: {}", config.kind.display(), said.join("\n"));
    }
    let settings =
        bc_runtime::Config { cache_dir: config.cache_dir.clone(), max_runs: usize::from(concurrency).max(4) };
    let loaded = Engine::new(&settings)?.load(&component);
    Ok(loaded.map_err(|rejected| LoadError { file: config.kind.clone(), rejected })?)
}

fn host_name() -> String {
    let name = std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname")).unwrap_or_default();
    name.trim().to_owned()
}
