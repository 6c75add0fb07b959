//! The command line `better-compute`.

use std::process::ExitCode;

use bc_daemon::kind_run;
use better_compute::kind::KindCommand;
use better_compute::output;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

/// A WebAssembly-pluggable command runtime for fleets of GPU and bare-metal machines
#[derive(Parser)]
#[command(name = "better-compute", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write, build, inspect, check and run command kinds
    #[command(subcommand)]
    Kind(KindCommand),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

fn main() -> ExitCode {
    bc_daemon::terminal::start_log();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return kind_run::print_usage(&usage),
    };
    let done = match cli.command {
        Command::Kind(command) => command.execute(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "better-compute", &mut script);
            output::say(String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        let (message, code) = kind_run::explain(&error);
        output::complain(&message);
        ExitCode::from(code)
    })
}
