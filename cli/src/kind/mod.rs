//! `better-compute kind …`: the module author's tools, and the kinds that a control plane knows.

mod build;
mod check;
mod diff;
mod inspect;
mod new;
pub mod pack;
mod registry;
mod replay;
mod run;
mod sign;

use std::process::ExitCode;

use bc_runtime::{Engine, Inspected, Kind};
use clap::Subcommand;

/// The exit code of everything that was refused.
const REFUSED: u8 = 3;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum KindCommand {
    /// Start a new kind in a folder of its own
    New(new::New),
    /// Build kinds: compile, make a component, pack the manifest into it
    Build(build::Build),
    /// Show what a component is, without running or compiling it
    Inspect(inspect::Inspect),
    /// Vouch for components as their publisher
    Sign(sign::Sign),
    /// Show what one component of a kind may do that another may not
    Diff(diff::Diff),
    /// Decide as a node would whether to load a component, and name the grants that are missing
    Check(check::Check),
    /// Run a component once on this machine
    Run(run::RunCommand),
    /// Run a component again from the recorded answers of an earlier run
    Replay(replay::Replay),
    /// Register components with the control plane
    Push(registry::Push),
    /// List the kinds that the control plane knows
    List(registry::List),
    /// Show a kind
    Get(registry::One),
    /// Let a component take new commands; the one that did is retired
    Activate(registry::Activate),
    /// Let a kind take no more commands; those that are queued go on
    Retire(registry::One),
}

impl KindCommand {
    /// Does it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::New(new) => new.execute(),
            Self::Build(build) => build.execute(),
            Self::Inspect(inspect) => inspect.execute(),
            Self::Sign(sign) => sign.execute(),
            Self::Diff(diff) => crate::block_on(diff.execute()),
            Self::Check(check) => check.execute(),
            Self::Run(run) => run.execute(),
            Self::Replay(replay) => replay.execute(),
            Self::Push(push) => crate::block_on(push.execute()),
            Self::List(list) => crate::block_on(list.execute()),
            Self::Get(one) => crate::block_on(one.execute("kinds.get")),
            Self::Activate(activate) => crate::block_on(activate.execute()),
            Self::Retire(one) => crate::block_on(one.execute("kinds.retire")),
        }
    }
}

/// Loads a component and runs its examples through its own `validate`, as registration does. `Err` lists what is wrong.
fn try_out(engine: &Engine, component: &Inspected) -> Result<Kind, Vec<String>> {
    let kind = engine.load(component).map_err(|rejected| vec![format!("{rejected}\n  → {}", rejected.remedy())])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| vec![error.to_string()])?;
    let mut wrong = Vec::new();
    for example in &component.manifest.examples {
        match runtime.block_on(kind.validate(&example.payload)) {
            Ok(problems) => {
                wrong.extend(problems.iter().map(|problem| format!("example '{}': {problem}", example.summary)));
            }
            Err(outcome) => wrong.push(format!("example '{}': `validate` {outcome}", example.summary)),
        }
    }
    if wrong.is_empty() { Ok(kind) } else { Err(wrong) }
}
