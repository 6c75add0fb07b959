//! The way to a BMC through the node: `sdk::http`, the clock and progress.
//!
//! **Invariant:** every request goes to the origin that the payload names, with the credentials that it names.

use sdk::{Context, Error, clock, http, progress};
use serde::Deserialize;
use serde_json::Value;

use crate::{Answer, Bmc, NoAnswer, Request};

/// How long a BMC may take for one answer, milliseconds.
const TIMEOUT_MS: u32 = 30_000;

/// The secrets of a command, as the kinds' payloads name them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRefs {
    /// `user:password`, or a bearer token.
    #[serde(default, deserialize_with = "sdk::payload::present")]
    pub credentials: Option<String>,
}

/// A BMC's address and credentials.
#[derive(Debug, Clone)]
pub struct Target {
    /// `https://bmc-1.example`
    pub bmc: String,
    /// The secret that the host adds.
    pub credentials: Option<String>,
}

impl Target {
    /// What is wrong with an address.
    pub fn problems(bmc: &str) -> Vec<sdk::Problem> {
        let rest = bmc.strip_prefix("https://").or_else(|| bmc.strip_prefix("http://"));
        let is_origin = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['/', '?', '#', '@', ' ']));
        if is_origin {
            Vec::new()
        } else {
            vec![sdk::Problem::new("/bmc", "must be https:// or http:// and a host, without path or user")]
        }
    }
}

/// The BMC itself.
pub struct Remote {
    target: Target,
    deadline_ms: u64,
    begun_ms: u64,
}

impl Remote {
    /// Asks this one until the command's deadline.
    pub fn new(ctx: &Context, target: Target) -> Self {
        Self { target, deadline_ms: ctx.deadline_ms, begun_ms: clock::now_ms() }
    }
}

impl Bmc for Remote {
    fn ask(&mut self, request: &Request) -> Result<Answer, NoAnswer> {
        let mut asked = http::Request::new(request.method, format!("{}{}", self.target.bmc, request.path));
        asked.headers.push(("accept".into(), "application/json".into()));
        asked.headers.push(("odata-version".into(), "4.0".into()));
        if let Some(etag) = &request.if_match {
            asked.headers.push(("if-match".into(), etag.clone()));
        }
        if !request.body.is_null() {
            asked.headers.push(("content-type".into(), "application/json".into()));
            asked.body = request.body.to_string().into_bytes();
        }
        asked.credentials.clone_from(&self.target.credentials);
        asked.timeout_ms = Some(TIMEOUT_MS);
        let answer = http::send(&asked).map_err(|Error { code, message, .. }| NoAnswer { code, message })?;
        Ok(Answer {
            status: answer.status,
            etag: answer.header("etag").map(str::to_owned),
            location: answer.header("location").map(str::to_owned),
            body: serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
            planned: answer.planned,
        })
    }

    fn pause(&mut self, duration_ms: u32) {
        clock::sleep(duration_ms);
    }

    fn left_ms(&mut self) -> u64 {
        self.deadline_ms.saturating_sub(clock::now_ms())
    }

    fn tell(&mut self, what: &str) {
        let passed_s = clock::now_ms().saturating_sub(self.begun_ms) / 1000;
        let total_s = self.deadline_ms.saturating_sub(self.begun_ms) / 1000;
        progress::report(passed_s, Some(total_s), "s", what);
    }
}
