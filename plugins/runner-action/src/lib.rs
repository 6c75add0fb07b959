//! `runner.action`: the program that a runner's file allows for an action.
//!
//! The kind names the action; which program that is, and with which arguments, the runner knows, who has checked the payload against
//! its file. Nothing that the kind says could change either.
//!
//! **Invariant:** the result is what the host says of the program, and nothing else.

use sdk::process::{self, Exit, Outcome, Output, Request};
use sdk::{Context, Failure, Kind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the runner's program is called in the grants.
const PROGRAM: &str = "runner-action";

/// How much of each stream is kept, bytes: what the database keeps of output.
const CAPTURE_BYTES: u32 = 64 * 1024;

struct Action;

/// What is queued.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    action: String,
    #[expect(dead_code, reason = "it is the runner's; here only its shape is checked")]
    payload: Map<String, Value>,
}

/// How it went.
#[derive(Debug, PartialEq, Serialize)]
struct Ended {
    exit: Way,
    stdout: Kept,
    stderr: Kept,
}

/// How the program ended.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    Code(i32),
    Signal(i32),
    TimedOut,
}

/// What is kept of a stream.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    total_bytes: u64,
    sha256: String,
    truncated: bool,
    head: String,
    tail: String,
}

impl Kind for Action {
    type Payload = Payload;
    type Output = Ended;

    fn run(_: &Context, payload: Payload) -> Result<Ended, Failure> {
        let outcome = process::run(&Request {
            program: PROGRAM.into(),
            argv: vec![payload.action],
            stdin: None,
            timeout_ms: 0,
            capture_bytes: CAPTURE_BYTES,
        })?;
        Ok(ended(outcome))
    }
}

sdk::export!(Action);

fn ended(outcome: Outcome) -> Ended {
    let exit = match outcome.exit {
        Exit::Code(code) => Way::Code(code),
        Exit::Signal(signal) => Way::Signal(signal),
        Exit::TimedOut => Way::TimedOut,
    };
    Ended { exit, stdout: kept(outcome.stdout), stderr: kept(outcome.stderr) }
}

fn kept(output: Output) -> Kept {
    let Output { total_bytes, sha256, truncated, head, tail } = output;
    Kept { total_bytes, sha256, truncated, head, tail }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(head: &str) -> Output {
        Output { total_bytes: 9, sha256: "aa".into(), truncated: true, head: head.into(), tail: "z".into() }
    }

    #[test]
    fn each_way_to_end_is_told_as_the_host_tells_it() {
        for (exit, told) in [
            (Exit::Code(3), json!({ "code": 3 })),
            (Exit::Signal(9), json!({ "signal": 9 })),
            (Exit::TimedOut, json!("timed-out")),
        ] {
            let ended = serde_json::to_value(ended(Outcome { exit, stdout: output("a"), stderr: output("b") }));
            let stream =
                |head| json!({ "totalBytes": 9, "sha256": "aa", "truncated": true, "head": head, "tail": "z" });
            assert_eq!(ended.expect("JSON"), json!({ "exit": told, "stdout": stream("a"), "stderr": stream("b") }));
        }
    }

    #[test]
    fn a_payload_is_an_action_and_an_object() {
        for wrong in [
            r#"{"action":"a"}"#,
            r#"{"action":"a","payload":[]}"#,
            r#"{"action":1,"payload":{}}"#,
            r#"{"action":"a","payload":{},"run":{}}"#,
        ] {
            assert!(sdk::payload::parse::<Payload>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            sdk::payload::parse::<Payload>(r#"{"action":"a","payload":{"b":1}}"#).map(|it| it.action),
            Ok("a".into())
        );
    }
}
