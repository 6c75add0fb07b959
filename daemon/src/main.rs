//! The command line of bcd.

use std::process::ExitCode;

use bc_daemon::kind_plugins::{KindList, KindWatch};
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
    /// Say which kinds of a plugin directory this node would serve, and why not the others
    ///
    /// Exit codes: 0 all of them, 1 usage or I/O, 3 some are refused.
    List(KindList),
    /// Follow a plugin directory as the daemon does, and print each change as one line of JSON, until interrupted
    Watch(KindWatch),
}

fn main() -> ExitCode {
    terminal::start_log();
    let Command::Kind(kind) = match Bcd::try_parse() {
        Ok(bcd) => bcd.command,
        Err(usage) => return kind_run::print_usage(&usage),
    };
    let done = match kind {
        Kind::Run(run) => kind_run::block_on(&run, CancellationToken::new()).map(|attempt| {
            print(&attempt);
            attempt.exit_code()
        }),
        Kind::List(list) => list.block_on(),
        Kind::Watch(watch) => watch.block_on().map(|()| 0),
    };
    match done {
        Ok(code) => ExitCode::from(code),
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
