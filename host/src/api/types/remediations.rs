//! Documents of what the control plane tried by itself to mend nodes.
//!
//! **Invariant:** an attempt is shown with its command and its batch, which say the rest.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `remediations.list`: attempts, newest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRemediations {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`; absent for all that the caller may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// At most as many, 1–200; 100 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A page of attempts, and what is left alone now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remediations {
    /// The attempts.
    pub items: Vec<Remediation>,
    /// For the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Nodes that have something and are left alone for now, those since the longest time first; at most 1 000. On the first page
    /// alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<RemediationHold>,
}

/// An attempt to mend a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// `node_…`
    pub node_id: String,
    /// `RowRemapPending` or `RebootRequired`.
    pub ailment: String,
    /// Counts up from 1 for each ailment of a node.
    pub attempt: u32,
    /// UUIDs of the GPUs; empty for the node itself.
    pub gpus: Vec<String>,
    /// `cmd_…`
    pub command_id: String,
    /// `batch_…`
    pub batch_id: String,
    /// `pending`, `succeeded`, `failed`, `ambiguous` or `withdrawn`.
    pub outcome: String,
    /// Why it ended so, as a stable code; empty before, and for success.
    pub reason: String,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// When it ended.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<OffsetDateTime>,
    /// When somebody let the node go on after an ambiguous outcome.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub cleared_at: Option<OffsetDateTime>,
    /// Who that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared_by: Option<String>,
}

/// Why a node that has something is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemediationHold {
    /// `node_…`
    pub node_id: String,
    /// `RowRemapPending` or `RebootRequired`.
    pub ailment: String,
    /// `protected`, `ambiguous`, `out-of-attempts`, `breaker`, `disconnected`, `in-use`, `pool-away`, `kind-not-registered` or
    /// `kind-not-allowed`.
    pub why: String,
    /// Since when for this reason.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// `remediations.clear`: lets a node go on after ambiguous outcomes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClearRemediations {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
}

/// What `remediations.clear` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cleared {
    /// How many ambiguous attempts count as looked at now; 0 where there was none.
    pub cleared: u64,
}
