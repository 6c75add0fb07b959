//! A command as an agent reads it: what decides what to do next, and its result as far as one answer holds it.
//!
//! **Invariant:** what is left out is named with its size and with the call that gives it.

use bc_host::api::types::Command;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::answer::DATA_BYTES;
use super::failure::{Failure, Problem};
use bc_host::words::meaning;

use crate::commands::seen::Seen;

/// The longest payload that comes with a command, bytes.
const PAYLOAD_BYTES: usize = 4 * 1024;

/// Where the result is.
const RESULT: &str = "/result";

/// A command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "a document: each is a field of its own")]
pub(super) struct View {
    /// cmd_…
    pub(super) id: String,
    /// node_…
    pub(super) node_id: String,
    /// The kind of command.
    pub(super) kind: String,
    /// pending, dispatched, acked or running while it goes on; succeeded, failed, rejected, expired or cancelled when it is over.
    pub(super) state: String,
    /// Why it ended so, as a code; empty for success and while it goes on.
    pub(super) reason: String,
    /// What the reason means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meaning: Option<&'static str>,
    /// Whether nothing more follows.
    pub(super) is_over: bool,
    /// Whether it is held until people approve its batch.
    pub(super) awaiting_approval: bool,
    /// The batch that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch_id: Option<String>,
    /// Whether the kind destroys data or takes the node out of service.
    pub(super) destructive: bool,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requested_by: Option<String>,
    /// When it was queued, RFC 3339.
    pub(super) created_at: String,
    /// Until when it may wait for the node.
    pub(super) not_after: String,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) settled_at: Option<String>,
    /// Since when it is to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cancel_requested_at: Option<String>,
    /// Whether the node signed this end and this result.
    pub(super) attested: bool,
    /// What was asked. Written by whoever asked: data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload: Option<Value>,
    /// What came of it. Written by the node: data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Value>,
    /// A part of it as JSON text: the one that was asked for, or the beginning of a result that is too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<Part>,
    /// How many bytes its payload has, where it is left out; get_command with pointer /payload gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload_bytes: Option<usize>,
}

/// A part of a command's document.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    /// Where it stands, a JSON pointer.
    pub(super) pointer: String,
    /// How many bytes of its text come before this.
    pub(super) offset: usize,
    /// How many bytes its text has in all.
    pub(super) bytes: usize,
    /// JSON text. Written by the node, or by whoever asked: data.
    pub(super) text: String,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_offset: Option<usize>,
}

impl View {
    /// The command with its payload and its result, if they are not too long.
    pub(super) fn of(seen: &Seen) -> Self {
        let command = &seen.command;
        let payload_bytes = command.payload.to_string().len();
        let short = payload_bytes <= PAYLOAD_BYTES;
        let mut view = Self::head(seen);
        view.payload = short.then(|| command.payload.clone());
        view.payload_bytes = (!short).then_some(payload_bytes);
        if let Some(result) = &command.result {
            let text = result.to_string();
            if text.len() <= DATA_BYTES {
                view.result = Some(result.clone());
            } else {
                view.part = Some(slice(RESULT, &text, 0));
            }
        }
        view
    }

    /// The command with one part of it.
    pub(super) fn with_part(seen: &Seen, pointer: &str, offset: usize) -> Result<Self, Failure> {
        let document = serde_json::json!({ "payload": seen.command.payload, "result": seen.command.result });
        let Some(value) = document.pointer(pointer).filter(|_| !pointer.is_empty()) else {
            let rule = "is a JSON pointer that begins with /result or /payload and leads to something";
            return Err(Problem::new("pointer", rule).into());
        };
        let text = value.to_string();
        if offset > text.len() {
            return Err(Problem::new("offset", format!("is 0 to {}, the length of the part", text.len())).into());
        }
        Ok(Self { part: Some(slice(pointer, &text, offset)), ..Self::head(seen) })
    }

    fn head(seen: &Seen) -> Self {
        let Command { id, node_id, kind, state, reason, .. } = seen.command.clone();
        let Command { batch_id, requested_by, created_at, not_after, .. } = seen.command.clone();
        Self {
            meaning: meaning(&reason),
            is_over: seen.is_over(),
            awaiting_approval: seen.command.awaiting_approval,
            destructive: seen.command.destructive,
            attested: seen.command.attested,
            created_at: moment(created_at),
            not_after: moment(not_after),
            settled_at: seen.command.settled_at.map(moment),
            cancel_requested_at: seen.command.cancel_requested_at.map(moment),
            payload: None,
            result: None,
            part: None,
            payload_bytes: None,
            id,
            node_id,
            kind,
            state,
            reason,
            batch_id,
            requested_by,
        }
    }

    /// What the node wrote, as far as this holds it.
    pub(super) fn data(&self) -> String {
        match (&self.part, &self.result) {
            (Some(part), _) => part.text.clone(),
            (None, Some(result)) => result.to_string(),
            (None, None) => String::new(),
        }
    }

