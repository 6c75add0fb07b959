//! `kind check`: a node's admission, done here.

use std::path::PathBuf;
use std::process::ExitCode;

use bc_daemon::config::{self, Config};
use bc_daemon::node::Node;
use bc_runtime::{Inspected, Rejected};
use clap::Args;
use serde_json::json;

use super::{REFUSED, try_out};
use crate::output;

/// The arguments.
#[derive(Debug, Args)]
pub struct Check {
    /// The component
    file: PathBuf,
    /// The node's configuration; without it, the defaults, which grant nothing
    #[arg(long, value_name = "FILE", env = "BCD_CONFIG")]
    config: Option<PathBuf>,
    /// A file with [grants], in place of the configuration's
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let mut config = self.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        if let Some(path) = &self.grants {
            config.grants = config::read_policy(path)?.grants;
        }
        let node = Node::new(&config)?;
        let component = match Inspected::read(&self.file) {
            Ok(component) => component,
            Err(error) if matches!(error.rejected, Rejected::Unreadable(_)) => return Err(error.into()),
            Err(error) => return Ok(self.verdict("", &[format!("{error}\n  → {}", error.rejected.remedy())])),
        };
        let name = component.manifest.name.clone();
        let mut wrong: Vec<_> = node.obstacles(&component).iter().map(|o| format!("{o}\n  → {}", o.remedy())).collect();
        if component.faults().is_empty()
            && let Err(more) = try_out(&node.engine, &component)
        {
            wrong.extend(more);
        }
        Ok(self.verdict(&name, &wrong))
    }

    fn verdict(&self, kind: &str, wrong: &[String]) -> ExitCode {
        if self.json {
            output::say(&json!({ "kind": kind, "admitted": wrong.is_empty(), "obstacles": wrong }).to_string());
        } else if wrong.is_empty() {
            output::say(&format!("{kind} would be loaded"));
        } else {
            output::say(&format!("{} would not be loaded:\n{}", self.file.display(), wrong.join("\n")));
        }
        if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) }
    }
}
