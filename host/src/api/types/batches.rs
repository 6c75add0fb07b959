//! The documents of `commandBatches`.
//!
//! **Invariant:** as in [`super`]; what is signed travels whole, so that whoever signs or checks it needs nothing else.

use bc_proto::batch::{Approval, Document};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `commandBatches.create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateBatch {
    /// `tenant_…`
    pub tenant_id: String,
    /// Why, for those who approve; 1–1000 characters.
    pub reason: String,
    /// What it allows, 1–10000 leaves.
    pub scope: Vec<BatchLeaf>,
    /// Scoped to tenant and caller; 1–200 characters.
    pub idempotency_key: String,
    /// How long its commands may be accepted, 60–604800 seconds; 86400 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u32>,
}

/// One thing that a batch allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchLeaf {
    /// What it happens to: `node_…`
    pub subject: String,
    /// The kind's name.
    pub kind: String,
    /// The only payload, by SHA-256 of its canonical JSON (RFC 8785), hexadecimal; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_sha256: Option<String>,
}

/// `commandBatches.get`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// `batch_…`
    pub batch_id: String,
}

/// `commandBatches.list`: newest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListBatches {
    /// `tenant_…`
    pub tenant_id: String,
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

/// `commandBatches.approve`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApproveBatch {
    /// `tenant_…`
    pub tenant_id: String,
    /// `batch_…`
    pub batch_id: String,
    /// What an approver signed: `{"approver","approvedAtMs","expiresAtMs","signature"}`, keys and signatures hexadecimal.
    #[schema(value_type = Object)]
    pub approval: Approval,
}

/// `commandBatches.reject`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RejectBatch {
    /// `tenant_…`
    pub tenant_id: String,
    /// `batch_…`
    pub batch_id: String,
    /// Why, 1–1000 characters.
    pub reason: String,
}

/// A batch, and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    /// `batch_…`
    pub batch_id: String,
    /// `tenant_…`
    pub tenant_id: String,
    /// `open`, `approved`, `rejected` or `expired`.
    pub state: String,
    /// Why it was asked for.
    pub reason: String,
    /// The name of the identity that asked.
    pub requested_by: String,
    /// How many leaves its scope has.
    pub size: u64,
    /// What approvers sign.
    #[schema(value_type = Object)]
    pub document: Document,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Until when its commands may be accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// When it was rejected or expired.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<OffsetDateTime>,
    /// Who rejected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_by: Option<String>,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<String>,
    /// The approvals that came.
    pub approvals: Vec<BatchApproval>,
    /// How many people's approvals are missing, at least; absent where none are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<u32>,
    /// What it takes, by the control plane's present policy; absent where nobody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Value>,
    /// What it allows; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Vec<BatchLeaf>>,
}

/// An approval that came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchApproval {
    /// Whose it is.
    pub name: String,
    /// Their key, hexadecimal.
    pub approver: String,
    /// When they signed.
    #[serde(with = "time::serde::rfc3339")]
    pub approved_at: OffsetDateTime,
    /// Until when it counts.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// Whether it counts now.
    pub counts: bool,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
}
