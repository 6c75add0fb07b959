//! What the command line of bcd takes.
//!
//! **Invariant:** help, manual pages, completions and the check of the documentation's command lines are all made from this.

use clap::{Parser, Subcommand};

use crate::doctor::Doctor;
use crate::join::Join;
use crate::kind_plugins::{KindList, KindWatch};
use crate::kind_run::KindRun;
use crate::run::RunDaemon;
use crate::runner::Runner;

/// The node daemon of better-compute
#[derive(Parser)]
#[command(name = "bcd", version, arg_required_else_help = true)]
pub struct Bcd {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Make this machine a node of a control plane
    ///
    /// Exit codes: 0 joined, 1 not joined.
    Join(Join),
    /// Run the daemon: keep a session with the control plane and run what it sends, until SIGTERM or SIGINT
    ///
    /// Exit codes: 0 stopped by a signal, 1 it could not start or go on.
    Run(RunDaemon),
    /// Run the commands of a gateway that holds no session: lease them from Postgres, until SIGTERM or SIGINT
    ///
    /// Exit codes: 0 stopped by a signal, 1 it could not start or go on.
    Runner(Runner),
    /// Check how this machine is set up as a node, and say what to fix
    ///
    /// Exit codes: 0 all that was looked at works, 1 something does not.
    Doctor(Doctor),
    /// Run one program for the daemon; not for people
    #[command(hide = true)]
    Supervise,
    /// Work with command kinds on this node
    #[command(subcommand)]
    Kind(Kind),
}

/// What to do with kinds.
#[derive(Subcommand)]
pub enum Kind {
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
