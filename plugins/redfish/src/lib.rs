//! Redfish for kinds, with the quirks of real BMCs. Decisions are functions over what a BMC answered; the way to it is a trait.
//!
//! **Invariant:** what a BMC says is never taken for more than it is: a request that was accepted is not one that was carried out,
//! and what was not said is unknown.

pub mod boot;
mod client;
pub mod power;
mod remote;
pub mod sensors;
mod system;

#[cfg(test)]
mod scripted;

use std::fmt;

use sdk::Failure;
use serde_json::Value;

pub use client::Client;
pub use remote::{Remote, SecretRefs, Target};
pub use system::System;

/// A request to a BMC.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// `GET`, `PATCH` or `POST`
    pub method: &'static str,
    /// From the root: `/redfish/v1/Systems/1`
    pub path: String,
    /// The version of the resource that is to be changed.
    pub if_match: Option<String>,
    /// JSON; null is none.
    pub body: Value,
}

/// What it answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// HTTP's status.
    pub status: u16,
    /// The resource's version.
    pub etag: Option<String>,
    /// Where a task can be watched.
    pub location: Option<String>,
    /// JSON; null where there is none or it is no JSON.
    pub body: Value,
    /// Whether this is a plan and the request was not sent.
    pub planned: bool,
}

/// There was no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer {
    /// The host's code.
    pub code: String,
    /// Its words.
    pub message: String,
}

impl NoAnswer {
    /// Whether the BMC can have got the request all the same.
    pub fn may_have_arrived(&self) -> bool {
        matches!(self.code.as_str(), "timeout" | "cut-off" | "no-answer" | "response-too-large")
    }
}

/// The way to one BMC, and the time.
pub trait Bmc {
    /// Asks it once.
    fn ask(&mut self, request: &Request) -> Result<Answer, NoAnswer>;
    /// Waits.
    fn pause(&mut self, duration_ms: u32);
    /// How long the command still has, milliseconds.
    fn left_ms(&mut self) -> u64;
    /// Tells people what goes on.
    fn tell(&mut self, what: &str);
}

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The code of the failure that it becomes.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// Whether the same command may succeed later.
    pub retryable: bool,
}

impl Problem {
    /// One that asking again does not cure.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false }
    }

    /// One that may have passed when it is asked again.
    pub fn passing(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: true }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let failure = Self::new(problem.code, problem.message);
        if problem.retryable { failure.retryable() } else { failure }
    }
}

/// Text at a pointer.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// A list of text at a pointer, such as `@Redfish.AllowableValues`.
pub(crate) fn texts(value: &Value, pointer: &str) -> Option<Vec<String>> {
    let list = value.pointer(pointer)?.as_array()?;
    Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
