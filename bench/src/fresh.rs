//! Loading in a process that has just started: no page of the code is mapped, no allocation is warm.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bc_runtime::{Config, Engine, Inspected};
use clap::Args;

use crate::floor;

/// What the fresh process is to do.
#[derive(Debug, Args)]
pub(crate) struct Fresh {
    /// The component, or for the floor its compiled code
    file: PathBuf,
    /// Our cache; without it, the floor is measured
    #[arg(long)]
    cache: Option<PathBuf>,
}

/// What a fresh process measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// From nothing to an engine and the loaded kind.
    pub(crate) set_up_and_load: Duration,
    /// The load alone.
    pub(crate) load: Duration,
}

impl Fresh {
    /// Does it, and answers both times in nanoseconds.
    pub(crate) fn measure(&self) -> anyhow::Result<String> {
        let started = Instant::now();
        let (ready, loaded) = if let Some(dir) = &self.cache {
            let engine = Engine::new(&Config { cache_dir: Some(dir.clone()), ..Config::default() })?;
            let ready = Instant::now();
            engine.load(&Inspected::read(&self.file)?)?;
            let loaded = Instant::now();
            ensure!(engine.cache_counts().is_some_and(|counts| counts.hits == 1), "the cache was not warm");
            (ready, loaded)
        } else {
            let artifact = std::fs::read(&self.file)?;
            let engine = floor::engine()?;
            let ready = Instant::now();
            floor::deserialize(&engine, &artifact)?;
            (ready, Instant::now())
        };
        Ok(format!("{} {}", (loaded - started).as_nanos(), (loaded - ready).as_nanos()))
    }
}

/// Starts a fresh process and hears what it measured.
#[expect(clippy::disallowed_methods, reason = "a fresh process is what is measured")]
pub(crate) fn measure(file: &Path, cache: Option<&Path>) -> anyhow::Result<Measured> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("fresh").arg(file);
    if let Some(dir) = cache {
        command.arg("--cache").arg(dir);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "the fresh process failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let (whole, load) = text.trim().split_once(' ').context("the fresh process answers two numbers")?;
    Ok(Measured { set_up_and_load: Duration::from_nanos(whole.parse()?), load: Duration::from_nanos(load.parse()?) })
}
