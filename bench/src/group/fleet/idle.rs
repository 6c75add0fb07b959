//! B5: what a daemon costs that has all kinds loaded and nothing to do.

use std::time::Duration;

use super::super::queue::folder;
use super::control::Control;
use super::daemon::{Daemon, Kit};
use super::{KIND, MIB};
use crate::bench::Bench;
use crate::figure::Figure;
use crate::proc;

/// What the kinds need that have capabilities. They are loaded and not run.
const GRANTS: &str = "[grants.\"diag.nvml\"]\nnvml = {}\n\n[grants.\"inventory.refresh\"]\ninventory = {}\n";

/// Longer than tokio keeps a thread that has nothing to do.
const CALM: Duration = Duration::from_secs(12);

/// Two heartbeats.
const WATCHED: Duration = Duration::from_secs(30);

const MEMORY: f64 = 40.0;
const WAKES: f64 = 1.0;

pub(in super::super) fn figures(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let own = folder(bench.is_quick(), "bench-idle-")?;
    let kind = bench.kind(KIND)?;
    let (calm, watched) = if bench.is_quick() { (Duration::ZERO, Duration::from_millis(100)) } else { (CALM, WATCHED) };
    bench.runtime.block_on(async {
        let control = Control::start(&setting.site, own.path(), "idle", 1, &kind).await?;
        let plugins = kind.parent().expect("a kind lies in a folder");
        let kit = Kit { folder: own.path(), plugins, grants: GRANTS };
        let mut daemon = Daemon::start(&control, kit, 0).await?;
        if !bench.is_quick() {
            // That one compiled them: what is measured is a daemon that was started again.
            daemon = Daemon::start(&control, kit, 1).await?;
        }
        tokio::time::sleep(calm).await;
        let (wakes, cpu) = (proc::wakes(daemon.process())?, proc::cpu(daemon.process())?);
        tokio::time::sleep(watched).await;
        let wakes = (proc::wakes(daemon.process())? - wakes) as f64 / watched.as_secs_f64();
        let cpu = (proc::cpu(daemon.process())? - cpu) / watched.as_secs_f64();
        let resident = proc::resident(daemon.process())? as f64 / MIB;
        let kinds = daemon.node.kinds.len();
        drop(daemon);
        control.stop().await?;
        let row = |name: String, ours: String, goal: String, met| {
            Figure::of(name, ours, None, None, String::new(), goal, Some(met))
        };
        Ok(vec![
            row(
                format!("B5 bcd idle, resident memory with {kinds} kinds"),
                format!("{resident:.1} MiB"),
                format!("≤ {MEMORY} MiB"),
                resident <= MEMORY,
            ),
            row(
                format!("B5 bcd idle, wake-ups of all threads with {kinds} kinds"),
                format!("{wakes:.2} /s, {:.2} % of a core", cpu * 100.0),
                format!("≤ {WAKES} /s"),
                wakes <= WAKES,
            ),
        ])
    })
}
