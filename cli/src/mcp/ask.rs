//! What the tools take. The comments are the descriptions that an agent reads.
//!
//! **Invariant:** a field that is not known is refused with its name, as in the API; a tenant is never asked for, since the token has one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::failure::{Failure, Problem};

/// The longest wait of `exec_command`, seconds.
pub(super) const MAX_WAIT_SECONDS: u32 = 300;

/// The longest wait of `read_output`, seconds: one call of the API.
pub(super) const MAX_OUTPUT_WAIT_SECONDS: u32 = 20;

/// How many items a list has where nothing is said.
const DEFAULT_LIMIT: u32 = 50;

/// The most that the API gives at once.
const MAX_LIMIT: u32 = 200;

/// `list_nodes`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListNodes {
    /// Only nodes that have all of these labels, name to value.
    #[serde(default)]
    #[schemars(example = json!({ "rack": "7" }))]
    pub(super) labels: BTreeMap<String, String>,
    /// At most as many nodes, 1 to 200; 50 by default. An answer that would be too long has fewer.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    pub(super) limit: Option<u32>,
    /// nextCursor of the answer before, for the nodes that follow.
    #[serde(default)]
    pub(super) cursor: Option<String>,
}

/// `exec_command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Exec {
    /// The node: its id, node_…, or its name. list_nodes tells both.
    #[schemars(example = json!("node_01k3zq6r7mfxv8t2c9d4e5a6b7"))]
    pub(super) node_id: String,
    /// The kind of command. Built in: diag.nvml checks the GPUs, inventory.refresh lists hardware, logs.collect gathers logs,
    /// node.reboot reboots (destructive). list_nodes tells which kinds a node has loaded.
    #[schemars(example = json!("diag.nvml"))]
    pub(super) kind: String,
    /// The kind's own input; {} by default. A wrong one is refused with a list of problems, each with its JSON
    /// pointer, and with the JSON Schema of what the kind takes.
    #[serde(default)]
    #[schemars(example = json!({ "expectedGpus": 8 }))]
    pub(super) payload: Map<String, Value>,
    /// Makes repeating safe: the same key for the same node is the same command, which is not run twice. 1 to 200 characters. Without it
    /// a new one is made, and the answer tells it. Use it again when an answer was lost.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200), example = json!("check-node-17-monday"))]
    pub(super) idempotency_key: Option<String>,
    /// How long the command may wait for the node before it expires, seconds, 10 to 3600; 600 by default. Not how long it may run.
    #[serde(default)]
    #[schemars(range(min = 10, max = 3600))]
    pub(super) not_after_seconds: Option<u32>,
    /// The approved or proposed batch that it belongs to, batch_…: what propose_command_batch answered. Destructive kinds may need one.
    #[serde(default)]
    pub(super) batch_id: Option<String>,
    /// The generation of the node's spec that it presupposes; it runs once the node has applied that one or a newer one.
    #[serde(default)]
    pub(super) min_generation: Option<u64>,
    /// How long to wait for its end before answering, seconds, 0 to 300; 0 by default. The command goes on when the wait is over.
    #[serde(default)]
    #[schemars(range(min = 0, max = 300), example = 30)]
    pub(super) wait_seconds: Option<u32>,
}

/// `get_command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GetCommand {
    /// The node: its id, node_…, or its name.
    pub(super) node_id: String,
    /// The command, cmd_…
    #[schemars(example = json!("cmd_01k3zq6r7mfxv8t2c9d4e5a6b7"))]
    pub(super) command_id: String,
    /// A JSON pointer to a part of it that is too long for one answer: /result, /result/checks/3 or /payload. The part comes as JSON
    /// text, from offset on.
    #[serde(default)]
    #[schemars(example = json!("/result/checks/3"))]
    pub(super) pointer: Option<String>,
    /// nextOffset of the answer before, bytes; 0 by default. Goes with pointer.
    #[serde(default)]
    pub(super) offset: Option<usize>,
}

