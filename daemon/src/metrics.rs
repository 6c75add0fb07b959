//! What the daemon counts, and what it looks at when its page of metrics is asked for. `docs/metrics.md` lists all of it.
//!
//! **Invariant:** a label's values are a closed set or the names of kinds that this node loaded: never what a command holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bc_proto::manifest::Lane;
use bc_proto::rules::lane::LIMITS;
use bc_telemetry::page::Look;
use metrics::{counter, gauge, histogram};

use crate::lanes::Lanes;

/// Records were written down, or not.
pub(crate) fn saved(took: Duration, is_saved: bool) {
    histogram!("better_compute_node_journal_save_seconds").record(took);
    if !is_saved {
        counter!("better_compute_node_journal_failures_total").increment(1);
    }
}

/// A command came that was here before.
pub(crate) fn absorbed() {
    counter!("better_compute_node_duplicate_commands_total").increment(1);
}

/// A session began, or the last one ended.
pub(crate) fn connected(is_open: bool) {
    gauge!("better_compute_node_session_open").set(f64::from(u8::from(is_open)));
    if is_open {
        counter!("better_compute_node_sessions_opened_total").increment(1);
    }
}

/// A session ended with an error, or none came about.
pub(crate) fn failed() {
    connected(false);
    counter!("better_compute_node_session_failures_total").increment(1);
}

/// The plugin directory changed what is served.
pub(crate) fn plugins_changed(change: &'static str) {
    counter!("better_compute_node_plugin_changes_total", "change" => change).increment(1);
}

/// What is looked at.
#[derive(Debug, Clone)]
pub(crate) struct States {
    pub(crate) state_dir: PathBuf,
    /// Takes the room that is kept for the results of what runs.
    pub(crate) reserve: PathBuf,
    pub(crate) lanes: Lanes,
}

impl States {
    /// Looks at all of it.
    pub(crate) fn look(self) -> Look {
        // So that each is on the page before it first happens: Prometheus takes no notice of a counter that begins at 1.
        connected(false);
        counter!("better_compute_node_sessions_opened_total").increment(0);
        counter!("better_compute_node_session_failures_total").increment(0);
        counter!("better_compute_node_duplicate_commands_total").increment(0);
        counter!("better_compute_node_journal_failures_total").increment(0);
        for change in ["loaded", "replaced", "retired", "refused"] {
            counter!("better_compute_node_plugin_changes_total", "change" => change).increment(0);
        }
        Arc::new(move || {
            let states = self.clone();
            Box::pin(async move { states.look_once() })
        })
    }

    fn look_once(&self) {
        let free = self.lanes.free();
        for lane in Lane::ALL {
            let name = name(lane);
            let size = LIMITS.get(lane);
            gauge!("better_compute_node_workers", "lane" => name).set(f64::from(size));
            gauge!("better_compute_node_workers_busy", "lane" => name)
                .set(f64::from(size.saturating_sub(free.get(lane))));
        }
        gauge!("better_compute_node_journal_reserve_kept").set(f64::from(u8::from(self.reserve.exists())));
        if let Some(bytes) = free_bytes(&self.state_dir) {
            gauge!("better_compute_node_journal_free_bytes").set(bytes as f64);
        }
        if let Some(bytes) = resident_bytes() {
            gauge!("better_compute_node_resident_bytes").set(bytes as f64);
        }
    }
}

const fn name(lane: Lane) -> &'static str {
    match lane {
        Lane::Control => "control",
        Lane::Provision => "provision",
        Lane::Bulk => "bulk",
    }
}

/// What the file system of a folder has left for this process.
fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The memory that this process has.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_can_be_read_here() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        let folder = tempfile::tempdir().expect("a folder");
        assert!(free_bytes(folder.path()).is_some_and(|bytes| bytes > 0));
        assert_eq!(free_bytes(&folder.path().join("missing")), None);
    }
}
