//! The documents of `runners.*`.
//!
//! **Invariant:** a runner's command is told in the words of the view `agent_commands`, not in those of `commands.*`.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `runners.history`: newest first. A page may hold fewer than `limit`, even none, and have a `nextCursor`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRunnerCommands {
    /// `tenant_…`
    pub tenant_id: String,
    /// Only this gateway's, by its slug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// At most as many, 1–200; 100 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A command of a gateway whose runners lease, as they see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerCommand {
    /// `cmd_…`
    pub id: String,
    /// `node_…`
    pub node_id: String,
    /// The gateway's slug.
    pub gateway: String,
    /// What was asked for.
    pub action: String,
    /// `pending`, `leased`, `running`, `done` or `failed`.
    pub status: String,
    /// What the runner's program said; a cut says so in it. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// What it complained about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was queued.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When its last lease began.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub leased_at: Option<OffsetDateTime>,
    /// When its runner began.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<OffsetDateTime>,
    /// When it was over.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<OffsetDateTime>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// The runner that had it last: its user in the database, and its name where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_by: Option<String>,
}
