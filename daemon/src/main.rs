//! The command line of bcd.

use std::process::ExitCode;

use bc_daemon::join::{self, Join};
use bc_daemon::kind_plugins::{KindList, KindWatch};
use bc_daemon::kind_run::{self, Attempt, KindRun};
use bc_daemon::run::RunDaemon;
use bc_daemon::supervise;
use bc_daemon::terminal::{complain, say};
use bc_telemetry::log;
use clap::{Parser, Subcommand};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

/// The node daemon of better-compute
#[derive(Parser)]
#[command(name = "bcd", version, arg_required_else_help = true)]
struct Bcd {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make this machine a node of a control plane
    ///
    /// Exit codes: 0 joined, 1 not joined.
    Join(Join),
    /// Run the daemon: keep a session with the control plane and run what it sends, until SIGTERM or SIGINT
    ///
    /// Exit codes: 0 stopped by a signal, 1 it could not start or go on.
    Run(RunDaemon),
    /// Run one program for the daemon; not for people
    #[command(hide = true)]
    Supervise,
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
    let command = match Bcd::try_parse() {
        Ok(bcd) => bcd.command,
        Err(usage) => return kind_run::print_usage(&usage),
    };
    // A tool is asked for one thing and answers that; a daemon says by itself what it does.
    match &command {
        Command::Run(run) => log::start(LevelFilter::INFO, run.log_format),
        _ => log::start(LevelFilter::ERROR, None),
    }
    let done = match command {
        Command::Join(arguments) => join::block_on(&arguments).map(|joined| {
            say(&joined.to_string());
            0
        }),
        Command::Run(run) => run.block_on().map(|()| 0),
        Command::Supervise => supervise::run().map(|()| 0),
        Command::Kind(Kind::Run(run)) => kind_run::block_on(&run, CancellationToken::new()).map(|attempt| {
            print(&attempt);
            attempt.exit_code()
        }),
        Command::Kind(Kind::List(list)) => list.block_on(),
        Command::Kind(Kind::Watch(watch)) => watch.block_on().map(|()| 0),
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
