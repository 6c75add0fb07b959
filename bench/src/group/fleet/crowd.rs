//! B3 and B4: a gateway with ten thousand sessions, idle and all coming back at once.
//!
//! It runs in a process of its own, so that its memory is its own. The sessions speak the protocol to the real gateway over the
//! real database without a network: TLS and HTTP/2 come on top. Each says that it lives as often as a daemon does.
//!
//! **Invariant:** all sessions are there before and after what is measured; one that fails is counted.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::sessions::Hall;
use crate::bench::Bench;
use crate::figure::{Figure, both, spread};
use crate::measure::{Samples, compare};
use crate::proc;

/// Sessions of a whole run.
const SESSIONS: usize = 10_000;

const ROUNDS: usize = 5;

/// Two heartbeats of every session, and three looks at all of them.
const WATCHED: Duration = Duration::from_secs(30);

const MEMORY_KIB: f64 = 60.0;
const CPU_PERCENT: f64 = 5.0;
const STORM: f64 = 20.0;

/// What the process of its own is to do.
#[derive(Debug, Args)]
pub(crate) struct Crowd {
    /// An empty database
    database: String,
    /// How many sessions
    #[arg(long)]
    sessions: usize,
    /// For how long they are watched while idle, in milliseconds
    #[arg(long)]
    watched_ms: u64,
    /// How often they are cut
    #[arg(long)]
    rounds: usize,
}

/// What it measured.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    /// Bytes that a session takes.
    resident: f64,
    /// The share of one core while all are idle.
    cpu: f64,
    /// From the first hello until the last replay, round after round.
    storms: Vec<Duration>,
    /// One read of the same rows.
    reads: Vec<Duration>,
    /// Sessions that failed.
    errors: usize,
}

impl Crowd {
    /// Does it, and answers with JSON.
    pub(crate) fn measure(&self) -> anyhow::Result<String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let measured = runtime.block_on(self.in_turns())?;
        Ok(serde_json::to_string(&measured)?)
    }

    async fn in_turns(&self) -> anyhow::Result<Measured> {
        let this = std::process::id();
        let hall = Hall::open(&self.database, self.sessions).await?;
        // Whatever is allocated once, by the first few sessions.
        drop(hall.enter(self.sessions.min(64)).await.0);
        hall.left().await;
        let before = proc::resident(this)?;
        let (mut inside, mut errors) = hall.enter(self.sessions).await;
        hall.reconcile().await?;
        let resident = (proc::resident(this)? as f64 - before as f64) / self.sessions as f64;

        let watched = Duration::from_millis(self.watched_ms);
        let before = proc::cpu(this)?;
        tokio::time::sleep(watched).await;
        let cpu = (proc::cpu(this)? - before) / watched.as_secs_f64();
        ensure!(hall.sessions() == self.sessions, "{} sessions are left", hall.sessions());

        hall.send_each(&mut inside).await?;
        let (mut storms, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            drop(std::mem::take(&mut inside));
            hall.left().await;
            reads.push(hall.read().await?);
            let started = Instant::now();
            let (again, failed) = hall.enter_for_replay().await;
            storms.push(started.elapsed());
            inside = again;
            errors += failed;
        }
        Ok(Measured { resident, cpu, storms, reads, errors })
    }
}

pub(in super::super) fn sessions(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let setting = bench.setting()?;
    let count = if bench.is_quick() { 50 } else { SESSIONS };
    let watched = if bench.is_quick() { Duration::from_millis(100) } else { WATCHED };
    bench.runtime.block_on(setting.site.database("crowd"))?;
    let crowd = Crowd {
        database: setting.site.url("crowd"),
        sessions: count,
        watched_ms: u64::try_from(watched.as_millis())?,
        rounds: bench.rounds(ROUNDS),
    };
    let Measured { resident, cpu, storms, reads, errors } = crowd.start()?;
    let (kib, percent) = (resident / 1024.0, cpu * 100.0);
    let of_one = |times: Vec<Duration>| Samples::new(times.into_iter().map(|took| vec![took]).collect());
    let (storms, reads) = (of_one(storms), of_one(reads));
    let ratio = compare(&storms, &reads, |ours, floor| ours / floor);
    let row = |name: String, ours, goal, met| Figure::of(name, ours, None, None, String::new(), goal, Some(met));
    Ok(vec![
        row(
            format!("B3 {count} idle sessions without a network, resident memory of each"),
            format!("{kib:.1} KiB"),
            format!("≤ {MEMORY_KIB} KiB"),
            kib <= MEMORY_KIB,
        ),
        row(
            format!("B3 {count} idle sessions without a network, CPU of their process"),
            format!("{percent:.1} % of a core"),
            format!("≤ {CPU_PERCENT} %"),
            percent <= CPU_PERCENT,
        ),
        Figure::of(
            format!("B4 {count} hellos, until each has its command again"),
            format!("{}, {errors} errors", both(&storms)),
            Some(both(&reads)),
            None,
            spread(ratio),
            format!("≤ {STORM} ×, no error"),
            Some(ratio.median <= STORM && errors == 0),
        ),
    ])
}

impl Crowd {
    /// Starts the process of its own and hears what it measured.
    #[expect(clippy::disallowed_methods, reason = "a process of its own is what is measured")]
    fn start(&self) -> anyhow::Result<Measured> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("crowd").arg(&self.database);
        command.arg("--sessions").arg(self.sessions.to_string());
        command.arg("--watched-ms").arg(self.watched_ms.to_string());
        command.arg("--rounds").arg(self.rounds.to_string());
        let output = command.output()?;
        ensure!(output.status.success(), "the crowd failed: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).context("the crowd answers JSON")
    }
}
