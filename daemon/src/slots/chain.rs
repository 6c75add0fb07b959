//! From the installed binary to the one that is to run, and back.
//!
//! **Invariant:** only the installed binary chooses, so a release that never comes up cannot keep itself chosen.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bc_proto::rules::slots::{Binary, Slots};

use super::{Running, Store, VERSION};
use crate::faults::crash_at;
use crate::node::now_ms;

/// Tells a release that it is one: its SHA-256.
pub const SLOT: &str = "BCD_SLOT";
/// Tells a release where the installed binary is.
pub const INSTALLED: &str = "BCD_INSTALLED";

/// Becomes the binary that is to run, with the arguments of this process; returns when that is this one. A trial has `within` from
/// its first start on.
pub fn begin(state_dir: &Path, within: Duration) -> io::Result<Running> {
    let store = Store::new(state_dir.to_owned());
    if let (Ok(sha256), Some(installed)) = (std::env::var(SLOT), std::env::var_os(INSTALLED)) {
        let trial = store.read()?.and_then(|slots| slots.trial).filter(|trial| trial.release.sha256 == sha256);
        let deadline_ms = trial.map(|trial| trial.deadline_ms.unwrap_or_else(now_ms));
        return Ok(Running { sha256: Some(sha256), installed: installed.into(), deadline_ms });
    }
    let installed = std::env::current_exe()?;
    let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    // Nothing is written where there never was another binary.
    while let Some(slots) = store.read()? {
        let start = slots.start(VERSION, now_ms(), within_ms);
        if let Some((release, why)) = &start.given_up {
            tracing::error!(version = release.version, sha256 = release.sha256, %why, "a release is rolled back");
        }
        store.change::<io::Error>(|_| Ok(start.slots))?;
        crash_at("slots.before-exec");
        let Binary::Release(release) = start.run else { break };
        let damaged = |slots: Slots| Ok::<_, io::Error>(slots.damaged(&release));
        if !store.is_whole(&release) {
            tracing::error!(version = release.version, sha256 = release.sha256, "a release's file is damaged");
            store.change(damaged)?;
            continue;
        }
        tracing::info!(version = release.version, sha256 = release.sha256, "going on as this release");
        let binary = store.binary(&release.sha256);
        let error = become_it(&binary, &[(SLOT, release.sha256.as_ref()), (INSTALLED, installed.as_os_str())], &[]);
        tracing::error!(%error, version = release.version, "a release cannot be executed");
        store.change(damaged)?;
    }
    Ok(Running { sha256: None, installed, deadline_ms: None })
}

/// Begins anew as the installed binary, which chooses. Returns only when that fails.
pub fn restart(running: &Running) -> io::Error {
    become_it(&running.installed, &[], &[SLOT, INSTALLED])
}

#[expect(
    clippy::disallowed_methods,
    reason = "the process becomes another binary of its own; nothing is started beside it"
)]
fn become_it(binary: &Path, set: &[(&str, &std::ffi::OsStr)], unset: &[&str]) -> io::Error {
    let mut command = Command::new(binary);
    command.args(std::env::args_os().skip(1)).envs(set.iter().copied());
    for name in unset {
        command.env_remove(name);
    }
    command.exec()
}
