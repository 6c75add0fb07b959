//! Why a tool did not do it, as an agent reads it: the API's code and details, and what to do.
//!
//! **Invariant:** the code and the details are the API's own; what to do never leads around a refusal.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{fence, plain};
use crate::client::{CallError, Refusal};

/// The longest details that are passed on, bytes.
const DETAILS_BYTES: usize = 8 * 1024;

/// Problems that are named in the text.
const PROBLEMS: usize = 20;

/// A failure. Boxed, since it travels as an error through everything that mostly succeeds.
#[derive(Debug)]
pub(super) struct Failure(Box<Particulars>);

#[derive(Debug)]
struct Particulars {
    why: Why,
    /// The key with which the same call is the same command or batch.
    key: Option<String>,
    /// What was to run, where: the scope of the batch that it needs.
    scope: Option<(String, String)>,
    /// What the kind takes, a JSON Schema.
    payload_schema: Option<Value>,
}

#[derive(Debug)]
enum Why {
    Call(CallError),
    Input(Problem),
}

/// A field and the rule that it breaks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Problem {
    field: String,
    rule: String,
}

impl Problem {
    pub(super) fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::of(Why::Call(error))
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::of(Why::Input(problem))
    }
}

impl Failure {
    fn of(why: Why) -> Self {
        Self(Box::new(Particulars { why, key: None, scope: None, payload_schema: None }))
    }

    /// That the call had this key.
    pub(super) fn with_key(mut self, key: &str) -> Self {
        self.0.key = Some(key.to_owned());
        self
    }

    /// That this kind was to run on this node.
    pub(super) fn with_scope(mut self, node: &str, kind: &str) -> Self {
        self.0.scope = Some((node.to_owned(), kind.to_owned()));
        self
    }

    /// What the kind takes, for a payload that it does not.
    pub(super) fn with_payload_schema(mut self, schema: Value) -> Self {
        self.0.payload_schema = Some(schema);
        self
    }

    /// Whether it is the payload that breaks a rule: the API points into it then.
    pub(super) fn is_of_payload(&self) -> bool {
        let Why::Call(CallError::Refused(refusal)) = &self.0.why else { return false };
        let problems = refusal.details["problems"].as_array();
        refusal.code == "INVALID_INPUT" && problems.is_some_and(|them| them.iter().any(|it| it["pointer"].is_string()))
    }

    /// Code, message and details.
    fn refusal(&self) -> Refusal {
        match &self.0.why {
            Why::Call(CallError::Refused(refusal)) => refusal.clone(),
            Why::Call(error) => {
                // What stands in front of a server that is away answers for it.
                let code = if error.is_transient() { "UNREACHABLE" } else { "NOT_THE_API" };
                let details = json!({ "mayHaveHappened": error.may_have_happened() });
                // The remedies in its text are for people at a shell.
                let message = error.to_string().lines().next().unwrap_or_default().to_owned();
                Refusal { code: code.into(), message, details }
            }
            Why::Input(problem) => Refusal {
                code: "INVALID_INPUT".into(),
                message: "the tool's input breaks a rule".into(),
                details: json!({ "problems": [problem] }),
            },
        }
    }

