//! From what DCGM printed, and how it ended, to the result. Pure.
//!
//! **Invariant:** a pass takes a test that passed, none that did anything else but skip, and a tool that ended well.

use sdk::Failure;
use sdk::process::Exit;
use serde::Serialize;

use crate::ended;
use crate::output::{self, Output, Status, TestResult};
use crate::plan::Gpus;

/// The low byte of DCGM's return codes, as `dcgmi` exits with them.
mod exit {
    /// A test failed.
    pub(super) const FAILED: i32 = 226;
    /// A test failed, and the GPU is to be isolated.
    pub(super) const ISOLATE: i32 = 205;
    /// Another diagnosis runs.
    pub(super) const ALREADY_RUNNING: i32 = 217;
    /// It was killed.
    pub(super) const KILLED: i32 = 203;
}

/// How much of the tool's words a reason quotes, characters.
const QUOTED: usize = 400;
/// How many tests a reason names.
const NAMED: usize = 6;

/// The kind's result.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) status: &'static str,
    pub(crate) reason: Option<String>,
    level: u8,
    dcgm: Option<String>,
    exit_code: i32,
    tests: Vec<Line>,
    summary: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line {
    category: String,
    test: String,
    gpu: Option<String>,
    entity: Option<String>,
    status: &'static str,
    severity: Option<&'static str>,
    warnings: Vec<Warning>,
    info: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Warning {
    text: String,
    error_id: Option<i64>,
    category: Option<i64>,
    severity: Option<&'static str>,
}

/// Judges it. Fails where there is nothing to judge: what did not run, and what does not read.
pub(crate) fn report(level: u8, exit: Exit, text: &str, complaint: &str, gpus: &Gpus) -> Result<Report, Failure> {
    let said = |text: &str| {
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(QUOTED).collect();
        if text.is_empty() { String::new() } else { format!(": {text}") }
    };
    let unknown = |why: String| Failure::new("could-not-be-known", why);
    let is_other_running = |text: &str| text.to_ascii_lowercase().contains("already running");
    let already_running =
        |text: &str| Failure::new("dcgm-already-running", format!("another diagnosis runs{}", said(text))).retryable();
    let code = match exit {
        Exit::Code(exit::ALREADY_RUNNING) => return Err(already_running(&format!("{text} {complaint}"))),
        Exit::Code(exit::KILLED) => return Err(unknown(format!("DCGM was killed{}", said(complaint)))),
        Exit::TimedOut => return Err(Failure::new("timed-out", format!("{}{}", ended(exit), said(complaint)))),
        Exit::Signal(_) => return Err(unknown(format!("{}{}", ended(exit), said(complaint)))),
        Exit::Code(code) => code,
    };
    let output = output::parse(text).map_err(|why| {
        let words = if complaint.is_empty() { text } else { complaint };
        if code != 0 && is_other_running(words) {
            return already_running(words);
        }
        unknown(format!("{}, and {why}{}", ended(exit), said(words)))
    })?;
    if let Some(error) = output.runtime_error.as_ref().filter(|_| output.results.is_empty()) {
        let failure = Failure::new("dcgm-error", format!("DCGM ran nothing{}", said(error)));
        return Err(if is_other_running(error) { already_running(error) } else { failure });
    }
    let (status, reason) = judge(&output, code);
    let tests: Vec<Line> = output.results.into_iter().map(|result| line(result, gpus)).collect();
    let count = |word: &str| tests.iter().filter(|test| test.status == word).count();
    let summary = format!(
        "level {level}: {} passed, {} failed, {} skipped, {} unknown",
        count("pass"),
        count("fail"),
        count("skip"),
        count("unknown")
    );
    Ok(Report { status, reason, level, dcgm: output.version, exit_code: code, tests, summary })
}

/// A failure counts before what is not known, which counts before passes.
fn judge(output: &Output, code: i32) -> (&'static str, Option<String>) {
    let of = |status| -> Vec<&TestResult> { output.results.iter().filter(|it| it.status == status).collect() };
    let named = |results: &[&TestResult]| {
        let mut names: Vec<_> = results.iter().take(NAMED).map(|it| told(it)).collect();
        if results.len() > NAMED {
            names.push(format!("and {} more", results.len() - NAMED));
        }
        names.join("; ")
    };
    let (failed, unknown) = (of(Status::Fail), of(Status::Unknown));
    if !failed.is_empty() {
        return ("fail", Some(named(&failed)));
    }
    if output.summary_failed || matches!(code, exit::FAILED | exit::ISOLATE) {
        return ("fail", Some(format!("DCGM says that a test failed (exit code {code}), and does not say which")));
    }
    if let Some(error) = &output.runtime_error {
        return ("unknown", Some(format!("DCGM did not run all of it: {error}")));
    }
    if !unknown.is_empty() {
        return ("unknown", Some(format!("a status that is not known: {}", named(&unknown))));
    }
    if of(Status::Pass).is_empty() {
        let why = if output.results.is_empty() { "no test was run" } else { "every test was skipped" };
        return ("unknown", Some(why.to_owned()));
    }
    if code != 0 {
        return ("unknown", Some(format!("no test failed, but dcgmi ended with {code}")));
    }
    ("pass", None)
}

fn told(result: &TestResult) -> String {
    let at = result.entity.as_ref().map(|entity| format!(" on {} {}", entity.group, entity.id)).unwrap_or_default();
    let text = result.warnings.first().map(|warning| warning.text.chars().take(QUOTED).collect::<String>());
    let text = text.filter(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default();
    format!("{}{at}{text}", result.test)
}

fn line(result: TestResult, gpus: &Gpus) -> Line {
    let is_gpu = |group: &str| group.eq_ignore_ascii_case("gpu") || group == "1";
    let gpu = result.entity.as_ref().filter(|entity| is_gpu(&entity.group)).and_then(|entity| gpus.uuid(entity.id));
    let gravest = result.warnings.iter().filter_map(|warning| warning.severity).max_by_key(|it| weight(*it));
    Line {
        gpu: gpu.cloned(),
        entity: result.entity.as_ref().map(|entity| format!("{} {}", entity.group, entity.id)),
        category: result.category,
        test: result.test,
        status: match result.status {
            Status::Pass => "pass",
            Status::Fail => "fail",
            Status::Skip => "skip",
            Status::Unknown => "unknown",
        },
        severity: gravest.map(severity),
        warnings: result
            .warnings
            .into_iter()
            .map(|warning| Warning {
                text: warning.text,
                error_id: warning.error_id,
                category: warning.category,
                severity: warning.severity.map(severity),
            })
            .collect(),
        info: result.info,
    }
}

const fn severity(number: i64) -> &'static str {
    match number {
        0 => "none",
        1 => "monitor",
        2 => "isolate",
        4 => "triage",
        5 => "config",
        6 => "reset",
        _ => "unknown",
    }
}

/// The numbers are not in order: what takes a GPU out of work is graver than what wants a look.
const fn weight(number: i64) -> u8 {
    match number {
        0 => 0,
        1 => 1,
        5 => 2,
        4 => 4,
        6 => 5,
        2 => 6,
        _ => 3,
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
