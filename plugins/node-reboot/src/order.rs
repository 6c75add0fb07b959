//! Whether the machine is to be rebooted, and what is said of it. Pure.
//!
//! **Invariant:** a boot id that could not be read fits no condition.

use sdk::{Error, Failure, Problem};
use serde::{Deserialize, Serialize};

/// What is sent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Payload {
    /// Why.
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) reason: Option<String>,
    /// The boot that the machine must be in.
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub(crate) if_boot: Option<String>,
}

/// What the run answers.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    /// The boot that is to end.
    pub(crate) boot_id: String,
}

/// What the schema does not say: a reason is one line.
pub(crate) fn problems(payload: &Payload) -> Vec<Problem> {
    let is_bad = |reason: &&String| reason.contains(char::is_control);
    let bad = payload.reason.as_ref().filter(is_bad);
    bad.map(|_| Problem::new("/reason", "must be one line, without control characters")).into_iter().collect()
}

/// What is to be answered when the machine reboots now.
pub(crate) fn out_of(payload: &Payload, boot_id: Result<String, Error>) -> Result<Answer, Failure> {
    let boot_id = boot_id?;
    match &payload.if_boot {
        Some(wanted) if *wanted != boot_id => {
            let message =
                format!("the machine is in the boot {boot_id} and not in {wanted}: it has been rebooted since");
            Err(Failure::new("other-boot", message))
        }
        _ => Ok(Answer { boot_id }),
    }
}

/// The reason for the machine's log.
pub(crate) fn reason(payload: &Payload, command: &str) -> String {
    payload.reason.clone().unwrap_or_else(|| format!("asked for by {command}"))
}

/// A refusal by the host. What inhibits a reboot passes.
pub(crate) fn refused(error: Error) -> Failure {
    let passes = error.code == "inhibited";
    let failure = Failure::from(error);
    if passes { failure.retryable() } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(reason: Option<&str>, if_boot: Option<&str>) -> Payload {
        Payload { reason: reason.map(Into::into), if_boot: if_boot.map(Into::into) }
    }

    fn error(code: &str) -> Error {
        Error { code: code.into(), native: None, message: "why".into() }
    }

    #[test]
    fn nothing_needs_to_be_said() {
        let answer = out_of(&Payload::default(), Ok("b1".into()));
        assert_eq!(answer.map_err(|failure| failure.code), Ok(Answer { boot_id: "b1".into() }));
        assert_eq!(reason(&Payload::default(), "cmd_1"), "asked for by cmd_1");
        assert_eq!(reason(&payload(Some("a kernel"), None), "cmd_1"), "a kernel");
    }

    #[test]
    fn promise_01_a_machine_in_another_boot_is_not_rebooted() {
        let code = |if_boot, boot| out_of(&payload(None, Some(if_boot)), boot).map_err(|failure| failure.code);
        assert!(code("b1", Ok("b1".into())).is_ok());
        assert_eq!(code("b1", Ok("b2".into())), Err("other-boot".into()));
        assert_eq!(code("b1", Err(error("unreadable"))), Err("unreadable".into()));
    }

    #[test]
    fn what_inhibits_a_reboot_passes_and_the_rest_does_not() {
        for (code, retryable) in [("inhibited", true), ("inhibitors-unknown", false), ("already-asked", false)] {
            let failure = refused(error(code));
            assert_eq!((failure.code.as_str(), failure.retryable), (code, retryable));
        }
    }

    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(problems(&payload(Some("one line"), None)), []);
        let expected = Problem::new("/reason", "must be one line, without control characters");
        assert_eq!(problems(&payload(Some("two\nlines"), None)), [expected]);
    }
}
