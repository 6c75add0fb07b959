//! `better-compute dev`, on a folder that is used again and again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use bc_tests::cluster::operator::word;
use bc_tests::cluster::process::Process;
use bc_tests::{programs, repacked};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long something that was killed may take to be gone.
const GONE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

#[tokio::test(flavor = "multi_thread")]
async fn dev_goes_on_with_its_folder_after_kills_and_with_kinds_that_were_built_anew() {
    // Postgres runs as another user where the test is root, and has to reach its folder.
    let folder = tempfile::Builder::new().prefix("bc-").permissions(Permissions::from_mode(0o711)).tempdir();
    let folder = folder.expect("a temporary folder");
    let (dir, kinds) = (folder.path().join("dev"), folder.path().join("kinds"));
    fs::create_dir(&kinds).expect("a folder");
    for kind in ["diag.nvml", "inventory.refresh"] {
        let file = programs::kind(kind);
        fs::copy(&file, kinds.join(file.file_name().expect("a file"))).expect("copied");
    }

    let said = programs::run(dev(&dir, &kinds).arg("--once"));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("registered diag.nvml, inventory.refresh"), "{said:?}");
    assert!(said.err.contains("=== diag.nvml on this machine") && said.out.contains("pass"), "{said:?}");
    let identity = fs::read(dir.join("node/state/identity/node.json")).expect("the node has joined");

    // Other bytes under the same version: what is registered serves on.
    let other = repacked("diag.nvml", |manifest| manifest.summary = "The same version with other bytes".into());
    fs::write(kinds.join("diag.nvml.wasm"), other.bytes).expect("written");
    let mut runs = Process::start("dev", &mut dev(&dir, &kinds));
    runs.has_said("serves until Ctrl-C").await;
    let said = runs.said();
    assert!(
        said.contains("registered inventory.refresh") && said.contains("raise `version` in its kind.toml"),
        "{said}"
    );

    // Its daemon dies and is started again.
    let bcd = daemon(&runs);
    pidfd_send_signal(&bcd, Signal::KILL).expect("it runs");
    runs.has_said("bcd ended (").await;
    let mut run = programs::command("better-compute");
    run.env("BETTER_COMPUTE_CONFIG", dir.join("config.toml"));
    run.args(["run", "diag.nvml", "--node", &name(&identity)]);
    let said = tokio::task::spawn_blocking(move || programs::run(&mut run)).await.expect("it runs");
    assert!(said.code == Some(0) && said.out.contains("pass"), "{said:?}");

    // It is killed itself: its daemon ends with it. Postgres goes on, and the next one takes it over and stops it.
    let bcd = daemon(&runs);
    runs.kill();
    assert!(is_gone(&bcd), "the daemon outlives its parent");
    let postmaster = dir.join("postgres/data/postmaster.pid");
    assert!(postmaster.exists(), "Postgres is nobody's child");
    let said = programs::run(dev(&dir, &kinds).arg("--once"));
    assert!(said.code == Some(0) && said.out.contains("pass"), "{said:?}");
    assert_eq!(fs::read(dir.join("node/state/identity/node.json")).expect("the node has joined"), identity);
    assert!(!postmaster.exists(), "nothing is left running");
}

fn dev(dir: &Path, kinds: &Path) -> Command {
    let mut command = programs::command("better-compute");
    command.args(["dev", "--dir", &word(dir), "--kinds", &word(kinds)]);
    command
}

/// The name that a node joined with.
fn name(identity: &[u8]) -> String {
    let card: serde_json::Value = serde_json::from_slice(identity).expect("JSON");
    card["name"].as_str().expect("a name").to_owned()
}

/// The child of a `dev` that is its daemon, or the next one as soon as it is there.
fn daemon(dev: &Process) -> OwnedFd {
    let id = dev.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("it runs");
    let is_bcd = |pid: &&str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "bcd");
    let pid = children.split_whitespace().find(is_bcd).expect("it has a daemon");
    let pid = pid.parse().ok().and_then(Pid::from_raw).expect("an id");
    pidfd_open(pid, PidfdFlags::empty()).expect("it runs")
}

/// Waits until a process has ended.
fn is_gone(process: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&GONE)).expect("its end can be awaited") == 1
}
