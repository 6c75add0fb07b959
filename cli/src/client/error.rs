//! Why a call gave no answer, and how people are told.
//!
//! **Invariant:** a call whose effect is not known is never told apart only by its text: [`CallError::may_have_happened`].

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// A call that failed.
#[derive(Debug)]
pub enum CallError {
    /// The server refused it.
    Refused(Refusal),
    /// There was no answer.
    Unreachable {
        /// The base URL.
        url: String,
        /// Whether the request may have reached the server.
        sent: bool,
        /// What happened.
        source: reqwest::Error,
    },
    /// The answer is none of this API.
    Foreign {
        /// The base URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        why: String,
    },
}

/// A refusal: `{"error":{"code","message","details"}}`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Refusal {
    /// The stable code. As text, so that one which is newer than this program can be shown.
    pub code: String,
    /// For people.
    pub message: String,
    /// Particulars, by code.
    #[serde(default)]
    pub details: Value,
}

impl CallError {
    /// The refusal's code; none when there was no answer.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.code),
            _ => None,
        }
    }

    /// Whether the same call may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.code == "UNAVAILABLE",
            Self::Unreachable { .. } => true,
            // What stands in front of a server that is away.
            Self::Foreign { status, .. } => matches!(status, 502..=504),
        }
    }

    /// Whether the server may have done what it was asked, although it did not say so.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal.code.as_str(), "UNAVAILABLE" | "INTERNAL"),
            Self::Unreachable { sent, .. } => *sent,
            Self::Foreign { status, .. } => *status < 400 || *status >= 500,
        }
    }

    /// What to do about it; empty where the message says it.
    fn remedy(&self) -> &'static str {
        match self {
            Self::Unreachable { sent: false, .. } => "is the server running? `better-compute dev` starts one here",
            Self::Unreachable { sent: true, .. } => {
                "the connection was lost on the way; look at what happened before you repeat it"
            }
            Self::Foreign { .. } => "check the URL: it is that of the API, not of the gateway",
            Self::Refused(refusal) => match refusal.code.as_str() {
                "UNAUTHENTICATED" => {
                    "give a token that is good (--token-file, BETTER_COMPUTE_TOKEN, or a context); \
                     `better-compute token create` makes one, `better-compute server init-admin` the first"
                }
                "PERMISSION_DENIED" => "`better-compute whoami` shows what you may do; ask for a token with the grant",
                "NOT_FOUND" => "check its id and the tenant: what you may not see does not exist for you",
                "UNSUPPORTED" => "`better-compute kind list` shows the kinds; `kind push --expose` lets one be run",
                "CONFLICT" => "use another key or name, or leave --key out for a new one",
                "TOO_LARGE" => "send less, or raise the limit in the server's configuration",
                "UNAVAILABLE" => "try again in a moment",
                "INTERNAL" => "this is a defect of the server; its log says more",
                _ => "",
            },
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}")?,
            Self::Unreachable { url, source, .. } => write!(f, "no answer from {url}: {}", innermost(source))?,
            Self::Foreign { url, status, why } => {
                write!(f, "{url} does not answer as the API does (HTTP {status}): {why}")?;
            }
        }
        match self.remedy() {
            "" => Ok(()),
            remedy => write!(f, "\n  → {remedy}"),
        }
    }
}

/// Its source is in its text already.
impl std::error::Error for CallError {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        for problem in self.details["problems"].as_array().into_iter().flatten() {
            let place = ["pointer", "field"].iter().find_map(|key| problem[key].as_str()).unwrap_or_default();
            let rule = problem["rule"].as_str().map_or_else(|| problem.to_string(), str::to_owned);
            write!(f, "\n  {}: {rule}", if place.is_empty() { "(the whole)" } else { place })?;
        }
        if let Some(reason) = self.details["reason"].as_str() {
            write!(f, " ({reason})")?;
        }
        Ok(())
    }
}

/// The last cause names what happened; those before repeat that a request failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(code: &str, details: Value) -> CallError {
        CallError::Refused(Refusal { code: code.into(), message: "the request breaks 2 rules".into(), details })
    }

    #[test]
    fn errors_name_code_every_problem_and_what_to_do() {
        let problems = json!({ "problems": [
            { "pointer": "/payload/expectedGpus", "rule": "-1 is less than the minimum of 0" },
            { "field": "idempotencyKey", "rule": "has 1 to 200 characters" },
            { "pointer": "", "rule": "\"x\" is a required property" },
        ] });
        let foreign = CallError::Foreign { url: "http://x".into(), status: 404, why: "an HTML page".into() };
        let shown = [
            refused("INVALID_INPUT", problems),
            refused("INVALID_STATE", json!({ "reason": "batch-required", "kind": "disk.wipe" })),
            refused("UNAUTHENTICATED", Value::Null),
            refused("PERMISSION_DENIED", Value::Null),
            refused("NOT_FOUND", Value::Null),
            refused("UNSUPPORTED", Value::Null),
            refused("CONFLICT", Value::Null),
            refused("TOO_LARGE", Value::Null),
            refused("UNAVAILABLE", Value::Null),
            refused("INTERNAL", Value::Null),
            refused("FROM_THE_FUTURE", Value::Null),
            foreign,
        ];
        insta::assert_snapshot!(shown.map(|error| error.to_string()).join("\n\n"));
    }

    #[test]
    fn only_what_the_server_said_is_known_not_to_have_happened() {
        assert!(!refused("INVALID_INPUT", Value::Null).may_have_happened());
        for unclear in ["UNAVAILABLE", "INTERNAL"] {
            assert!(refused(unclear, Value::Null).may_have_happened(), "{unclear}");
        }
        let gateway = |status| CallError::Foreign { url: String::new(), status, why: String::new() };
        assert!(
            gateway(502).may_have_happened() && gateway(200).may_have_happened() && !gateway(404).may_have_happened()
        );
    }
}
