//! Documents of rollouts.
//!
//! **Invariant:** a rollout is shown with every node and its command, which says the rest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `rollouts.start`: brings a release to the nodes that have all of these labels now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartRollout {
    /// `tenant_…`
    pub tenant_id: String,
    /// The release's SHA-256, 64 hexadecimal digits in lower case.
    pub sha256: String,
    /// Labels that the nodes have; none for all nodes.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// How many of them may be under way, or without a session, at once; 1 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<u32>,
    /// How many may fail before it pauses by itself; 0 where it is absent: the first failure pauses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<u32>,
    /// Where waves end, in percent of the nodes, rising, below 100; the last wave has the rest. None for one wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<u32>,
    /// Whether nodes may get an older version than theirs.
    #[serde(default)]
    pub allow_downgrade: bool,
    /// The same key again is the same rollout. 1–200 characters.
    pub idempotency_key: String,
}

/// `rollouts.list`: the newest 200.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRollouts {
    /// `tenant_…`
    pub tenant_id: String,
}

/// Names a rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// `rollout_…`
    pub rollout_id: String,
}

/// A release on its way to nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// `rollout_…`
    pub id: String,
    /// The release's version.
    pub version: String,
    /// The release's SHA-256.
    pub sha256: String,
    /// `running`, `paused`, `done` or `cancelled`.
    pub state: String,
    /// Why it is paused or over: `asked`, `too-many-failures` or `kind-not-registered`; empty otherwise.
    pub reason: String,
    /// How many of its nodes may be under way, or without a session, at once.
    pub max_unavailable: u32,
    /// How many may fail before it pauses by itself.
    pub max_failures: u32,
    /// Whether nodes may get an older version than theirs.
    pub allow_downgrade: bool,
    /// Who asked for it.
    pub requested_by: String,
    /// When that was.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was over.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<OffsetDateTime>,
    /// Its nodes by wave and name. Absent in a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<RolloutNode>,
}

/// A node of a rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutNode {
    /// `node_…`
    pub node_id: String,
    /// Its name.
    pub name: String,
    /// Its wave, from 0.
    pub wave: u32,
    /// `waiting`, `pending`, `succeeded`, `failed` or `skipped`.
    pub step: String,
    /// Why it ended so, as a stable code; empty before, and for success.
    pub reason: String,
    /// Whether it has a session.
    pub connected: bool,
    /// `cmd_…`, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<String>,
}
