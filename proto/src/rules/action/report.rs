//! What an action's program says of itself, and when it may.
//!
//! **Invariant:** the first end that it reports is the one that counts, and nothing is taken after it.

use serde::{Deserialize, Serialize};

/// The variable that tells a program where it reports.
pub const VARIABLE: &str = "BETTER_COMPUTE_REPORT";

/// The most bytes of one report, a line of JSON.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// A line that it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Report {
    /// It has begun, and asks whether it may go on.
    Started(bool),
    /// Something that a person must see now.
    Output(String),
    /// It has reached its goal.
    Completed(Completed),
    /// It has not.
    Failed(Failed),
}

/// It has reached its goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Completed {
    /// Always 0: anything else is a failure.
    pub exit_code: i32,
}

/// It has not reached its goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failed {
    /// Why, for people.
    pub error: String,
    /// An exit code that says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// How it ended, as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With 0.
    Completed,
    /// With a failure.
    Failed(Failed),
}

/// What was taken so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reported {
    is_started: bool,
    end: Option<End>,
}

/// Why a report is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Refused {
    #[error("started: true, or nothing")]
    NotStarting,
    #[error("report `started` first")]
    NotStarted,
    #[error("it has reported its end; nothing is taken after that")]
    Over,
    #[error("completed.exitCode: 0; what ended otherwise has failed")]
    NotZero,
    #[error("failed.error: say why")]
    NoReason,
}

impl Reported {
    /// Takes a report.
    pub fn take(&mut self, report: &Report) -> Result<(), Refused> {
        if self.end.is_some() {
            return Err(Refused::Over);
        }
        match report {
            Report::Started(true) => self.is_started = true,
            Report::Started(false) => return Err(Refused::NotStarting),
            _ if !self.is_started => return Err(Refused::NotStarted),
            Report::Output(_) => {}
            Report::Completed(Completed { exit_code: 0 }) => self.end = Some(End::Completed),
            Report::Completed(_) => return Err(Refused::NotZero),
            Report::Failed(failed) if failed.error.trim().is_empty() => return Err(Refused::NoReason),
            Report::Failed(failed) => self.end = Some(End::Failed(failed.clone())),
        }
        Ok(())
    }

    /// The end that counts.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Report {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn the_first_end_counts_and_comes_after_the_start() {
        let mut reported = Reported::default();
        for (line, expected) in [
            (r#"{"output":"early"}"#, Err(Refused::NotStarted)),
            (r#"{"completed":{"exitCode":0}}"#, Err(Refused::NotStarted)),
            (r#"{"started":false}"#, Err(Refused::NotStarting)),
            (r#"{"started":true}"#, Ok(())),
            (r#"{"started":true}"#, Ok(())),
            (r#"{"output":"code ABCD"}"#, Ok(())),
            (r#"{"completed":{"exitCode":3}}"#, Err(Refused::NotZero)),
            (r#"{"failed":{"error":" "}}"#, Err(Refused::NoReason)),
            (r#"{"failed":{"error":"refused","exitCode":4}}"#, Ok(())),
            (r#"{"completed":{"exitCode":0}}"#, Err(Refused::Over)),
            (r#"{"output":"late"}"#, Err(Refused::Over)),
        ] {
            assert_eq!(reported.take(&read(line)), expected, "{line}");
        }
        let failed = Failed { error: "refused".into(), exit_code: Some(4) };
        assert_eq!(reported.end(), Some(&End::Failed(failed)));
    }

    #[test]
    fn a_line_that_is_no_report_is_refused() {
        for line in [
            "{}",
            "[]",
            r#"{"started":1}"#,
            r#"{"completed":{}}"#,
            r#"{"failed":{"error":"x","more":1}}"#,
            r#"{"stopped":true}"#,
        ] {
            assert!(serde_json::from_str::<Report>(line).is_err(), "{line}");
        }
    }
}
