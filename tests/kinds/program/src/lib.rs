//! `test.program`: runs a shell script and says how it ended. No shipped kind runs a shell; this one stands for programs that fork.
//!
//! **Invariant:** the result is what the host says of the program, and nothing else.

use sdk::process::{self, Exit, Request};
use sdk::{Context, Failure, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

struct Program;

/// What is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    script: String,
}

impl Kind for Program {
    type Payload = Payload;
    type Output = Value;

    fn run(_: &Context, payload: Payload) -> Result<Value, Failure> {
        let request = Request {
            program: "sh".into(),
            argv: vec!["-c".into(), payload.script],
            stdin: None,
            timeout_ms: 0,
            capture_bytes: 1024,
        };
        let outcome = process::run(&request)?;
        let exit = match outcome.exit {
            Exit::Code(code) => json!({ "code": code }),
            Exit::Signal(signal) => json!({ "signal": signal }),
            Exit::TimedOut => json!("timed-out"),
        };
        Ok(json!({ "exit": exit, "stdout": outcome.stdout.head, "bytes": outcome.stdout.total_bytes }))
    }
}

sdk::export!(Program);