    /// Where it stands, and how to get what this leaves out.
    pub(super) fn words(&self) -> String {
        let Self { id, node_id, kind, state, reason, .. } = self;
        let state = if self.awaiting_approval { "pending, held until people approve its batch" } else { state };
        let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let mut words = format!("{id} {kind} on {node_id}: {state}{why}.");
        if let Some(meaning) = self.meaning {
            words += &format!(" Reason: {meaning}.");
        }
        if self.cancel_requested_at.is_some() && !self.is_over {
            words += " It was asked to stop and has not ended yet.";
        }
        if self.is_over && self.result.is_none() && self.part.is_none() {
            words += " It has no result.";
        }
        if let Some(Part { pointer, offset, bytes, text, next_offset }) = &self.part {
            words += &format!(" Of {pointer} these are bytes {offset} to {} of {bytes}.", offset + text.len());
            if let Some(next) = next_offset {
                words += &format!(
                    " The rest: get_command with pointer {pointer} and offset {next}; a longer pointer gives a part of it."
                );
            }
        }
        if let Some(bytes) = self.payload_bytes {
            words += &format!(" Its payload of {bytes} bytes is left out: get_command with pointer /payload.");
        }
        words
    }
}

/// So much of a text as an answer holds, from a byte on.
fn slice(pointer: &str, text: &str, offset: usize) -> Part {
    let start = text.floor_char_boundary(offset);
    let end = text.floor_char_boundary(start + DATA_BYTES);
    Part {
        pointer: pointer.to_owned(),
        offset: start,
        bytes: text.len(),
        text: text[start..end].to_owned(),
        next_offset: (end < text.len()).then_some(end),
    }
}

/// RFC 3339.
pub(super) fn moment(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).expect("times of the API are within RFC 3339")
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A command with changes.
    pub(in crate::mcp) fn seen(change: &Value) -> Seen {
        let mut document = json!({
            "id": "cmd_1", "tenantId": "tenant_1", "nodeId": "node_1", "seq": 1, "kind": "diag.nvml", "kindDigest": "ab",
            "lane": "control", "state": "succeeded", "reason": "", "payload": { "expectedGpus": 8 },
            "idempotencyKey": "api:1", "retrySafe": true, "destructive": false, "notAfter": "2024-10-04T00:09:30Z",
            "createdAt": "2024-10-03T23:59:30Z", "settledAt": "2024-10-03T23:59:40Z", "result": { "healthy": true },
        });
        for (key, value) in change.as_object().expect("an object") {
            document[key] = value.clone();
        }
        serde_json::from_value(document).expect("a command")
    }

    #[test]
    fn a_command_is_told_with_what_to_do_next() {
        let long = "x".repeat(DATA_BYTES);
        let told = [
            json!({}),
            json!({ "state": "pending", "awaitingApproval": true, "batchId": "batch_7", "settledAt": null, "result": null }),
            json!({ "state": "running", "cancelRequestedAt": "2024-10-03T23:59:35Z", "settledAt": null, "result": null }),
            json!({ "state": "rejected", "reason": "NO_SPACE", "result": null }),
            json!({ "result": { "log": long } }),
            json!({ "payload": { "script": long } }),
        ]
        .map(|change| View::of(&seen(&change)).words());
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn promise_05_a_long_result_is_read_whole_in_parts() {
        let result = json!({ "lines": (0..4000).map(|n| format!("línea {n}")).collect::<Vec<_>>() });
        let seen = seen(&json!({ "result": result }));
        let first = View::of(&seen);
        assert!(first.result.is_none());
        let (mut text, mut next) = (String::new(), Some(0));
        while let Some(offset) = next {
            let view = View::with_part(&seen, "/result", offset).expect("it is there");
            let part = view.part.expect("it was asked for");
            assert!(part.text.len() <= DATA_BYTES && part.offset == offset);
            text += &part.text;
            next = part.next_offset;
        }
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), result);
        let line = View::with_part(&seen, "/result/lines/17", 0).expect("it is there").part.expect("it was asked for");
        assert_eq!(line.text, "\"línea 17\"");
        assert!(first.part.expect("it is too long").next_offset.is_some());
    }

    #[test]
    fn a_pointer_that_leads_nowhere_is_refused_with_its_name() {
        for (pointer, offset) in [("", 0), ("/", 0), ("/reason", 0), ("/result/none", 0), ("/result", 1_000_000)] {
            let failure = View::with_part(&seen(&json!({})), pointer, offset).expect_err(pointer);
            let error = failure.into_result("3f2a").structured_content.expect("it is structured");
            assert_eq!(error["error"]["code"], "INVALID_INPUT", "{pointer}: {error}");
        }
    }
}
