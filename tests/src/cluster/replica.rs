//! A replica of the control plane: `better-compute server`.
//!
//! **Invariant:** a replica keeps its ports over its restarts, so that nodes and clients find it again.

use std::path::{Path, PathBuf};

use super::database::Database;
use super::free_port;
use super::process::Process;
use crate::programs;

/// What it says when it listens.
const SERVES: &str = "the control plane serves";

/// Names the point at which it ends.
const CRASH_AT: &str = "BETTER_COMPUTE_CRASH_AT";

/// A replica.
pub struct Replica {
    name: String,
    database_url: String,
    state_dir: PathBuf,
    api_port: u16,
    gateway_port: u16,
    /// Settings that are given at every start.
    environment: Vec<(String, String)>,
    /// A file with more settings, which may change between two starts.
    settings: PathBuf,
    process: Option<Process>,
}

impl Replica {
    /// Starts one and waits until it serves.
    pub(super) async fn start(index: usize, database: &Database, state_dir: &Path) -> Self {
        let mut replica = Self::new(index, database, state_dir);
        replica.restart().await;
        replica
    }

    /// The same for one that serves nodes alone, with settings of its own.
    pub(super) async fn start_gateway(index: usize, database: &Database, state_dir: &Path) -> Self {
        let mut replica = Self::new(index, database, state_dir);
        replica.settings = state_dir.with_file_name("gateway.toml");
        replica.set("BETTER_COMPUTE_NO_API", "true");
        replica.restart().await;
        replica
    }

    fn new(index: usize, database: &Database, state_dir: &Path) -> Self {
        Self {
            name: format!("replica-{index}"),
            database_url: database.url(),
            state_dir: state_dir.to_owned(),
            api_port: free_port(),
            gateway_port: free_port(),
            environment: Vec::new(),
            settings: state_dir.with_extension("toml"),
            process: None,
        }
    }

    /// Where its API is.
    pub fn api_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.api_port)
    }

    /// Where nodes find it.
    pub fn gateway_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.gateway_port)
    }

    /// Where the values of secrets are, `<tenant>/<reference>`; all replicas have the same.
    pub fn secrets_dir(&self) -> PathBuf {
        self.state_dir.join("secrets")
    }

    /// Its process.
    ///
    /// # Panics
    /// When it does not run.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it runs")
    }

    /// From its next start on it has this setting, as the environment names it.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it on its ports and waits until it serves.
    ///
    /// # Panics
    /// When it does not.
    pub async fn restart(&mut self) {
        self.start_with(&[]).await;
    }

    /// The same, and it kills itself at a point, the first time that it comes there; see `host/src/faults.rs`.
    pub async fn start_to_crash(&mut self, point: &str) {
        self.start_with(&[(CRASH_AT, point)]).await;
    }

    /// The same, and it stops at a point until it gets `CONT`.
    pub async fn start_to_stop(&mut self, point: &str) {
        self.start_with(&[(CRASH_AT, &format!("{point}:1:stop"))]).await;
    }

    async fn start_with(&mut self, variables: &[(&str, &str)]) {
        self.kill();
        let mut command = programs::command("better-compute");
        command.args(["server", "--database-url", &self.database_url, "--replica", &self.name, "--drain", "1s"]);
        command.arg("--state-dir").arg(&self.state_dir).arg("--secrets-dir").arg(self.secrets_dir());
        command.args(["--api-listen", &format!("127.0.0.1:{}", self.api_port)]);
        command.args(["--gateway-listen", &format!("127.0.0.1:{}", self.gateway_port), "--gateway-host", "127.0.0.1"]);
        if self.settings.exists() {
            command.arg("--config").arg(&self.settings);
        }
        command.env("RUST_LOG", "info").env_remove(CRASH_AT).envs(variables.iter().copied());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start(&self.name, &mut command);
        process.has_said(SERVES).await;
        self.process = Some(process);
    }
}

/// Makes a tenant; answers a token that may do everything in it.
pub(super) fn init_admin(database: &Database, state_dir: &Path, tenant: &str) -> String {
    let mut command = programs::command("better-compute");
    command.args(["server", "init-admin", "--tenant", tenant, "--database-url", &database.url()]);
    let said = programs::run(command.arg("--state-dir").arg(state_dir));
    assert_eq!(said.code, Some(0), "{said:?}");
    said.out.trim().to_owned()
}
