//! The command line `better-compute`.

use std::process::ExitCode;

use bc_daemon::kind_run;
use bc_telemetry::log;
use better_compute::api::Api;
use better_compute::audit::AuditCommand;
use better_compute::batch::BatchCommand;
use better_compute::bundle::BundleCommand;
use better_compute::commands::{Commands, Run};
use better_compute::context::ContextCommand;
use better_compute::dev::Dev;
use better_compute::events::EventsCommand;
use better_compute::kind::KindCommand;
use better_compute::node::NodeCommand;
use better_compute::pki::PkiCommand;
use better_compute::release::ReleaseCommand;
use better_compute::remediation::RemediationCommand;
use better_compute::reservation::ReservationCommand;
use better_compute::rollout::RolloutCommand;
use better_compute::server::Server;
use better_compute::token::{self, Plain, TokenCommand};
use better_compute::workflow::WorkflowCommand;
use better_compute::{block_on, output};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::{CompleteEnv, Shell};
use tracing_subscriber::filter::LevelFilter;

/// A WebAssembly-pluggable command runtime for fleets of GPU and bare-metal machines
#[derive(Parser)]
#[command(name = "better-compute", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start everything on this machine to try it: database, control plane, and this machine as a node
    Dev(Dev),
    /// Run the control plane
    Server(Box<Server>),
    /// Queue a command for a node, and wait for what comes of it
    Run(Run),
    /// List, show, watch, cancel and explain commands
    #[command(subcommand)]
    Commands(Commands),
    /// Propose, show, approve and reject batches of destructive commands
    #[command(subcommand)]
    Batch(BatchCommand),
    /// List, download and read support bundles: the files that commands uploaded
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// List, show, label, delete and enrol nodes
    #[command(subcommand)]
    Node(NodeCommand),
    /// Reserve GPUs, and give them back
    #[command(subcommand)]
    Reservation(ReservationCommand),
    /// See what the control plane tried by itself to mend nodes, and let nodes go on
    #[command(subcommand)]
    Remediation(RemediationCommand),
    /// Push and list binaries of the daemon
    #[command(subcommand)]
    Release(ReleaseCommand),
    /// Bring a release of the daemon to many nodes, few at a time
    #[command(subcommand)]
    Rollout(RolloutCommand),
    /// Wipe, deploy and accept a machine, one command after the other
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// Write, build, inspect, check and run command kinds, and register them
    #[command(subcommand)]
    Kind(KindCommand),
    /// Follow what happens
    #[command(subcommand)]
    Events(EventsCommand),
    /// Show and check the transparency log of destructive commands, and make receipts
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Make, list and revoke tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show who you are to the server, and what you may do
    Whoami(Plain),
    /// Make and look at the keys that nodes trust; needs no server
    #[command(subcommand)]
    Pki(PkiCommand),
    /// Call any method of the API
    Api(Api),
    /// Choose between servers
    #[command(subcommand)]
    Context(ContextCommand),
    /// Print completions for a shell
    ///
    /// These know commands and flags alone. For the names of nodes and kinds as well, put this into the shell's start file:
    /// `source <(COMPLETE=bash better-compute)`; zsh likewise; fish: `COMPLETE=fish better-compute | source`.
    Completions {
        /// The shell
        shell: Shell,
    },
}

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
        Command::Workflow(command) => block_on(command.execute()),
        Command::Kind(command) => command.execute(),
        Command::Events(command) => block_on(command.execute()),
        Command::Audit(command) => block_on(command.execute()),
        Command::Token(command) => block_on(command.execute()),
        Command::Pki(command) => command.execute(),
        Command::Whoami(plain) => block_on(token::whoami(plain)),
        Command::Api(api) => block_on(api.execute()),
        Command::Context(command) => command.execute(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
