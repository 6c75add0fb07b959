//! What the programs of a run write, while it runs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadOutput {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// `cmd_…`
    pub command_id: String,
    /// What was seen: `next` of the last answer. From the beginning by default.
    #[serde(default)]
    pub after: OutputPlace,
    /// How long to wait for something new while the command goes on, 0 to 30 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u32>,
}

/// How much of a command's output was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OutputPlace {
    /// Which run of the command; 0 for none. Runs that come later have higher numbers.
    pub attempt: u64,
    /// Bytes of its standard output.
    pub stdout: u64,
    /// Bytes of its standard error.
    pub stderr: u64,
}

/// What was written after a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandOutput {
    /// In the order of runs and offsets.
    pub pieces: Vec<OutputPiece>,
    /// The place after them.
    pub next: OutputPlace,
    /// Whether nothing follows: the command is over and these are the last.
    pub is_over: bool,
}

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputPiece {
    /// Which run of the command.
    pub attempt: u64,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// How many bytes of the stream come before. More than were seen: those between were lost on the way.
    pub offset: u64,
    /// The bytes, base64.
    pub bytes: String,
}
