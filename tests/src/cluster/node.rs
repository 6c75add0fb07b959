//! A node: a simulated machine that has joined, and its daemon.
//!
//! The machine's driver writes down on disk what it is asked. `test.count` asks for the link of one GPU, which nothing else
//! does, so the lines about a GPU count the runs of the command that named it. The line is the run's side effect itself: it
//! is written by the driver, outside of the guest, the daemon and its journal, and no crash of theirs can take it back.
//!
//! **Invariant:** the disk of a node outlives its daemon, and its daemon's name for a boot is this module's to change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_nvml::{STATE_FILE, SimulatedNode, State};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::process::Process;
use super::systemd::Systemd;
use super::{VARIANTS, until};
use crate::programs::{self, Said};

/// The function behind the link of a GPU; [`count`] counts its calls.
const COUNTED: &str = "nvmlDeviceGetCurrPcieLinkWidth";

/// A node.
pub struct Node {
    /// `node_…`
    pub id: String,
    name: String,
    folder: PathBuf,
    boots: u32,
    process: Option<Process>,
}

impl Node {
    /// Makes the machine and lets it join.
    ///
    /// # Panics
    /// When it does not.
    pub(super) fn join(folder: &Path, name: &str, gateways: &[String], token: &str) -> Self {
        let mut node =
            Self { id: String::new(), name: name.into(), folder: folder.to_owned(), boots: 0, process: None };
        let state = State { trace: Some(node.path("driver.trace")), ..State::eight_h100() };
        let machine = SimulatedNode::create(folder, &state).expect("a simulated node");
        node.reboot();
        fs::create_dir(node.path("plugins")).expect("a folder");
        node.systemd().install();
        for variant in VARIANTS {
            node.install(variant.name, &variant.component());
        }
        let cache = std::env::current_exe().expect("a running program has a path").with_file_name("compiled-kinds");
        let text = |path: &Path| toml::Value::from(path.to_str().expect("paths of tests are text")).to_string();
        let config = format!(
            "root = {}\nstate-dir = {}\nplugin-dir = {}\ncache-dir = {}\nboot-id-file = {}\nkernel-log = {{ file = {} }}\n\
             gateways = {}\nstop-grace = '1s'\n[nvml]\nlibrary = {}\n[grants.'test.*']\nnvml = {{}}\nsecrets = {{ refs = ['test.*'] }}\n\
             [grants.'node.*']\nsystem = {{ reboot = true }}\n[reboot]\ndelay = '100ms'\npath = {}\n",
            text(folder),
            text(&node.path("state")),
            text(&node.path("plugins")),
            text(&cache),
            text(&node.path("boot-id")),
            text(&machine.kernel_log()),
            json!(gateways),
            text(&machine.library()),
            toml::Value::from(node.systemd().path()),
        );
        fs::write(node.path("bcd.toml"), config).expect("the configuration is written");
        node.enrol(gateways, token, false);
        node
    }