/// `list_commands`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListCommands {
    /// The node: its id, node_…, or its name.
    pub(super) node_id: String,
    /// Only commands in this state.
    #[serde(default)]
    pub(super) state: Option<State>,
    /// At most as many commands, 1 to 200; 50 by default. An answer that would be too long has fewer.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    pub(super) limit: Option<u32>,
    /// nextCursor of the answer before, for older commands.
    #[serde(default)]
    pub(super) cursor: Option<String>,
}

/// The states of a command. The last five are final.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Pending,
    Dispatched,
    Acked,
    Running,
    Succeeded,
    Failed,
    Rejected,
    Expired,
    Cancelled,
}

/// `cancel_command` and `explain_command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CommandRef {
    /// The node: its id, node_…, or its name.
    pub(super) node_id: String,
    /// The command, cmd_…
    #[schemars(example = json!("cmd_01k3zq6r7mfxv8t2c9d4e5a6b7"))]
    pub(super) command_id: String,
}

/// `propose_command_batch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProposeBatch {
    /// Why, for the people who approve; 1 to 1000 characters. Say what is wrong, what will be done, and what it interrupts.
    #[schemars(length(min = 1, max = 1000), example = json!("GPU 3 of node-0412 fell off the bus; a reboot brings it back"))]
    pub(super) reason: String,
    /// What the batch allows, 1 to 10000 entries: one kind on one node each. Ask for no more than is needed.
    #[schemars(length(min = 1, max = 10_000))]
    pub(super) scope: Vec<Leaf>,
    /// Makes repeating safe: the same key is the same batch. 1 to 200 characters. Without it a new one is made, and the answer tells it.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    pub(super) idempotency_key: Option<String>,
    /// How long its commands may be accepted, seconds, 60 to 604800; 86400 (a day) by default.
    #[serde(default)]
    #[schemars(range(min = 60, max = 604_800))]
    pub(super) expires_in_seconds: Option<u32>,
}

/// One thing that a batch allows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Leaf {
    /// The node that it happens to: its id, node_…, or its name.
    pub(super) subject: String,
    /// The kind of command.
    #[schemars(example = json!("node.reboot"))]
    pub(super) kind: String,
    /// Allow this payload and no other. People approve more easily what is bound to one payload.
    #[serde(default)]
    pub(super) payload: Option<Map<String, Value>>,
    /// The same by its SHA-256 as canonical JSON (RFC 8785), 64 hexadecimal digits; in place of payload.
    #[serde(default)]
    pub(super) payload_sha256: Option<String>,
}

/// `read_output`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReadOutput {
    /// The node: its id, node_…, or its name.
    pub(super) node_id: String,
    /// The command, cmd_…
    pub(super) command_id: String,
    /// next of the answer before: where to go on. From the beginning by default.
    #[serde(default)]
    pub(super) after: Place,
    /// How long to wait for something new while the command goes on, seconds, 0 to 20; 0 by default.
    #[serde(default)]
    #[schemars(range(min = 0, max = 20), example = 10)]
    pub(super) wait_seconds: Option<u32>,
}

/// A place in a command's output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Place {
    /// Which run of the command; 0 before the first.
    pub(super) attempt: u64,
    /// Bytes of its standard output.
    pub(super) stdout: u64,
    /// Bytes of its standard error.
    pub(super) stderr: u64,
}

/// The limit of a list that was asked for, within what the API gives.
pub(super) fn limit(asked: Option<u32>) -> Result<u32, Failure> {
    within("limit", asked.unwrap_or(DEFAULT_LIMIT), 1, MAX_LIMIT)
}

/// A number between two others.
pub(super) fn within(field: &str, number: u32, min: u32, max: u32) -> Result<u32, Failure> {
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    Err(Problem::new(field, format!("is {min} to {max}, not {number}")).into())
}
