//! The command line of bcd.

use std::process::ExitCode;

use bc_daemon::kind_run::{self, Attempt, KindRun};
use clap::{Parser, Subcommand};
use tokio_util::sync::CancellationToken;

/// The node daemon of better-compute
#[derive(Parser)]
#[command(name = "bcd", version, arg_required_else_help = true)]
struct Bcd {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Work with command kinds on this node
    #[command(subcommand)]
    Kind(Kind),
}

#[derive(Subcommand)]
enum Kind {
    /// Run a component once over this node's real capabilities, and print its report as JSON
    ///
    /// Exit codes: 0 succeeded, 1 usage or I/O, 2 failed, 3 refused, 6 cancelled.
    Run(KindRun),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let Command::Kind(Kind::Run(run)) = match Bcd::try_parse() {
        Ok(bcd) => bcd.command,
        Err(usage) => return kind_run::print_usage(&usage),
    };
    match kind_run::block_on(&run, CancellationToken::new()) {
        Ok(attempt) => {
            print(&attempt);
            ExitCode::from(attempt.exit_code())
        }
        Err(error) => {
            let (message, code) = kind_run::explain(&error);
            complain(&message);
            ExitCode::from(code)
        }
    }
}

#[expect(clippy::print_stdout, reason = "the report is what this command is for")]
fn print(attempt: &Attempt) {
    println!("{:#}", attempt.to_json());
    if let Attempt::Refused { kind, obstacles } = attempt {
        for obstacle in obstacles {
            complain(&format!("{kind}: {obstacle}\n{}", obstacle.remedy()));
        }
    }
}

#[expect(clippy::print_stderr, reason = "errors of a command line go to standard error")]
fn complain(message: &str) {
    eprintln!("{message}");
}
