//! The project's own tasks, one per subcommand: `cargo xtask …`.

mod book;
mod dev;
mod package;
mod plugins;
mod promises;
mod setup;
mod test;
mod tidy;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use xshell::{Shell, cmd};

/// Tasks of the better-compute repository
#[derive(Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
enum Task {
    /// Install what the build needs and is missing
    Setup,
    /// Build every kind of this repository into plugins/dist
    Plugins,
    /// The main job: build what is needed, then `better-compute dev`: a control plane, and this machine as its node
    Dev {
        /// Passed on to `better-compute dev`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Set up, build and run every test
    Test {
        /// Passed on to nextest, for example a test's name
        filter: Vec<String>,
    },
    /// Measure, print the figures and write bench/RESULTS.md
    Bench {
        /// Passed on to the bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check the rules of the tree that no compiler checks
    Tidy(Tidy),
    /// List which promises have tests
    Promises,
    /// Make Debian packages of both programs in target/packages
    Package {
        /// The cargo profile to build in
        #[arg(long, default_value = "release")]
        profile: String,
    },
    /// Build the documentation as HTML in target/book
    Book,
}

#[derive(clap::Args)]
struct Tidy {
    #[command(subcommand)]
    action: Option<TidyAction>,
}

#[derive(Subcommand)]
enum TidyAction {
    /// Record the WIT packages that have no record yet as released: from then on they must not change
    ReleaseWit,
}

fn main() -> anyhow::Result<()> {
    let shell = Shell::new()?;
    shell.change_dir(root());
    match Task::parse() {
        Task::Setup => setup::run(&shell),
        Task::Plugins => plugins::build(&shell).map(drop),
        Task::Dev { args } => dev::run(&shell, &args),
        Task::Test { filter } => test::run(&shell, &filter),
        Task::Bench { args } => {
            plugins::build(&shell)?;
            Ok(cmd!(shell, "cargo run --release --package bc-bench -- {args...}").run()?)
        }
        Task::Tidy(Tidy { action: None }) => tidy::check(&root()),
        Task::Tidy(Tidy { action: Some(TidyAction::ReleaseWit) }) => tidy::wit::release(&root()),
        Task::Promises => promises::list(&root()),
        Task::Package { profile } => package::run(&shell, &profile),
        Task::Book => book::build(&shell),
    }
}

/// The repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}

/// Prints a line of a task's own output.
#[expect(clippy::print_stdout, reason = "the one place that prints")]
fn say(line: &str) {
    println!("{line}");
}
