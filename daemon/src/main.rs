//! The command line of bcd.

use std::process::ExitCode;

use bc_daemon::kind_run::{self, Attempt, KindRun};
use bc_daemon::terminal::{self, complain, say};
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
    terminal::start_log();
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

fn print(attempt: &Attempt) {
    say(&format!("{:#}", attempt.to_json()));
    if let Attempt::Refused { kind, obstacles } = attempt {
        for obstacle in obstacles {
            complain(&format!("{kind}: {obstacle}\n{}", obstacle.remedy()));
        }
    }
}
