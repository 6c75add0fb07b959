//! From what the node answered to a refusal or a report. Pure.
//!
//! **Invariant:** a GPU counts as reset only when the host says so, and as healthy only when everything that tells could be asked.

use std::fmt::Write;

use sdk::gpus::ResetOutcome;
use sdk::nvml::{Device, RowRemapping};
use sdk::{Error, Failure, Problem, describe};
use serde::Serialize;

/// Stands before the host's words where it could not be known whether a GPU was reset.
const COULD_NOT_BE_KNOWN: &str = "could-not-be-known";

/// What a check of the payload cannot say by its schema alone.
pub(crate) fn problems(gpus: &[String]) -> Vec<Problem> {
    let mut problems = Vec::new();
    if gpus.is_empty() {
        problems.push(Problem::new("/gpus", "names no GPU: at least one is needed, since none would mean all of them"));
    }
    for (place, gpu) in gpus.iter().enumerate() {
        // UUIDs are hexadecimal: their case does not tell them apart.
        if gpus[..place].iter().any(|before| before.eq_ignore_ascii_case(gpu)) {
            problems.push(Problem::new(format!("/gpus/{place}"), format!("{gpu} is named twice")));
        }
    }
    problems
}

/// Refuses GPUs that the driver does not list.
pub(crate) fn all_listed(gpus: &[String], devices: &[Device]) -> Result<(), Failure> {
    let is_listed =
        |gpu: &&String| devices.iter().filter_map(|it| it.identity.as_ref().ok()).any(|it| it.uuid == **gpu);
    let unknown: Vec<_> = gpus.iter().filter(|gpu| !is_listed(gpu)).cloned().collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let silent: Vec<_> = devices.iter().filter_map(|it| Some((it.index, it.identity.as_ref().err()?))).collect();
    let mut message = format!("the driver does not list {}: nothing was done", unknown.join(", "));
    for (index, error) in silent {
        // Writing to a string cannot fail.
        let _ = write!(message, "; GPU {index} does not say who it is: {}", describe(error));
    }
    Err(Failure::new("unknown-gpu", message).with_details(&serde_json::json!({ "gpus": unknown })))
}

/// None was reset: the host's reason.
pub(crate) fn not_reset(error: Error) -> Failure {
    let is_passing = matches!(error.code.as_str(), "gpu-busy" | "nvml-in-use");
    let failure = Failure::from(error);
    if is_passing { failure.retryable() } else { failure }
}

/// How a GPU is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Healthy,
    Unhealthy(String),
    Unknown(String),
}

/// Judges a GPU: it must be there, no row may wait or have failed, and the driver must advise nothing. What is wrong counts before
/// what could not be asked.
pub(crate) fn health(
    gpu: &str,
    devices: &Result<Vec<Device>, Error>,
    rows: &Result<RowRemapping, Error>,
    advice: &Result<u32, Error>,
) -> Health {
    let could_not_ask = |error: &Error| Health::Unknown(format!("could not ask: {}", describe(error)));
    match devices {
        Err(error) => return could_not_ask(error),
        Ok(devices) if !devices.iter().filter_map(|it| it.identity.as_ref().ok()).any(|it| it.uuid == gpu) => {
            return Health::Unhealthy("the driver does not list it any more".into());
        }
        Ok(_) => {}
    }
    match (rows, advice) {
        (Ok(rows), _) if rows.pending => Health::Unhealthy("a row remap still waits for a reset".into()),
        (Ok(rows), _) if rows.failure => {
            Health::Unhealthy("a row remap failed, the board is a candidate for replacement".into())
        }
        (_, Ok(action @ 1..)) => Health::Unhealthy(format!("the driver advises recovery action {action}")),
        (Err(error), _) | (_, Err(error)) if error.code != "not-supported" => could_not_ask(error),
        _ => Health::Healthy,
    }
}

/// A GPU after the reset.
pub(crate) struct Gpu {
    pub(crate) gpu: String,
    pub(crate) health: Health,
}

/// The kind's result.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    gpus: Vec<Line>,
    /// One line for people.
    summary: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line {
    gpu: String,
    reset: &'static str,
    message: String,
    health: &'static str,
    reason: Option<String>,
}

/// The report; a failure with it in the details where a GPU was not reset, or may not have been.
pub(crate) fn report(outcomes: &[ResetOutcome], after: Vec<Gpu>) -> Result<Report, Failure> {
    let gpus: Vec<Line> = after
        .into_iter()
        .map(|Gpu { gpu, health }| {
            let (reset, message) = match outcomes.iter().find(|outcome| outcome.gpu == gpu) {
                Some(outcome) if outcome.reset => ("yes", outcome.message.clone()),
                Some(outcome) if outcome.message.starts_with(COULD_NOT_BE_KNOWN) => {
                    ("unknown", outcome.message.clone())
                }
                Some(outcome) => ("no", outcome.message.clone()),
                None => ("unknown", format!("{COULD_NOT_BE_KNOWN}: the host does not speak of it")),
            };
            let (health, reason) = match health {
                Health::Healthy => ("healthy", None),
                Health::Unhealthy(why) => ("unhealthy", Some(why)),
                Health::Unknown(why) => ("unknown", Some(why)),
            };
            Line { gpu, reset, message, health, reason }
        })
        .collect();
    let count = |reset: &str| gpus.iter().filter(|line| line.reset == reset).count();
    let healthy = gpus.iter().filter(|line| line.health == "healthy").count();
    let (all, no, unknown) = (gpus.len(), count("no"), count("unknown"));
    let mut summary = format!("{} of {all} were reset, {healthy} are healthy", count("yes"));
    if unknown > 0 {
        // Writing to a string cannot fail.
        let _ = write!(summary, "; of {unknown} it could not be known");
    }
    let report = Report { gpus, summary };
    if no + unknown == 0 {
        return Ok(report);
    }
    let told = report.gpus.iter().filter(|line| line.reset != "yes");
    let told: Vec<_> = told.map(|line| format!("{}: {}", line.gpu, line.message)).collect();
    // What is not known weighs more than what is known not to have been done.
    let code = if unknown > 0 { COULD_NOT_BE_KNOWN } else { "reset-incomplete" };
    Err(Failure::new(code, format!("{}; {}", report.summary, told.join("; "))).with_details(&report))
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
