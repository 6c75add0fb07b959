//! What an upgrade comes to. Pure.
//!
//! **Invariant:** nothing is staged on a node that runs the version already, is still on probation, or would go backwards unasked.

use sdk::{Failure, Problem};
use semver::Version;
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Payload {
    /// The release's version.
    pub(crate) version: String,
    /// SHA-256 of its file.
    pub(crate) sha256: String,
    /// Whether it may be older than the one that runs.
    #[serde(default)]
    pub(crate) allow_downgrade: bool,
}

/// The kind's result.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) sha256: String,
    pub(crate) changed: bool,
}

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing: it runs already.
    Nothing,
    /// Stage it, and switch to it.
    Replace,
}

/// What the schema cannot say.
pub(crate) fn problems(payload: &Payload) -> Vec<Problem> {
    match Version::parse(&payload.version) {
        Ok(_) => Vec::new(),
        Err(error) => vec![Problem::new("/version", format!("must be a semantic version such as 1.2.3: {error}"))],
    }
}

/// Decides, on a node that runs this version.
pub(crate) fn plan(payload: &Payload, running: &str, unconfirmed: bool) -> Result<Plan, Failure> {
    let unreadable = |what: &str, error| Failure::new("invalid-version", format!("{what} is no version: {error}"));
    let from = Version::parse(running).map_err(|error| unreadable("what runs", error))?;
    let to = Version::parse(&payload.version).map_err(|error| unreadable("what is asked for", error))?;
    if from == to {
        return Ok(Plan::Nothing);
    }
    if unconfirmed {
        let message =
            format!("version {from} is still on probation here: try again when it is confirmed, or rolled back");
        return Err(Failure::new("on-trial", message).retryable());
    }
    if to < from && !payload.allow_downgrade {
        let message = format!("{to} is older than {from}, which runs: say allowDowngrade if that is meant");
        return Err(Failure::new("downgrade", message));
    }
    Ok(Plan::Replace)
}

pub(crate) fn answer(payload: Payload, from: String, plan: &Plan) -> Answer {
    Answer { from, to: payload.version, sha256: payload.sha256, changed: *plan == Plan::Replace }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(version: &str, allow_downgrade: bool) -> Payload {
        Payload { version: version.into(), sha256: "ab".repeat(32), allow_downgrade }
    }

    #[test]
    fn a_version_that_runs_is_left_as_it_is() {
        let asked = to("1.2.3", false);
        let nothing = plan(&asked, "1.2.3", true).expect("it is no failure, even on probation");
        assert_eq!(nothing, Plan::Nothing);
        assert!(!answer(asked, "1.2.3".into(), &nothing).changed);
    }

    #[test]
    fn a_version_goes_up_and_down_only_when_that_is_meant() {
        for (from, version, allow, expected) in [
            ("1.1.0-alpha.1", "1.1.0-alpha.2", false, Ok(Plan::Replace)),
            ("1.1.0-alpha.2", "1.1.0", false, Ok(Plan::Replace)),
            ("1.10.0", "1.9.0", false, Err("downgrade")),
            ("1.10.0", "1.9.0", true, Ok(Plan::Replace)),
            ("1.0.0", "soon", false, Err("invalid-version")),
        ] {
            let decided = plan(&to(version, allow), from, false).map_err(|failure| failure.code);
            assert_eq!(decided, expected.map_err(str::to_owned), "{from} to {version}");
        }
    }

    #[test]
    fn a_node_on_probation_is_not_changed_again() {
        let failure = plan(&to("1.2.4", false), "1.2.3", true).expect_err("on probation");
        assert_eq!((failure.code.as_str(), failure.retryable), ("on-trial", true));
    }

    #[test]
    fn what_is_no_version_is_a_problem_at_its_place() {
        assert_eq!(problems(&to("1.2.3", false)), []);
        assert_eq!(problems(&to("1.2", false))[0].pointer, "/version");
    }
}
