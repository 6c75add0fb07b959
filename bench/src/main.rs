//! The benchmarks: every figure beside a floor or a peer that was measured in the same run, on the same machine, in turns.
//!
//! An own harness instead of criterion: criterion measures one side after the other and compares with an earlier run, while
//! what is promised here are ratios, and on shared cores only what ran within the same few milliseconds compares.
//!
//! **Invariant:** no number is printed that this run did not measure.

mod bench;
mod figure;
mod floor;
mod fresh;
mod group;
mod machine;
mod measure;
mod node;
mod proc;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::bench::{Bench, Extent};

/// The benchmarks of better-compute
#[derive(Debug, Parser)]
#[command(name = "bc-bench")]
struct Arguments {
    /// A few iterations of everything, to see that it runs; the figures mean nothing and are not kept
    #[arg(long)]
    quick: bool,
    /// Only the groups whose names start with this, as C1; the figures are not kept
    #[arg(long, value_name = "GROUP")]
    filter: Option<String>,
    /// Measure A6 with all of its 10 million commands instead of a tenth; loading them takes minutes
    #[arg(long)]
    full: bool,
    /// Leave other queues out of group A: nothing is installed
    #[arg(long)]
    no_peers: bool,
    /// Where the programs of other queues lie
    #[arg(long, value_name = "DIR", default_value = "bench/peers")]
    peers: PathBuf,
    /// Where the built kinds lie
    #[arg(long, value_name = "DIR", default_value = "plugins/dist")]
    kinds: PathBuf,
    /// Where the figures of a whole run are kept
    #[arg(long, value_name = "FILE", default_value = "bench/RESULTS.md")]
    results: PathBuf,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One load in this fresh process, for the group C4
    #[command(hide = true)]
    Fresh(fresh::Fresh),
    /// bcd, for the group B
    #[command(hide = true)]
    Bcd(group::fleet::Bcd),
    /// A gateway with many sessions, for the group B
    #[command(hide = true)]
    Crowd(group::fleet::Crowd),
}

fn main() -> anyhow::Result<()> {
    // As bcd sets itself up.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    match arguments.part {
        Some(Part::Fresh(fresh)) => return say(&fresh.measure()?),
        Some(Part::Bcd(bcd)) => return bcd.run(),
        Some(Part::Crowd(crowd)) => return say(&crowd.measure()?),
        None => {}
    }
    let bench = Bench::new(Extent {
        kinds: arguments.kinds,
        peers: (!arguments.no_peers).then_some(arguments.peers),
        quick: arguments.quick,
        full: arguments.full,
    })?;
    let mut figures = Vec::new();
    for (name, group) in group::ALL {
        if arguments.filter.as_ref().is_none_or(|filter| name.starts_with(filter.as_str())) {
            figures.extend(group(&bench).with_context(|| format!("group {name} was not measured"))?);
        }
    }
    let mut table = figure::table(&figures);
    let peers = bench.peers_in_words();
    if !peers.is_empty() {
        table += &format!("\n\nOther queues, all in the same run:\n\n{peers}");
    }
    say(&table)?;
    if !arguments.quick && arguments.filter.is_none() {
        keep(&arguments.results, &table)?;
    }
    Ok(())
}

fn keep(file: &Path, table: &str) -> anyhow::Result<()> {
    let text = format!("# Benchmark results\n\n{}\n{table}\n\n{}", machine::in_words(), figure::LEGEND);
    std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