    /// What to do about it.
    fn remedy(&self) -> String {
        let refusal = self.refusal();
        let may_have_happened = matches!(&self.0.why, Why::Call(error) if error.may_have_happened());
        if may_have_happened && let Some(key) = &self.0.key {
            return format!(
                "Whether it was done is not known. Call again with the same input and idempotencyKey {key}: that is the same \
                 command or batch, and nothing happens twice."
            );
        }
        let remedy = match (refusal.code.as_str(), refusal.details["reason"].as_str().unwrap_or_default()) {
            ("INVALID_INPUT", _) => "Correct what is named and call again.",
            ("UNSUPPORTED", _) => "This kind may not be run so. list_nodes tells the kinds that a node has loaded.",
            ("UNAUTHENTICATED", _) => {
                "The token is missing, expired or revoked. A person has to give this MCP server a good one."
            }
            ("PERMISSION_DENIED", _) => {
                "The token does not allow it. Tell the person what is missing; they may grant it. Do not look for another way."
            }
            ("NOT_FOUND", _) => {
                "Check the ids: list_nodes and list_commands tell them. What the token may not see does not exist for it."
            }
            ("CONFLICT", _) => {
                "The key means something else already. Use another idempotencyKey, or leave it out for a new one."
            }
            ("INVALID_STATE", "batch-required") => return self.batch_required(),
            ("INVALID_STATE", "batch-rejected") => {
                "People rejected this batch. Ask the person before you propose the same again."
            }
            ("INVALID_STATE", "batch-expired") => {
                "The batch's time is over. Propose another with propose_command_batch."
            }
            ("INVALID_STATE", "restricted-identity" | "wrong-role") => {
                "This node does not run this kind. Choose another node or kind."
            }
            ("INVALID_STATE", "gpu-reserved") => {
                "The GPUs are reserved for somebody's work. Ask the person before anything else."
            }
            ("INVALID_STATE", _) => {
                "It cannot be done as things are now. explain_command and list_nodes show how they are."
            }
            ("TOO_LARGE", _) => "Send less.",
            ("UNAVAILABLE" | "UNREACHABLE", _) => "The control plane is away for now. Try again in a moment.",
            ("NOT_THE_API", _) => {
                "This MCP server is pointed at something that is not the API. A person has to correct its URL."
            }
            ("INTERNAL", _) => "This is a defect of the control plane; its log says more. A person has to look.",
            _ => "",
        };
        remedy.to_owned()
    }

    fn batch_required(&self) -> String {
        let scope =
            self.0.scope.as_ref().map(|(subject, kind)| json!([{ "subject": subject, "kind": kind }]).to_string());
        format!(
            "The kind is destructive: people have to approve it first. Call propose_command_batch with scope {} and a reason, then \
             exec_command again with the batchId that it answers. The command is held until people approve; no tool here approves.",
            scope.as_deref().map_or_else(|| "[{\"subject\":<node>,\"kind\":<kind>}]".to_owned(), plain)
        )
    }

    /// As the protocol carries it. `mark` is random.
    pub(super) fn into_result(self, mark: &str) -> CallToolResult {
        let Refusal { code, message, details } = self.refusal();
        let remedy = self.remedy();
        let mut text = format!("{}: {}", plain(&code), plain(&message));
        for problem in details["problems"].as_array().into_iter().flatten().take(PROBLEMS) {
            let place = ["pointer", "field"].iter().find_map(|key| problem[key].as_str()).unwrap_or_default();
            let rule = ["rule", "message"].iter().find_map(|key| problem[key].as_str()).unwrap_or_default();
            text +=
                &format!("\n  {}: {}", if place.is_empty() { "(the whole)".into() } else { plain(place) }, plain(rule));
        }
        if !remedy.is_empty() {
            text += &format!("\nWhat to do: {remedy}");
        }
        if let Some(schema) = &self.0.payload_schema {
            let schema = fence(
                "the kind's author, and says what its payload may be as a JSON Schema",
                &schema.to_string(),
                mark,
            );
            text += &format!("\n{schema}");
        }
        let mut error = json!({ "code": code, "message": message, "details": bounded(details), "remedy": remedy });
        if let Some(schema) = self.0.payload_schema {
            error["payloadSchema"] = bounded(schema);
        }
        if let Some(key) = self.0.key {
            error["idempotencyKey"] = json!(key);
        }
        let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
        result.structured_content = Some(json!({ "error": error }));
        result
    }
}

/// A document of others, if it is not too long.
fn bounded(document: Value) -> Value {
    let bytes = document.to_string().len();
    if bytes > DETAILS_BYTES { json!({ "leftOut": true, "bytes": bytes }) } else { document }
}

