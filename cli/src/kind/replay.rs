//! `kind replay`: a recorded run again, anywhere, with this component.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bc_daemon::kind_run::Attempt;
use bc_daemon::node::Node;
use bc_runtime::capability::Capabilities;
use bc_runtime::transcript::Transcript;
use bc_runtime::{Inspected, LoadError, Mode};
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::run;
use crate::output;

/// The arguments.
#[derive(Debug, Args)]
pub struct Replay {
    /// What `kind run --transcript` wrote
    transcript: PathBuf,
    /// The component: the one that ran, or a new version of it
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let name = self.transcript.display();
        let text = std::fs::read(&self.transcript).with_context(|| format!("{name} cannot be read"))?;
        let transcript: Transcript =
            serde_json::from_slice(&text).with_context(|| format!("{name} is no transcript"))?;
        let component = Inspected::read(&self.file)?;
        if component.digest != transcript.digest {
            output::complain(&format!(
                "note: {} is not the component that ran ({})",
                self.file.display(),
                transcript.digest
            ));
        }
        // Every answer comes from the recording, so nothing that is granted here can reach the machine.
        let mut node = Node::new(&bc_daemon::config::Config::default())?;
        node.capabilities = Capabilities::default();
        node.policy.grants.insert("*".into(), component.manifest.capabilities.clone());
        let kind = node.engine.load(&component).map_err(|rejected| LoadError { file: self.file.clone(), rejected })?;
        let mut request = node.run_of(&kind, transcript.payload.clone(), CancellationToken::new());
        request.mode = Mode::Replay(transcript);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let attempt = Attempt::Ran(Box::new(runtime.block_on(kind.run(request))));
        match &attempt {
            Attempt::Ran(report) if !self.json => run::print_report(report, false),
            _ => output::say(&format!("{:#}", attempt.to_json())),
        }
        Ok(ExitCode::from(attempt.exit_code()))
    }
}
