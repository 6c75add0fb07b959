//! Documents of `audit.*`.
//!
//! **Invariant:** as in the parent: a field that is not known is refused, with its name.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// `audit.head`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowLogHead {
    /// `tenant_…`
    pub tenant_id: String,
}

/// The head of the transparency log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogHead {
    /// How many entries the log has.
    pub size: u64,
    /// The root of their Merkle tree (RFC 9162), 64 hexadecimal digits.
    pub root: String,
    /// `{"worker","issuedAtMs","signature"}`; absent where the control plane signs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Value>,
}

/// `audit.entries`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListLogEntries {
    /// `tenant_…`
    pub tenant_id: String,
    /// The place to begin at; 0 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// 1–500; 100 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// An entry of the transparency log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    /// Its place.
    pub index: u64,
    /// SHA-256 of a zero byte and the body, 64 hexadecimal digits.
    pub leaf_hash: String,
    /// The entry: canonical JSON, to the byte. Absent for those of other tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// What stands in a stretch of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEntries {
    /// The entries, in the log's order, without gaps.
    pub items: Vec<LogEntry>,
    /// Where to go on; absent at the log's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// `audit.inclusion`: of a command's entries, or of the entry at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProveInclusion {
    /// `tenant_…`
    pub tenant_id: String,
    /// `cmd_…`; either this or `index`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<String>,
    /// The place; either this or `commandId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The tree of the first so many entries; that of the newest head where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// Proofs that entries stand in the tree of the first `size`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inclusion {
    /// How many entries the tree has.
    pub size: u64,
    /// Its root, 64 hexadecimal digits.
    pub root: String,
    /// The proofs.
    pub items: Vec<InclusionOf>,
}

/// The proof of one entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InclusionOf {
    /// Its place.
    pub index: u64,
    /// The hashes beside its way to the root, from the bottom, hexadecimal.
    pub proof: String,
}

/// `audit.consistency`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProveConsistency {
    /// `tenant_…`
    pub tenant_id: String,
    /// The size of the earlier tree.
    pub from: u64,
    /// That of the later one; that of the newest head where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

/// The proof that the later tree begins with the earlier one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Consistency {
    /// The size of the earlier tree.
    pub from: u64,
    /// Its root, 64 hexadecimal digits.
    pub from_root: String,
    /// The size of the later one.
    pub to: u64,
    /// Its root, 64 hexadecimal digits.
    pub to_root: String,
    /// The proof (RFC 9162, 2.1.4), hexadecimal.
    pub proof: String,
}

/// `audit.receipt`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MakeReceipt {
    /// `tenant_…`
    pub tenant_id: String,
    /// `cmd_…`
    pub command_id: String,
}
