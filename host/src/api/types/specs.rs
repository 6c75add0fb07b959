//! Documents of desired state.
//!
//! **Invariant:** holds are shown and never taken: they are made of reservations.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `nodes.setSpec`: what a node should be, all but its holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetSpec {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// The generation that this one follows, 0 for the first: another one is a `CONFLICT`. Absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_generation: Option<u64>,
    /// Virtual machines, all of them.
    #[serde(default)]
    pub instances: Vec<Instance>,
    /// Settings of the host.
    #[serde(default)]
    pub host: HostSettings,
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Instance {
    /// Its name on the node, 1–64 characters.
    pub id: String,
    /// UUIDs of the GPUs that are passed through to it.
    #[serde(default)]
    pub pass_through: Vec<String>,
}

/// Settings of the host; what is absent stays as it is. Each needs a boot to take effect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostSettings {
    /// Huge pages of 1 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages_1g: Option<u32>,
    /// Processors that the scheduler leaves alone: `2-5,8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated_cpus: Option<String>,
    /// Whether the IOMMU is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iommu: Option<bool>,
}

/// The newest generation of a node's spec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// `node_…`
    pub node_id: String,
    /// The generation; 0 before the first.
    pub generation: u64,
    /// The generation that the node has applied; 0 for none.
    pub applied_generation: u64,
    /// The document as it is stored: `generation`, `holds`, `instances`, `host`. Absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Value>,
    /// Who signed it; absent where nothing is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<SignedBy>,
    /// When it was made.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<OffsetDateTime>,
    /// By whom: an identity, or a module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
}

/// A worker key that signed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedBy {
    /// The worker key, 64 hexadecimal digits.
    pub key: String,
    /// The root that certified it.
    pub root: String,
    /// When it signed, milliseconds since the Unix epoch.
    pub issued_at_ms: u64,
}

/// Something that is the matter with a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `RowRemapPending`, `RebootRequired`, `SpecRejected`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// What has it: a GPU's UUID; empty for the node.
    pub subject: String,
    /// Why, in words.
    pub message: String,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}
