//! The trait that authors implement, and how it becomes the export.
//!
//! **Invariant:** a payload that does not parse is the caller's mistake and is answered with its place, never a panic.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Command, Context, Failure, Problem, lines, payload};

/// One command kind.
pub trait Kind {
    /// The command's payload, a JSON object. It should refuse what the manifest's schema refuses (`#[serde(deny_unknown_fields)]`).
    type Payload: DeserializeOwned;

    /// What a successful run answers; its JSON must fit the manifest's result schema.
    type Output: Serialize;

    /// Everything that is wrong with a payload beyond its shape; nothing by default. Pure: it runs in the control plane
    /// too, where calling any capability but the log ends it.
    fn validate(payload: &Self::Payload) -> Vec<Problem> {
        let _ = payload;
        Vec::new()
    }

    /// Carries out the command.
    fn run(ctx: &Context, payload: Self::Payload) -> Result<Self::Output, Failure>;
}

impl<K: Kind + 'static> Command for K {
    fn validate(payload: String) -> Result<(), Vec<Problem>> {
        lines::install();
        let payload = payload::parse(&payload).map_err(|problem| vec![problem])?;
        let problems = <K as Kind>::validate(&payload);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn run(ctx: Context, payload: String) -> Result<String, Failure> {
        lines::install();
        let payload = payload::parse(&payload).map_err(|problem| Failure::invalid_payload(&problem))?;
        let output = <K as Kind>::run(&ctx, payload)?;
        serde_json::to_string(&output).map_err(|error| Failure::new("invalid-result", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Halve;

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Number {
        value: u32,
    }

    impl Kind for Halve {
        type Payload = Number;
        type Output = u32;

        fn validate(payload: &Number) -> Vec<Problem> {
            if payload.value.is_multiple_of(2) { vec![] } else { vec![Problem::new("/value", "is odd")] }
        }

        fn run(ctx: &Context, payload: Number) -> Result<u32, Failure> {
            if ctx.attempt > 1 { Err(Failure::new("tired", "once is enough")) } else { Ok(payload.value / 2) }
        }
    }

    fn run(attempt: u32, payload: &str) -> Result<String, Failure> {
        let ctx = Context { command_id: "cmd_1".into(), node_id: "node_1".into(), attempt, deadline_ms: 0 };
        <Halve as Command>::run(ctx, payload.into())
    }

    #[test]
    fn a_kind_answers_json() {
        assert_eq!(run(1, r#"{"value":8}"#), Ok("4".into()));
        assert_eq!(run(2, r#"{"value":8}"#).map_err(|failure| failure.code), Err("tired".into()));
    }

    #[test]
    fn a_payload_that_does_not_parse_is_answered_with_its_place() {
        let failure = run(1, r#"{"value":-8}"#).expect_err("negative");
        assert_eq!(failure.code, "invalid-payload");
        assert!(!failure.retryable);
        assert!(failure.message.starts_with("/value: "), "{}", failure.message);
        let details = failure.details.expect("details");
        assert!(details.starts_with(r#"{"problems":[{"pointer":"/value","#), "{details}");

        let problems = <Halve as Command>::validate(r#"{"value":-8}"#.into()).expect_err("negative");
        assert_eq!(problems[0].pointer, "/value");
    }

    #[test]
    fn what_the_author_refuses_is_listed() {
        assert_eq!(<Halve as Command>::validate(r#"{"value":8}"#.into()), Ok(()));
        let problems = <Halve as Command>::validate(r#"{"value":7}"#.into());
        assert_eq!(problems, Err(vec![Problem::new("/value", "is odd")]));
    }
}
