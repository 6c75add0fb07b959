//! A simulated GPU node in a temporary folder, and bcd's configuration of it.
//!
//! **Invariant:** the folder is the machine's root, so nothing of the real machine is read.

use std::path::{Path, PathBuf};

use fake_nvml::{SimulatedNode, State};
use serde_json::Value;
use tempfile::TempDir;

use crate::programs::{self, Said};

/// What an operator grants to the kinds that reset and load GPUs.
const GPU_GRANTS: &str = "[grants.'gpu.reset']\ngpus = { reset = true }\n[grants.'diag.dcgm']\ngpus = {}\n\
    process = { programs = [{ program = 'dcgmi', argv = ['diag', '-r', '*', '-j'] }, \
    { program = 'dcgmi', argv = ['diag', '-r', '*', '-j', '-i', '*'] }, \
    { program = 'dcgmi', argv = ['diag', '-r', '*', '-j', '-p', '*'] }, \
    { program = 'dcgmi', argv = ['diag', '-r', '*', '-j', '-i', '*', '-p', '*'] }] }\n";

/// The node.
pub struct Machine {
    folder: TempDir,
    /// Its driver, kernel log and sysfs.
    pub node: SimulatedNode,
}

impl Machine {
    /// Writes the node, and a `bcd.toml` that grants every kind what reads and lets compiled kinds be shared by all tests.
    ///
    /// # Panics
    /// When the folder cannot be written, or the fake library is not built.
    pub fn new(state: &State) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let node = SimulatedNode::create(folder.path(), state).expect("a simulated node");
        let machine = Self { folder, node };
        let cache = std::env::current_exe().expect("a running program has a path").with_file_name("compiled-kinds");
        let quoted = |path: &Path| toml::Value::from(path.to_str().expect("paths of tests are text")).to_string();
        let config = format!(
            "root = {root}\nstate-dir = {root}\nprogram-path = {programs}\ncache-dir = {}\nkernel-log = {{ file = {} }}\n[nvml]\nlibrary = {}\n\
             [gpus]\nservices = ['nvidia-dcgm']\nreset-timeout = '3s'\n\
             [grants.'*']\nnvml = {{}}\ninventory = {{}}\n{GPU_GRANTS}",
            quoted(&cache),
            quoted(&machine.node.kernel_log()),
            quoted(&machine.node.library()),
            root = quoted(machine.folder.path()),
            programs = quoted(&machine.node.programs()),
        );
        std::fs::write(machine.config(), config).expect("the configuration is written");
        machine
    }

    /// Eight healthy H100, changed so.
    pub fn changed(change: impl FnOnce(&mut State)) -> Self {
        let mut state = State::eight_h100();
        change(&mut state);
        Self::new(&state)
    }

    /// A path in the node's folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A text without the path of this folder, which is another one in every run.
    pub fn anonymous(&self, text: &str) -> String {
        text.replace(self.folder.path().to_str().expect("temporary folders are text"), "[node]")
    }

    /// Its `bcd.toml`.
    pub fn config(&self) -> PathBuf {
        self.path("bcd.toml")
    }

    /// Runs a kind with `bcd kind run`; the answer is its report, with what it printed.
    ///
    /// # Panics
    /// When it prints no JSON.
    pub fn run(&self, kind: &str, payload: &Value) -> (Value, Said) {
        let mut bcd = programs::command("bcd");
        bcd.args(["kind", "run", "--payload", &payload.to_string(), "--config"]).arg(self.config());
        let said = programs::run(bcd.arg(programs::kind(kind)));
        let report = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("no report: {error}: {said:?}"));
        (report, said)
    }

    /// Runs a kind that must succeed; the answer is its result.
    ///
    /// # Panics
    /// When it does anything else.
    pub fn result(&self, kind: &str, payload: &Value) -> Value {
        let (mut report, said) = self.run(kind, payload);
        assert_eq!((report["outcome"].as_str(), said.code), (Some("succeeded"), Some(0)), "{said:?}");
        report["result"].take()
    }
}
