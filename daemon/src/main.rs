//! The command line of bcd.

use std::process::ExitCode;

use bc_daemon::cli::{Bcd, Command, Kind};
use bc_daemon::kind_run::{self, Attempt};
use bc_daemon::terminal::{complain, say};
use bc_daemon::{join, supervise};
use bc_telemetry::log;
use clap::Parser;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let command = match Bcd::try_parse() {
        Ok(bcd) => bcd.command,
        Err(usage) => return kind_run::print_usage(&usage),
    };
    // A tool is asked for one thing and answers that; a daemon says by itself what it does.
    match &command {
        Command::Run(run) => log::start(LevelFilter::INFO, run.log_format),
        Command::Runner(runner) if runner.saying.is_none() => log::start(LevelFilter::INFO, None),
        _ => log::start(LevelFilter::ERROR, None),
    }
    let done = match command {
        Command::Join(arguments) => join::block_on(&arguments).map(|joined| {
            say(&joined.to_string());
            0
        }),
        Command::Run(run) => run.block_on().map(|()| 0),
        Command::Runner(runner) => runner.block_on().map(|()| 0),
        Command::Doctor(doctor) => doctor.block_on(),
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
