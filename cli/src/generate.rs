//! `better-compute generate`: what packages hold beside the programs.
//!
//! **Invariant:** all of it is made from the programs' own definitions of their command lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bc_daemon::cli::Bcd;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;

/// The arguments.
#[derive(Debug, Args)]
pub struct Generate {
    /// The folder to write into
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Generate {
    /// Does it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        for (command, name) in [(Cli::command(), "better-compute"), (Bcd::command(), "bcd")] {
            write(&self.out, command, name)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write(out: &Path, mut command: clap::Command, name: &str) -> anyhow::Result<()> {
    let pages = out.join("man");
    fs::create_dir_all(&pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, name, out)?;
    }
    Ok(clap_mangen::generate_to(command, &pages)?)
}