/// The JSON Schema of a failure, which every tool's output may be: clients hold the structured content of errors against it too.
pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "description": "Why it was not done.",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message", "remedy"],
            "properties": {
                "code": { "type": "string", "description": "The API's stable code, INVALID_STATE for example; UNREACHABLE and NOT_THE_API where there was none." },
                "message": { "type": "string" },
                "details": { "description": "Particulars, by code." },
                "payloadSchema": { "description": "What the kind takes, a JSON Schema, where the payload is wrong. Written by its author: data." },
                "remedy": { "type": "string", "description": "What to do." },
                "idempotencyKey": { "type": "string", "description": "The same call with this key is the same command or batch." },
            },
        } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, details: Value) -> Failure {
        CallError::Refused(Refusal { code: code.into(), message: "it is refused".into(), details }).into()
    }

    fn text(failure: Failure) -> String {
        let result = failure.into_result("3f2a");
        assert_eq!(result.is_error, Some(true));
        let content = serde_json::to_value(&result.content[0]).expect("content is JSON");
        content["text"].as_str().expect("it is text").to_owned()
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let reason = |reason: &str| refused("INVALID_STATE", json!({ "reason": reason }));
        let problems =
            json!({ "problems": [{ "pointer": "/payload/expectedGpus", "rule": "-1 is below\nthe minimum" }] });
        let foreign = |status| CallError::Foreign { url: "http://x".into(), status, why: "an HTML page".into() };
        let said = [
            Failure::from(Problem::new("waitSeconds", "is 0 to 300, not 301")),
            refused("INVALID_INPUT", problems),
            refused("INVALID_INPUT", Value::Null).with_payload_schema(json!({ "type": "object" })),
            refused("UNSUPPORTED", Value::Null),
            refused("UNAUTHENTICATED", Value::Null),
            refused("PERMISSION_DENIED", Value::Null),
            refused("NOT_FOUND", Value::Null),
            refused("CONFLICT", Value::Null).with_key("mcp-1"),
            reason("batch-required").with_scope("node_1", "node.reboot"),
            reason("batch-rejected"),
            reason("batch-expired"),
            reason("wrong-role"),
            reason("gpu-reserved"),
            reason("from-the-future"),
            refused("TOO_LARGE", Value::Null),
            refused("UNAVAILABLE", Value::Null),
            refused("UNAVAILABLE", Value::Null).with_key("mcp-1"),
            refused("INTERNAL", Value::Null),
            refused("FROM_THE_FUTURE", Value::Null),
            foreign(404).into(),
            foreign(502).into(),
        ];
        insta::assert_snapshot!(said.map(text).join("\n\n"));
    }

    #[test]
    fn a_wrong_payload_is_told_from_other_wrong_input() {
        let of = |problem: Value| refused("INVALID_INPUT", json!({ "problems": [problem] })).is_of_payload();
        assert!(of(json!({ "pointer": "", "rule": "is no object" })));
        assert!(!of(json!({ "field": "idempotencyKey", "rule": "has 1 to 200 characters" })));
        assert!(!Failure::from(Problem::new("payload", "is an object")).is_of_payload());
    }

    #[test]
    fn details_are_the_apis_own_and_bounded() {
        let result = refused("INVALID_STATE", json!({ "reason": "batch-required", "kind": "disk.wipe" })).with_key("k");
        let error = result.into_result("3f2a").structured_content.expect("it is structured");
        assert_eq!(error["error"]["details"], json!({ "reason": "batch-required", "kind": "disk.wipe" }));
        assert_eq!(error["error"]["idempotencyKey"], "k");
        let long = refused("CONFLICT", json!({ "much": "x".repeat(100_000) })).into_result("3f2a").structured_content;
        let long = long.expect("it is structured");
        assert!(long.to_string().len() < 1000 && long["error"]["details"]["leftOut"] == true, "{long}");
    }
}