    /// A copy of this machine as it is now, in another folder, as a disk that was cloned. Its daemon is not started.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn twin(&self, name: &str) -> Self {
        let folder = self.folder.with_file_name(name);
        copy(&self.folder, &folder).expect("the machine is copied");
        let text = |path: &Path| path.to_str().expect("paths of tests are text").to_owned();
        let twin = Self { id: self.id.clone(), name: name.into(), folder, boots: self.boots, process: None };
        let config = fs::read_to_string(twin.path("bcd.toml")).expect("it was copied");
        let config = config.replace(&text(&self.folder), &text(&twin.folder));
        fs::write(twin.path("bcd.toml"), config).expect("the configuration is written");
        let trace = twin.path("driver.trace");
        State::update(&twin.path(STATE_FILE), |state| state.trace = Some(trace)).expect("the state is written");
        twin
    }

    /// Joins, for the first time or again; a daemon that runs does not notice until it is started anew.
    ///
    /// # Panics
    /// When it is refused.
    pub fn enrol(&mut self, gateways: &[String], token: &str, again: bool) {
        let said = self.ask_to_join(gateways, token, again);
        assert_eq!(said.code, Some(0), "{said:?}");
        // `node-17 is node_01k…, incarnation 1; …`
        let id = said.out.split_whitespace().find(|word| word.starts_with("node_"));
        self.id = id.expect("it says which node it is").trim_end_matches(',').into();
    }

    /// As [`Node::enrol`]; a refusal is an answer.
    ///
    /// # Panics
    /// When the token cannot be written.
    pub fn ask_to_join(&self, gateways: &[String], token: &str, again: bool) -> Said {
        let file = self.path("join.token");
        fs::write(&file, token).expect("the token is written");
        let mut bcd = programs::command("bcd");
        bcd.args(["join", "--name", &self.name]).arg("--token-file").arg(&file);
        bcd.arg("--config").arg(self.path("bcd.toml"));
        for gateway in gateways {
            bcd.args(["--gateway", gateway]);
        }
        if again {
            bcd.arg("--again");
        }
        programs::run(&mut bcd)
    }

    /// Adds to the configuration of its daemon, TOML; it counts from the daemon's next start on.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn configure(&self, more: &str) {
        let path = self.path("bcd.toml");
        let config = fs::read_to_string(&path).expect("it was written");
        fs::write(path, format!("{config}\n{more}\n")).expect("the configuration is written");
    }

    /// Puts a component into its plugin directory, as a whole.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn install(&self, name: &str, component: &[u8]) {
        let (draft, file) = (self.path("draft"), self.path("plugins").join(name).with_added_extension("wasm"));
        fs::write(&draft, component).and_then(|()| fs::rename(draft, file)).expect("the component is written");
    }

    /// Its systemd.
    pub fn systemd(&self) -> Systemd {
        Systemd { folder: self.path("systemd") }
    }

    /// Returns when its systemd was asked for so many reboots.
    ///
    /// # Panics
    /// When it takes too long.
    pub async fn is_to_reboot(&self, times: usize) {
        until("a reboot is asked for", || self.systemd().asked().len() >= times).await;
    }

    /// A path of the machine.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The journal's files that are there.
    pub fn journal(&self) -> Vec<PathBuf> {
        let names = ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"];
        names.map(|name| self.path("state").join(name)).into_iter().filter(|path| path.exists()).collect()
    }

    /// Starts the daemon.
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Starts a daemon that kills itself at a point, the n-th time that it comes there; see `daemon/src/faults.rs`.
    pub fn start_to_crash(&mut self, point: &str, n: u32) {
        self.start_with(&[("BCD_CRASH_AT", &format!("{point}:{n}"))]);
    }

    /// The same, with these environment variables.
    pub fn start_with(&mut self, variables: &[(&str, &str)]) {
        self.kill();
        let mut command = self.daemon();
        command.envs(variables.iter().copied());
        self.process = Some(Process::start(&self.name, &mut command));
    }

    fn daemon(&self) -> Command {
        let mut command = programs::command("bcd");
        command.arg("run").arg("--config").arg(self.path("bcd.toml"));
        command.env("RUST_LOG", "info").env_remove("BCD_CRASH_AT").env_remove("BCD_BOOT_ID_FILE");
        command
    }

    /// Starts another daemon beside the one that runs, on the same disk.
    pub fn second_daemon(&self) -> Process {
        Process::start("the second daemon", &mut self.daemon())
    }

    /// Its daemon.
    ///
    /// # Panics
    /// When it does not run.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it runs")
    }

    /// Kills the daemon as `kill -9` does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The machine boots anew, and the daemon is not started yet.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn reboot(&mut self) {
        self.kill();
        self.boots += 1;
        let boot = format!("b0070000-0000-4000-8000-{:012x}\n", self.boots);
        fs::write(self.path("boot-id"), boot).expect("the boot id is written");
    }

    /// The payload with which the counting kind counts on this GPU of the eight, and stays for so long.
    pub fn counted(gpu: u32, hold_ms: u32) -> Value {
        json!({ "gpu": format!("GPU-51d00000-0000-4000-8000-{gpu:012x}"), "holdMs": hold_ms })
    }

    /// Returns when a command that counts on this GPU has run so often.
    ///
    /// # Panics
    /// When it takes too long.
    pub async fn has_counted(&self, gpu: u32, times: usize) {
        until("the command runs", || self.count(gpu) >= times).await;
    }

    /// Lets every call of the driver hang from now on, or no longer. A call that hangs goes on when [`Node::release`] is called.
    ///
    /// # Panics
    /// When the machine's state cannot be written.
    pub fn hang_driver(&self, hangs: bool) {
        let pipe = self.path("driver.hang");
        if hangs && !pipe.exists() {
            mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe is made");
        }
        // The driver writes down each call, and a pipe that nobody reads takes no writer.
        let trace = if hangs { pipe } else { self.path("driver.trace") };
        State::update(&self.path(STATE_FILE), |state| state.trace = Some(trace)).expect("the state is written");
    }

    /// Returns when so many calls of the driver hang.
    ///
    /// # Panics
    /// When it takes too long.
    pub async fn hangs(&mut self, calls: usize) {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.process().id()));
        // Where a thread waits in the kernel; this is the open of a pipe.
        let opens = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("wchan")).is_ok_and(|place| place == "wait_for_partner")
        };
        until("the driver hangs", || {
            fs::read_dir(&tasks).expect("the daemon runs").filter_map(Result::ok).filter(opens).count() >= calls
        })
        .await;
    }

    /// Lets the calls that hang go on, as long as the pipe is kept.
    ///
    /// # Panics
    /// When none ever hung.
    pub fn release(&self) -> fs::File {
        fs::File::options().read(true).write(true).open(self.path("driver.hang")).expect("it was made")
    }

    /// How often a command ran that counts on this GPU.
    pub fn count(&self, gpu: u32) -> usize {
        count(&self.path("driver.trace"), gpu)
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &there)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), there)?;
        }
    }
    Ok(())
}

/// How often the driver of a machine was asked what `test.count` asks, about this GPU.
pub fn count(trace: &Path, gpu: u32) -> usize {
    // Before the first call there is no file.
    let trace = fs::read_to_string(trace).unwrap_or_default();
    let call = format!("{COUNTED} {gpu} ");
    trace.lines().filter(|line| line.starts_with(&call)).count()
}
