//! `kind run`: bcd's own `kind run`, with a report for people.

use std::process::ExitCode;

use bc_daemon::kind_run::{self, Attempt, KindRun};
use bc_runtime::effect::{self, State};
use bc_runtime::{Outcome, Report};
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::output;

/// The arguments.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 succeeded, 1 usage or I/O, 2 failed, 3 refused, 6 cancelled.")]
pub struct RunCommand {
    #[command(flatten)]
    run: KindRun,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RunCommand {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let attempt = kind_run::block_on(&self.run, CancellationToken::new())?;
        if self.json {
            output::say(&format!("{:#}", attempt.to_json()));
        } else {
            print(&attempt, self.run.plan);
        }
        Ok(ExitCode::from(attempt.exit_code()))
    }
}

fn print(attempt: &Attempt, plan: bool) {
    match attempt {
        Attempt::Refused { kind, obstacles } => {
            output::complain(&format!("{kind} was not loaded:"));
            for obstacle in obstacles {
                output::complain(&format!("{obstacle}\n  → {}", obstacle.remedy()));
            }
        }
        Attempt::Ran(report) => print_report(report, plan),
    }
}

pub(super) fn print_report(report: &Report, plan: bool) {
    match &report.outcome {
        Outcome::Succeeded { result } => output::say(&output::result(result)),
        other => output::complain(&other.to_string()),
    }
    if plan {
        output::say(&format!("plan {}: {} effect(s)", effect::plan_hash(&report.effects), report.effects.len()));
    }
    for effect in &report.effects {
        let state = match &effect.state {
            State::Planned => "would happen".to_owned(),
            State::Ambiguous => "began, and may or may not have happened".to_owned(),
            State::Done => "happened".to_owned(),
            State::Failed(reason) => format!("failed: {reason}"),
        };
        output::say(&format!("  {}. {} {} – {state}", effect.seq + 1, effect.name, effect.args));
    }
    if report.dropped_log_lines > 0 {
        output::complain(&format!("{} log lines went past the run's budget", report.dropped_log_lines));
    }
}
