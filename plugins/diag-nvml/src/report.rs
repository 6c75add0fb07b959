//! What the kind answers, as its result schema has it, and how single checks add up.
//!
//! **Invariant:** only a pass goes without a reason.

use std::fmt::Write;

use sdk::nvml::DriverInfo;
use serde::Serialize;

/// The state of one check.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    Pass,
    Fail,
    /// It could not be asked. Never counts as a pass.
    Unknown,
    /// It does not apply to this GPU, as it is set up now.
    Skipped,
}

/// What one check found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) status: Status,
    pub(crate) reason: Option<String>,
}

impl Verdict {
    pub(crate) fn pass() -> Self {
        Self { status: Status::Pass, reason: None }
    }

    pub(crate) fn fail(reason: impl Into<String>) -> Self {
        Self { status: Status::Fail, reason: Some(reason.into()) }
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self { status: Status::Unknown, reason: Some(reason.into()) }
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self { status: Status::Skipped, reason: Some(reason.into()) }
    }
}

/// One line of the report.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// The GPU's UUID; none for the node, and for a GPU that cannot be named.
    pub(crate) gpu: Option<String>,
    /// The GPU's place in the driver's list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u32>,
    pub(crate) status: Status,
    pub(crate) reason: Option<String>,
}

impl Check {
    /// A check of the node.
    pub(crate) fn node(name: &'static str, Verdict { status, reason }: Verdict) -> Self {
        Self { name, gpu: None, index: None, status, reason }
    }

    /// Whose it is, for the summary.
    fn subject(&self) -> String {
        match (self.index, &self.gpu) {
            (Some(index), _) => format!("{} on GPU {index}", self.name),
            (None, Some(gpu)) => format!("{} on {gpu}", self.name),
            (None, None) => self.name.to_owned(),
        }
    }
}

/// Who answered.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Driver {
    version: String,
    nvml_version: String,
    /// For example `12.8`.
    cuda_version: Option<String>,
}

impl From<&DriverInfo> for Driver {
    fn from(info: &DriverInfo) -> Self {
        Self {
            version: info.version.clone(),
            nvml_version: info.nvml_version.clone(),
            cuda_version: info.cuda_version.map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)),
        }
    }
}

/// The kind's result.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) status: Status,
    pub(crate) driver: Option<Driver>,
    pub(crate) checks: Vec<Check>,
    /// One line for people.
    pub(crate) summary: String,
}

impl Report {
    /// Adds the checks up: a failure outweighs what could not be asked, which outweighs passes.
    pub(crate) fn new(driver: Option<Driver>, checks: Vec<Check>) -> Self {
        let any = |status| checks.iter().any(|check| check.status == status);
        let status = if any(Status::Fail) {
            Status::Fail
        } else if any(Status::Unknown) {
            Status::Unknown
        } else {
            Status::Pass
        };
        let summary = summary(&checks);
        Self { status, driver, checks, summary }
    }
}

/// How many checks one summary names.
const NAMED: usize = 5;

fn summary(checks: &[Check]) -> String {
    let mut text = String::new();
    for (status, word) in [
        (Status::Fail, "failed"),
        (Status::Unknown, "could not be asked"),
        (Status::Pass, "passed"),
        (Status::Skipped, "skipped"),
    ] {
        let those: Vec<_> = checks.iter().filter(|check| check.status == status).collect();
        if those.is_empty() {
            continue;
        }
        let separator = if text.is_empty() { "" } else { "; " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{} {word}", those.len());
        if matches!(status, Status::Fail | Status::Unknown) {
            let mut names: Vec<_> = those.iter().take(NAMED).map(|check| check.subject()).collect();
            if those.len() > NAMED {
                names.push("…".to_owned());
            }
            let _ = write!(text, " ({})", names.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(statuses: &[Status]) -> Report {
        let checks = statuses
            .iter()
            .zip(0..)
            .map(|(&status, index)| Check { name: "pcie.link", gpu: None, index: Some(index), status, reason: None })
            .collect();
        Report::new(None, checks)
    }

    #[test]
    fn a_failure_outweighs_unknown_outweighs_pass() {
        use Status::{Fail, Pass, Skipped, Unknown};
        for (statuses, expected) in [
            (&[Pass, Pass][..], Pass),
            (&[Pass, Skipped], Pass),
            (&[Pass, Unknown, Skipped], Unknown),
            (&[Unknown, Fail, Pass], Fail),
            (&[Fail], Fail),
        ] {
            assert_eq!(report(statuses).status, expected, "{statuses:?}");
        }
    }

    #[test]
    fn the_summary_counts_all_and_names_the_first_that_need_attention() {
        use Status::{Fail, Pass, Skipped, Unknown};
        assert_eq!(report(&[Pass, Pass, Skipped]).summary, "2 passed; 1 skipped");
        let summary = report(&[Pass, Unknown, Fail]).summary;
        assert_eq!(summary, "1 failed (pcie.link on GPU 2); 1 could not be asked (pcie.link on GPU 1); 1 passed");
        let summary = report(&[Fail; 7]).summary;
        assert!(summary.starts_with("7 failed (pcie.link on GPU 0,") && summary.ends_with("GPU 4, …)"), "{summary}");
    }

    #[test]
    fn the_cuda_version_reads_as_people_write_it() {
        let info = DriverInfo { version: "570.124.06".into(), nvml_version: "12".into(), cuda_version: Some(12080) };
        assert_eq!(Driver::from(&info).cuda_version.as_deref(), Some("12.8"));
    }
}
