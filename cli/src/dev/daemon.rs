//! The node's daemon as a process of its own.
//!
//! **Invariant:** it ends with its parent, however that ends; and while the parent lives, it is started again when it dies.

use std::fs::File;
use std::time::Duration;

use anyhow::Context;
use bc_proto::rules::backoff::Backoff;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::layout::Layout;
use crate::{output, shell, sibling};

/// Between two starts: 0.5 to 15 s.
const BACKOFF: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(15) };

/// Who lived as long has started well: the waits begin anew.
const STARTED_WELL: Duration = Duration::from_secs(30);

/// How long it may take to stop by itself: longer than it waits for its own runs.
const STOP_GRACE: Duration = Duration::from_secs(20);

/// Keeps `bcd run` running until it is to stop.
pub(super) async fn supervise(layout: &Layout, stop: CancellationToken) -> anyhow::Result<()> {
    let mut attempt = 0;
    while !stop.is_cancelled() {
        let mut child = start(layout)?;
        let started = Instant::now();
        let ended = tokio::select! {
            ended = child.wait() => ended,
            () = stop.cancelled() => return end(child).await,
        };
        attempt = if started.elapsed() >= STARTED_WELL { 0 } else { attempt + 1 };
        let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        let log = layout.node("bcd.log");
        output::complain(&format!("bcd ended ({how}) and is started again; its log is {}", log.display()));
        tokio::select! {
            () = tokio::time::sleep(BACKOFF.wait(attempt - u32::from(attempt > 0), shell::jitter())) => {}
            () = stop.cancelled() => {}
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "what a child does between fork and exec is marked so; both calls are safe there")]
fn start(layout: &Layout) -> anyhow::Result<Child> {
    let path = layout.node("bcd.log");
    let failed = || format!("{} cannot be opened", path.display());
    let log = File::options().create(true).append(true).open(&path).with_context(failed)?;
    let mut command = Command::new(sibling::path("bcd")?);
    command.arg("run").arg("--config").arg(layout.node_config());
    command.stdin(std::process::Stdio::null()).stdout(log.try_clone().with_context(failed)?).stderr(log);
    if std::env::var_os("RUST_LOG").is_none() {
        command.env("RUST_LOG", "info");
    }
    // Ctrl-C goes to a terminal's whole process group; the daemon is to hear of it from here, once.
    command.process_group(0).kill_on_drop(true);
    let parent = getpid();
    // SAFETY: both are plain system calls without allocation or locks, as is asked for between fork and exec.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // A parent that ended before the line above sends no signal any more.
            if getppid() == Some(parent) { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
        });
    }
    command.spawn().context("bcd cannot be started")
}

/// Asks it to stop, and ends it when it does not.
async fn end(mut child: Child) -> anyhow::Result<()> {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid {
        // It may have ended this moment.
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(STOP_GRACE, child.wait()).await.is_err() {
        output::complain("bcd does not stop; it is ended");
        child.kill().await.context("bcd cannot be ended")?;
    }
    Ok(())
}
