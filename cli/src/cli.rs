//! What the command line takes. What each subcommand does is in the module of its name.
//!
//! **Invariant:** help, manual pages, completions and the check of the documentation's command lines are all made from this.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::api::Api;
use crate::audit::AuditCommand;
use crate::batch::BatchCommand;
use crate::bundle::BundleCommand;
use crate::commands::{Commands, Run};
use crate::context::ContextCommand;
use crate::dev::Dev;
use crate::doctor::Doctor;
use crate::events::EventsCommand;
use crate::generate::Generate;
use crate::kind::KindCommand;
use crate::mcp::Mcp;
use crate::node::NodeCommand;
use crate::pki::PkiCommand;
use crate::release::ReleaseCommand;
use crate::remediation::RemediationCommand;
use crate::reservation::ReservationCommand;
use crate::rollout::RolloutCommand;
use crate::runner::RunnerCommands;
use crate::server::Server;
use crate::token::{Plain, TokenCommand};
use crate::webhook::WebhookCommand;
use crate::workflow::WorkflowCommand;

/// A WebAssembly-pluggable command runtime for fleets of GPU and bare-metal machines
#[derive(Parser)]
#[command(name = "better-compute", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
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
    /// Have runners lease a gateway's commands from the database, and see what they did
    #[command(subcommand)]
    Runner(RunnerCommands),
    /// Wipe, deploy and accept a machine, one command after the other
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// Write, build, inspect, check and run command kinds, and register them
    #[command(subcommand)]
    Kind(KindCommand),
    /// Follow what happens
    #[command(subcommand)]
    Events(EventsCommand),
    /// Have events sent to URLs, see what came of it, and have them sent again
    #[command(subcommand)]
    Webhook(WebhookCommand),
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
    /// Serve the API to agents as tools, over the Model Context Protocol: on standard input and output, or HTTP
    Mcp(Box<Mcp>),
    /// Check the set-up of the command line, of the server it talks to and, by its settings, of a server, and say what to fix
    ///
    /// Exit codes: 0 all that was looked at works, 1 something does not.
    Doctor(Doctor),
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
    /// Write the manual pages and completions of both programs, for packages
    #[command(hide = true)]
    Generate(Generate),
}
