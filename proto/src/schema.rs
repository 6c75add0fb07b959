//! JSON Schema (draft 2020-12) for payloads and results.
//!
//! **Invariant:** checking costs time linear in the value: schemas come from module authors, so regular expressions run on
//! an engine without backtracking, and a `$ref` never leaves the schema.

use jsonschema::{Draft, PatternOptions, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most problems that are listed. Someone who mends a payload needs no more at once, and a long list of wrong items must
/// not become a long answer.
const MAX_PROBLEMS: usize = 1_000;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema(Validator);

/// One thing that is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// RFC 6901 JSON pointer to the offending value; empty for the whole.
    pub pointer: String,
    /// The rule that it breaks.
    pub message: String,
}

impl Problem {
    /// A problem with the value at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pointer.as_str() {
            "" => f.write_str(&self.message),
            pointer => write!(f, "{pointer}: {}", self.message),
        }
    }
}

impl Schema {
    /// Compiles a schema. The error says what is wrong with the schema itself.
    pub fn compile(schema: &Value) -> Result<Self, Problem> {
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::regex())
            .build(schema)
            .map(Self)
            .map_err(|error| Problem::new(error.instance_path().to_string(), error.to_string()))
    }

    /// Every problem of a value, in the order of their pointers; past the first thousand, a last one says how many more there
    /// are. Messages do not repeat the value: it may be long, and it is the sender's.
    pub fn problems(&self, value: &Value) -> Vec<Problem> {
        let mut problems: Vec<_> = self
            .0
            .iter_errors(value)
            .map(|error| Problem::new(error.instance_path().to_string(), error.masked().to_string()))
            .collect();
        problems.sort();
        if problems.len() > MAX_PROBLEMS {
            let more = problems.len() - MAX_PROBLEMS;
            problems.truncate(MAX_PROBLEMS);
            problems.push(Problem::new("", format!("{more} more problems are not listed")));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_problem_is_listed_with_its_pointer() {
        let schema = Schema::compile(&json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["node"],
            "properties": {
                "node": {},
                "sections": { "type": "array", "items": { "enum": ["cpu", "gpus"] } },
                "a/b": { "type": "integer" }
            }
        }))
        .expect("the schema is right");
        let problems = schema.problems(&json!({ "sections": ["cpu", "gpu"], "a/b": "x", "more": 1 }));
        insta::assert_snapshot!(problems.iter().map(|p| format!("{p}\n")).collect::<String>());
        assert_eq!(schema.problems(&json!({ "node": 1, "sections": [] })), []);
    }

    #[test]
    fn a_list_of_problems_is_bounded_and_says_so() {
        let schema = Schema::compile(&json!({ "items": { "type": "string" } })).expect("the schema is right");
        let problems = schema.problems(&json!(vec![0; MAX_PROBLEMS + 5]));
        assert_eq!(problems.len(), MAX_PROBLEMS + 1);
        assert_eq!(problems.last().map(ToString::to_string).as_deref(), Some("5 more problems are not listed"));
    }

    #[test]
    fn a_schema_that_is_wrong_or_reaches_out_is_refused() {
        let error = Schema::compile(&json!({ "type": "objekt" })).expect_err("no such type");
        assert_eq!(error.pointer, "/type");
        Schema::compile(&json!({ "$ref": "https://example.invalid/schema.json" })).expect_err("nothing is fetched");
        Schema::compile(&json!({ "pattern": "(a+)+\\1" })).expect_err("back-references need backtracking");
    }
}
