//! A command as this program shows it.
//!
//! **Invariant:** what is shown is what the API said; the words for it are those of the web pages.

use bc_host::api::types::Command;
use bc_host::words::meaning;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::exit::{self, Ending};
use crate::format::{Shown, distance, moment};
use crate::output;

/// The API's document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The command.
    #[serde(flatten)]
    pub command: Command,
}

impl Seen {
    /// Whether nothing follows; a state that is not known counts as such, since nobody can say what it waits for.
    pub fn is_over(&self) -> bool {
        exit::state(&self.command.state).is_none_or(bc_proto::rules::state::State::is_terminal)
    }

    /// What a wait that ends now knows.
    pub fn ending(&self) -> Ending {
        match exit::state(&self.command.state) {
            Some(state) if !state.is_terminal() && self.command.awaiting_approval => Ending::AwaitsApproval,
            Some(state) => Ending::Stands(state),
            None => Ending::Unknown,
        }
    }

    /// One line: id, kind, state, and why.
    pub fn line(&self) -> String {
        let Command { id, kind, state, reason, .. } = &self.command;
        let state = if self.command.awaiting_approval { "pending, awaits approval" } else { state.as_str() };
        let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        format!("{id} {kind}: {state}{why}")
    }

    /// What came of it, for people: a success's result as a report, anything else in words with what is known.
    pub fn outcome(&self) -> String {
        let Command { state, reason, result, .. } = &self.command;
        if state == "succeeded" {
            return result.as_ref().map_or_else(|| "succeeded; it gave no result".to_owned(), output::result);
        }
        let mut text = self.line();
        if let Some(meaning) = meaning(reason) {
            text += &format!("\n  {meaning}");
        }
        if let Some(result) = result {
            if let Some(message) = result["message"].as_str() {
                let code = result["code"].as_str().map(|code| format!("{code}: ")).unwrap_or_default();
                text += &format!("\n  {code}{message}");
            }
            let problems = result["problems"].as_array().into_iter().flatten();
            for problem in problems {
                let pointer = problem["pointer"].as_str().unwrap_or_default();
                text += &format!("\n  {pointer}: {}", problem["message"].as_str().unwrap_or_default());
            }
            let effects = result["effects"].as_array().map_or(0, Vec::len);
            if effects > 0 {
                text += &format!("\n  it had {effects} effect(s) on the node; `-o json` lists them");
            }
        }
        text
    }
}

impl Shown for Seen {
    const HEADER: &'static [&'static str] = &["ID", "KIND", "STATE", "REASON", "AGE"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        let Command { id, kind, state, reason, created_at, .. } = &self.command;
        [id, kind, state, reason].map(Clone::clone).into_iter().chain([distance(*created_at, now)]).collect()
    }

    fn name(&self) -> String {
        self.command.id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let command = &self.command;
        let yes = |it: bool, word: &str| if it { word.to_owned() } else { String::new() };
        let retry = if command.retry_safe { "retry-safe" } else { "not retry-safe" };
        let traits = [retry, if command.destructive { "destructive" } else { "" }];
        let traits: Vec<_> = traits.into_iter().filter(|word| !word.is_empty()).collect();
        vec![
            ("id", command.id.clone()),
            ("kind", format!("{} sha256:{}", command.kind, command.kind_digest)),
            ("node", command.node_id.clone()),
            ("seq", command.seq.to_string()),
            ("lane", command.lane.clone()),
            ("state", command.state.clone()),
            ("reason", command.reason.clone()),
            ("meaning", meaning(&command.reason).unwrap_or_default().to_owned()),
            ("approval", yes(command.awaiting_approval, "awaited")),
            ("batch", command.batch_id.clone().unwrap_or_default()),
            ("traits", traits.join(", ")),
            ("key", command.idempotency_key.clone()),
            ("asked by", command.requested_by.clone().unwrap_or_default()),
            ("payload", command.payload.to_string()),
            ("queued", moment(Some(command.created_at), now)),
            ("not before", moment(command.not_before, now)),
            ("not after", moment(Some(command.not_after), now)),
            ("sent", moment(command.dispatched_at, now)),
            ("cancel asked", moment(command.cancel_requested_at, now)),
            ("settled", moment(command.settled_at, now)),
            (
                "signed by",
                command.attested_by.as_ref().map(|it| format!("the node, certificate {it}")).unwrap_or_default(),
            ),
            ("result", command.result.as_ref().map(ToString::to_string).unwrap_or_default()),
        ]
    }
}
