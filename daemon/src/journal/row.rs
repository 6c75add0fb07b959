//! A record as a row: its fact, a readable body, the result's own bytes, and a checksum.
//!
//! **Invariant:** the checksum covers every column, the row's number included. SQLite checks its own structure, not what
//! stands in it.

use std::collections::BTreeSet;

use bc_proto::id::CommandId;
use bc_proto::manifest::{Lane, Trait};
use bc_proto::rules::daemon::{Intent, Record};
use bc_proto::wire::{Deliver, Report, Update};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A row of the table `record`.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Row {
    pub(super) n: i64,
    pub(super) command_id: String,
    /// The record without its command and result, as JSON with its fact's name.
    pub(super) body: String,
    /// A result's bytes exactly as they are reported.
    pub(super) result: Option<Vec<u8>>,
    pub(super) checksum: Vec<u8>,
}

/// Why a row is no record.
#[derive(Debug, thiserror::Error)]
pub(super) enum Wrong {
    #[error("record {n}: the checksum does not fit")]
    Checksum { n: i64 },
    #[error("record {n}, column {column}: {error}")]
    Column { n: i64, column: &'static str, error: String },
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
enum Body {
    Accepted { deliver: Deliver, lane: Lane, traits: BTreeSet<Trait>, boot: String, at_ms: u64 },
    Refused { deliver: Deliver, report: Report, reason: String, at_ms: u64 },
    Started { attempt: u32, boot: String },
    Effect { attempt: u32, seq: u32, effect: Value },
    Intended { intent: Intent, at_ms: u64 },
    CancelRequested,
    Finished { report: Report, reason: String, at_ms: u64 },
    Acknowledged,
    Forgotten,
    ReplayFloor { not_after_ms: u64 },
}

impl Row {
    pub(super) fn of(n: i64, record: &Record) -> Self {
        let (body, result) = match record.clone() {
            Record::Accepted { deliver, lane, traits, boot, at_ms } => {
                (Body::Accepted { deliver: *deliver, lane, traits, boot, at_ms }, None)
            }
            Record::Refused { deliver, update: Update { report, reason, at_ms, result, .. } } => {
                (Body::Refused { deliver: *deliver, report, reason, at_ms }, Some(result))
            }
            Record::Finished { update: Update { report, reason, at_ms, result, .. } } => {
                (Body::Finished { report, reason, at_ms }, Some(result))
            }
            Record::Started { attempt, boot, .. } => (Body::Started { attempt, boot }, None),
            Record::Effect { attempt, seq, effect, .. } => (Body::Effect { attempt, seq, effect }, None),
            Record::Intended { intent, result, at_ms, .. } => (Body::Intended { intent, at_ms }, Some(result)),
            Record::CancelRequested { .. } => (Body::CancelRequested, None),
            Record::Acknowledged { .. } => (Body::Acknowledged, None),
            Record::Forgotten { .. } => (Body::Forgotten, None),
            Record::ReplayFloor { not_after_ms } => (Body::ReplayFloor { not_after_ms }, None),
        };
        let body = serde_json::to_string(&body).expect("records have text keys only");
        let mut row = Self { n, command_id: record.command().to_string(), body, result, checksum: Vec::new() };
        row.checksum = row.sum();
        row
    }

    pub(super) fn record(self) -> Result<Record, Wrong> {
        let n = self.n;
        if self.checksum != self.sum() {
            return Err(Wrong::Checksum { n });
        }
        let wrong = |column, error: String| Wrong::Column { n, column, error };
        let command: CommandId = self.command_id.parse().map_err(|_| wrong("command_id", "is no cmd_…".into()))?;
        let body = serde_json::from_str(&self.body).map_err(|error| wrong("body", error.to_string()))?;
        let result = self.result.unwrap_or_default();
        Ok(match body {
            Body::Accepted { deliver, lane, traits, boot, at_ms } => {
                Record::Accepted { deliver: Box::new(deliver), lane, traits, boot, at_ms }
            }
            Body::Refused { deliver, report, reason, at_ms } => Record::Refused {
                deliver: Box::new(deliver),
                update: Update { command, report, reason, result, at_ms, node_sig: Vec::new() },
            },
            Body::Finished { report, reason, at_ms } => {
                Record::Finished { update: Update { command, report, reason, result, at_ms, node_sig: Vec::new() } }
            }
            Body::Started { attempt, boot } => Record::Started { command, attempt, boot },
            Body::Effect { attempt, seq, effect } => Record::Effect { command, attempt, seq, effect },
            Body::Intended { intent, at_ms } => Record::Intended { command, intent, result, at_ms },
            Body::CancelRequested => Record::CancelRequested { command },
            Body::Acknowledged => Record::Acknowledged { command },
            Body::Forgotten => Record::Forgotten { command },
            Body::ReplayFloor { not_after_ms } => Record::ReplayFloor { not_after_ms },
        })
    }

    /// SHA-256 over the columns, each with its length before it.
    fn sum(&self) -> Vec<u8> {
        let mut sum = Sha256::new();
        sum.update(self.n.to_be_bytes());
        for column in [self.command_id.as_bytes(), self.body.as_bytes(), self.result.as_deref().unwrap_or_default()] {
            sum.update((column.len() as u64).to_be_bytes());
            sum.update(column);
        }
        sum.finalize().to_vec()
    }
}
