//! Documents of workflows, and of nodes that are set apart.
//!
//! **Invariant:** a step is shown with its command and its batch, which say the rest.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `workflows.create`: sets a node apart and runs steps on it, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWorkflow {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// Why, for those who approve; 1–500 characters.
    pub reason: String,
    /// In the order wipe, deploy, reboot, diagnostics; 1–16.
    pub steps: Vec<WorkflowStepRequest>,
    /// Whether the node stays set apart though all diagnostics pass; false where it is absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_quarantine: bool,
    /// Scoped to tenant and caller; 1–200 characters.
    pub idempotency_key: String,
}

/// A step to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowStepRequest {
    /// `metal.disk.wipe`, `metal.image.deploy`, `node.reboot`, or a diagnostic such as `diag.nvml`.
    pub kind: String,
    /// As the kind takes it; `{}` where it is absent.
    #[serde(default = "empty")]
    #[schema(value_type = Object)]
    pub payload: Value,
    /// How long its command may wait to be accepted, approvals included, 60–604800 seconds; where it is absent 3600, and 86400 where
    /// people have to approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

/// `workflows.get`, `workflows.cancel` and `workflows.retry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// `wf_…`
    pub workflow_id: String,
}

/// `workflows.list`: newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListWorkflows {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`; absent for all that the caller may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Only this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// At most as many, 1–200; 100 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A workflow, and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    /// `wf_…`
    pub id: String,
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// `running`, `succeeded`, `failed`, `ambiguous` or `cancelled`.
    pub state: String,
    /// The step that ended it, and why; empty before, and for success.
    pub why: String,
    /// Why it was begun.
    pub reason: String,
    /// Who began it.
    pub requested_by: String,
    /// Whether the node stays set apart though all diagnostics pass.
    pub keep_quarantine: bool,
    /// Counts up from 1 each time that somebody has it go on.
    pub attempt: u32,
    /// Its steps, in order.
    pub steps: Vec<WorkflowStep>,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it ended.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<OffsetDateTime>,
    /// Since when somebody wants it called off.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<OffsetDateTime>,
    /// Who that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested_by: Option<String>,
}

/// A step, and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStep {
    /// `wipe`, `deploy`, `reboot`, or the diagnostic's kind.
    pub step: String,
    /// The kind.
    pub kind: String,
    /// SHA-256 of its component, hexadecimal: the one that validated the payload runs.
    pub kind_digest: String,
    /// What it is given.
    #[schema(value_type = Object)]
    pub payload: Value,
    /// Whether it destroys data or takes the node out of service.
    pub destructive: bool,
    /// `waiting`, `open`, `succeeded`, `failed`, `ambiguous` or `cancelled`.
    pub state: String,
    /// Why it stands so, as a stable code; empty where there is nothing to say.
    pub reason: String,
    /// How often it was begun since somebody last had it begin.
    pub tries: u32,
    /// How long its command may wait, seconds.
    pub deadline_seconds: u32,
    /// Its newest command, `cmd_…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<String>,
    /// Where that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_state: Option<String>,
    /// Its batch, `batch_…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// What an open step waits for: `approvals`, `node` or `result`. Of a step that is to begin: `other-commands`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// How many people's approvals are missing, at least. `workflows.list` leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_approvals: Option<u32>,
    /// When its newest command was queued.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub began_at: Option<OffsetDateTime>,
    /// When that one's end was taken note of.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<OffsetDateTime>,
}

/// `nodes.quarantine`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuarantineNode {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// Why, 1–500 characters.
    pub reason: String,
}

/// That a node is set apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quarantine {
    /// Why.
    pub reason: String,
    /// Who did it.
    pub by: String,
    /// The workflow that did it, `wf_…`; absent where a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}
