//! Documents of support bundles.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

/// `bundles.list`: newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListBundles {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// At most as many, 1–50; 20 where it is absent. The store is asked about each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Whether a bundle is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum BundleState {
    /// It is in the store.
    Stored,
    /// It is not in the store: not yet, not at all, or no longer.
    Missing,
    /// The store did not say; the server's log has the reason.
    Unknown,
}

/// A command's support bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    /// `cmd_…`
    pub command_id: String,
    /// `node_…`
    pub node_id: String,
    /// The kind's name.
    pub kind: String,
    /// The command's state.
    pub command_state: String,
    /// The object's key in the store.
    pub bundle_key: String,
    /// Whether it is there.
    pub state: BundleState,
    /// How large it is; absent unless it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The most that it may have.
    pub max_bytes: u64,
    /// SHA-256 as the node told it in its result, 64 hexadecimal digits; absent where it told none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Since when it is there; absent unless it is stored.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub stored_at: Option<OffsetDateTime>,
    /// When its command was queued.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// `bundles.files`; the query of `bundles.download`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BundleRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// `cmd_…`, the command that made it
    pub command_id: String,
}

/// The query of `bundles.read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadBundle {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// `cmd_…`, the command that made it
    pub command_id: String,
    /// The file, as `bundles.files` names it; 1–4096 bytes
    pub path: String,
}

/// What a bundle says that it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleFiles {
    /// The files.
    pub files: Vec<BundleFile>,
    /// What was left out, and why: `{"path" | "source", "reason"}`.
    pub skipped: Vec<Value>,
    /// What else went wrong.
    pub problems: Vec<Value>,
}

/// A file in a bundle, as the node described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleFile {
    /// Its name in the bundle.
    pub path: String,
    /// How large it is.
    pub bytes: u64,
    /// Of what is in the bundle, 64 hexadecimal digits; empty where the node told none.
    pub sha256: String,
    /// Whether its oldest part was left out.
    pub truncated: bool,
    /// Where it comes from.
    pub source: String,
}
