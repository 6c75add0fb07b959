//! Making the values that say what went wrong.
//!
//! **Invariant:** a host error keeps its code and number on its way to people: what the driver said is never paraphrased.

use std::fmt;

use serde::Serialize;

use crate::{Error, Failure, Problem};

impl Problem {
    /// A problem at an RFC 6901 pointer into the payload; `""` is the payload itself.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

impl Failure {
    /// A failure that repeating the command will not cure. `code` is kebab-case.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retryable: false, details: None }
    }

    /// The same, but the same command may succeed later without anyone changing anything.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Adds particulars. What does not serialise is left out.
    #[must_use]
    pub fn with_details(mut self, details: &impl Serialize) -> Self {
        self.details = serde_json::to_string(details).ok();
        self
    }

    /// The payload is not what the kind takes.
    pub(crate) fn invalid_payload(problem: &Problem) -> Self {
        #[derive(Serialize)]
        struct Details<'a> {
            problems: [Place<'a>; 1],
        }
        #[derive(Serialize)]
        struct Place<'a> {
            pointer: &'a str,
            message: &'a str,
        }
        let Problem { pointer, message } = problem;
        let separator = if pointer.is_empty() { "" } else { ": " };
        Self::new("invalid-payload", format!("{pointer}{separator}{message}"))
            .with_details(&Details { problems: [Place { pointer, message }] })
    }
}

/// A host error that the kind cannot do anything about becomes its failure, code and words kept.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = describe(&error).to_string();
        Self::new(error.code, message)
    }
}

/// A host error for people, with its code and the number that the layer below gave: `the GPU is lost (gpu-is-lost, 15)`.
pub fn describe(error: &Error) -> Described<'_> {
    Described(error)
}

/// What [`describe`] gives.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a>(&'a Error);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { code, native, message } = self.0;
        match native {
            Some(native) => write!(f, "{message} ({code}, {native})"),
            None => write!(f, "{message} ({code})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_error_keeps_its_code_and_number() {
        let error = Error { code: "gpu-is-lost".into(), native: Some(15), message: "the GPU is lost".into() };
        assert_eq!(describe(&error).to_string(), "the GPU is lost (gpu-is-lost, 15)");
        let failure = Failure::from(error);
        assert_eq!((failure.code.as_str(), failure.retryable), ("gpu-is-lost", false));
        assert!(Failure::new("busy", "in use").retryable().retryable);
    }
}
