//! The command line `better-compute`.

use std::process::ExitCode;

use bc_daemon::kind_run;
use bc_telemetry::log;
use better_compute::cli::{Cli, Command};
use better_compute::{block_on, output, token};
use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    // Answers a shell that asks for completions, and ends; else it returns.
    CompleteEnv::with_factory(Cli::command).complete();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return kind_run::print_usage(&usage),
    };
    match &cli.command {
        Command::Server(server) => log::start(LevelFilter::INFO, server.log_format()),
        Command::Dev(_) => log::start(LevelFilter::WARN, None),
        _ => log::start(LevelFilter::ERROR, None),
    }
    let done = match cli.command {
        Command::Dev(dev) => dev.execute(),
        Command::Server(server) => server.execute(),
        Command::Run(run) => block_on(run.execute()),
        Command::Commands(command) => block_on(command.execute()),
        Command::Batch(command) => block_on(command.execute()),
        Command::Bundle(command) => block_on(command.execute()),
        Command::Node(command) => block_on(command.execute()),
        Command::Reservation(command) => block_on(command.execute()),
        Command::Remediation(command) => block_on(command.execute()),
        Command::Release(command) => block_on(command.execute()),
        Command::Rollout(command) => block_on(command.execute()),
        Command::Runner(command) => block_on(command.execute()),
        Command::Workflow(command) => block_on(command.execute()),
        Command::Kind(command) => command.execute(),
        Command::Events(command) => block_on(command.execute()),
        Command::Webhook(command) => block_on(command.execute()),
        Command::Audit(command) => block_on(command.execute()),
        Command::Token(command) => block_on(command.execute()),
        Command::Pki(command) => command.execute(),
        Command::Whoami(plain) => block_on(token::whoami(plain)),
        Command::Api(api) => block_on(api.execute()),
        Command::Mcp(mcp) => block_on(mcp.execute()),
        Command::Doctor(doctor) => block_on(doctor.execute()),
        Command::Context(command) => command.execute(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "better-compute", &mut script);
            output::say(String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Command::Generate(generate) => generate.execute(),
    };
    done.unwrap_or_else(|error| {
        let (message, code) = kind_run::explain(&error);
        output::complain(&message);
        ExitCode::from(code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
