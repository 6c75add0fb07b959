//! The documents that the API takes and gives, shared with its clients in Rust.
//!
//! Times are RFC 3339 in UTC. Ids are their text form. Field names are camelCase.
//!
//! **Invariant:** a field that is not known is refused, with its name.

mod audit;
mod batches;
mod bundles;
mod certificates;
mod kinds;
mod output;
mod releases;
mod remediations;
mod reservations;
mod rollouts;
mod runners;
mod specs;
mod webhooks;
mod workflows;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

pub use self::audit::{
    Consistency, Inclusion, InclusionOf, ListLogEntries, LogEntries, LogEntry, LogHead, MakeReceipt, ProveConsistency,
    ProveInclusion, ShowLogHead,
};
pub use self::batches::*;
pub use self::bundles::*;
pub use self::certificates::*;
pub use self::kinds::*;
pub use self::output::{CommandOutput, OutputPiece, OutputPlace, ReadOutput};
pub use self::releases::{ListReleases, PushRelease, Release, ReleaseRef};
pub use self::remediations::{
    ClearRemediations, Cleared, ListRemediations, Remediation, RemediationHold, Remediations,
};
pub use self::reservations::{CreateReservation, ListReservations, Reservation, ReservationRef};
pub use self::rollouts::{ListRollouts, Rollout, RolloutNode, RolloutRef, StartRollout};
pub use self::runners::{ListRunnerCommands, RunnerCommand, RunnerGateway, RunnerLease, RunnerLogin, SetRunner};
pub use self::specs::{Condition, HostSettings, Instance, SetSpec, SignedBy, Spec};
pub use self::webhooks::{
    CreateWebhook, Delivery, ListDeliveries, ListWebhooks, NewWebhook, Redeliver, Redelivered, RotateWebhookSecret,
    RotatedWebhookSecret, UpdateWebhook, Webhook, WebhookRef,
};
pub use self::workflows::{
    CreateWorkflow, ListWorkflows, Quarantine, QuarantineNode, Workflow, WorkflowRef, WorkflowStep, WorkflowStepRequest,
};

/// What every failed call answers: `{"error":{"code","message","details"}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ApiError,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApiError {
    /// What programs decide by.
    pub code: Code,
    /// What people read: what is wrong, and what to do.
    pub message: String,
    /// Particulars, by code. `INVALID_INPUT`: `{"problems":[{"field" | "pointer","rule"}]}`; `INVALID_STATE`: `{"reason",…}`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

/// The stable codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// 401: no token, or one that is unknown, expired or revoked.
    Unauthenticated,
    /// 403: the caller sees the resource but may not do this with it.
    PermissionDenied,
    /// 404: it does not exist, or not for the caller.
    NotFound,
    /// 400: the request breaks a rule.
    InvalidInput,
    /// 400: a kind that `commands.run` does not accept.
    Unsupported,
    /// 409: the state of things forbids it now.
    InvalidState,
    /// 409: the idempotency key or the name means something else already.
    Conflict,
    /// 413: the body is larger than the limit.
    TooLarge,
    /// 503: the database cannot be reached; try again.
    Unavailable,
    /// 500: a defect of the server.
    Internal,
}

/// `commands.run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunCommand {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// The kind's name.
    pub kind: String,
    /// The kind's payload; `{}` where it is absent.
    #[serde(default = "empty_object")]
    pub payload: Value,
    /// Scoped to tenant and caller; 1–200 characters.
    pub idempotency_key: String,
    /// How long it may wait for the node, 10–3600 seconds; 600 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after_seconds: Option<u32>,
    /// The destructive batch that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// The generation of the node's spec that it presupposes: the node applies that one, or a newer one, before it runs this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_generation: Option<u64>,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

/// `commands.get` and `commands.cancel`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// `cmd_…`
    pub command_id: String,
}

/// `commands.list`: newest first. A page that a filter narrows may hold fewer than `limit`, even none, and have a `nextCursor`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListCommands {
    /// `tenant_…`
    pub tenant_id: String,
    /// Only this node's; absent for all nodes that the caller may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Only those of the gateway whose runners lease under this slug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Only those of this batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// Only this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
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

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// For the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A command, and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "a document: each is a field of its own")]
pub struct Command {
    /// `cmd_…`
    pub id: String,
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// Its place among the node's commands.
    pub seq: u64,
    /// The kind's name.
    pub kind: String,
    /// SHA-256 of the kind's component, hexadecimal.
    pub kind_digest: String,
    /// `control`, `provision` or `bulk`.
    pub lane: String,
    /// The batch that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// Whether it is held until its batch has its approvals.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaiting_approval: bool,
    /// Who asked for it: the identity's name at that time, or `module/<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// `pending`, `dispatched`, `acked`, `running`, `succeeded`, `failed`, `rejected`, `expired` or `cancelled`.
    pub state: String,
    /// Why, as a stable code; empty for success and while it is not over.
    pub reason: String,
    /// What was asked.
    pub payload: Value,
    /// The queue's key: `api:…`, `wf:…`, …
    pub idempotency_key: String,
    /// Whether it uploads a support bundle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub support_bundle: bool,
    /// The key of the object in the store that the bundle goes to; absent where it uploads none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_key: Option<String>,
    /// Whether the kind may be run again after an interruption.
    pub retry_safe: bool,
    /// Whether the kind destroys data or takes the node out of service.
    pub destructive: bool,
    /// Until when it may wait to be accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// When it was queued.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it may be sent at the earliest; absent for at once.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub not_before: Option<OffsetDateTime>,
    /// When it was first sent.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub dispatched_at: Option<OffsetDateTime>,
    /// When it was over.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<OffsetDateTime>,
    /// The node's own time of its result.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<OffsetDateTime>,
    /// Since when it is to stop.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<OffsetDateTime>,
    /// Whether the node signed this end and this result, checked now. Never for what the control plane settled by itself.
    #[serde(default)]
    pub attested: bool,
    /// SHA-256 of the node's certificate whose key signed it, hexadecimal; absent where it is not attested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attested_by: Option<String>,
    /// The result, or a failure's particulars; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

/// `nodes.list`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListNodes {
    /// `tenant_…`
    pub tenant_id: String,
    /// Only nodes that have all of these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// At most as many, 1–200; 100 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// `nodes.get` and `nodes.delete`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
}

/// `nodes.label`: sets labels; `null` takes one away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelNode {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// Names of 1–63 characters with values of at most 63.
    pub labels: BTreeMap<String, Option<String>>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// `node_…`
    pub id: String,
    /// `tenant_…`
    pub tenant_id: String,
    /// Its name, unique among the tenant's nodes.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `host`, `ramdisk`, `site` or `gateway`.
    pub role: String,
    /// Which life of the machine this is.
    pub incarnation: u64,
    /// Whether a live gateway holds a session with it.
    pub connected: bool,
    /// The epoch of its last session; 0 before the first.
    pub session_epoch: u64,
    /// The daemon's version at its last hello.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bcd_version: Option<String>,
    /// The kinds that it had loaded at its last hello.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<LoadedKind>,
    /// What is the matter with it, by its own word. `nodes.list` leaves it out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Why the control plane does not mend it for now, though it has something. `nodes.list` leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation_hold: Option<RemediationHold>,
    /// That it is set apart: nothing of it is reserved, and it is not mended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// When it was enrolled.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When its last session began.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub last_hello_at: Option<OffsetDateTime>,
}

/// A kind that a node has loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoadedKind {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its component, hexadecimal.
    pub digest: String,
}

/// `nodes.createJoinToken`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateJoinToken {
    /// `tenant_…`
    pub tenant_id: String,
    /// The node that enrols again with it (a new incarnation); absent for a new node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// How long it is good, 60–86400 seconds; 3600 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u32>,
    /// The only kinds that the node's certificate allows; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_kinds: Option<Vec<String>>,
}

/// A one-time join token. It is shown once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinToken {
    /// What the node joins with: `bcj_<secret>_<SHA-256 of the authority's certificate>`, so that it knows the right gateway.
    pub token: String,
    /// Where to join, as far as the server knows.
    pub gateway_url: String,
    /// Until when.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// A registered kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its component, hexadecimal.
    pub digest: String,
    /// `active`, `retired` or `withdrawn`.
    pub status: String,
    /// Whether `commands.run` accepts it.
    pub exposed: bool,
    /// `control`, `provision` or `bulk`.
    pub lane: String,
    /// How long a run may take.
    pub timeout_ms: u64,
    /// `destructive`, `retry-safe`, `self-terminating`, `attested`.
    pub traits: Vec<String>,
    /// The roles of nodes that may run it.
    pub roles: Vec<String>,
    /// The manifest that stands in the component.
    pub manifest: Value,
    /// The key of the publisher who signed it, hexadecimal; absent for one that is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// When it was registered.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// `kinds.list`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListKinds {
    /// Retired and withdrawn ones as well.
    #[serde(default)]
    pub all: bool,
}

/// `kinds.get` and `kinds.retire`: by name (its active component) or by digest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindRef {
    /// The kind's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// SHA-256 of its component, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The query of `kinds.register`, whose body is the component itself (`application/wasm`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RegisterKind {
    /// Make it the one that takes new commands.
    #[serde(default)]
    pub activate: bool,
    /// Let `commands.run` accept it. Absent: as the active version; the four built-in names always are, `gpu.reset` never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed: Option<bool>,
    /// The publisher's key, 64 hexadecimal digits; goes with `signature`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// The publisher's signature of the component's SHA-256, 128 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// As in `kinds.activate`.
    #[serde(default)]
    pub accept_wider: bool,
    /// As in `kinds.activate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
}

/// `tokens.create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateToken {
    /// `tenant_…`
    pub tenant_id: String,
    /// The identity's name; it is made if there is none.
    pub identity: String,
    /// What the token is for, for people.
    pub label: String,
    /// How long it is good, seconds; absent for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
    /// Grants that the identity gets in addition. Nobody gives what they do not have.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

/// What an identity may do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// `compute:nodes:read`, `compute:nodes:exec`, …; `compute:*` is all of them.
    pub permission: String,
    /// `compute-node/<id>`, `kind/<name>`, `tenant/<id>`, or a pattern with `*` at its end: `compute-node/*`, `*`.
    pub resource: String,
}

/// A new token. It is shown once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewToken {
    /// `bct_…`: what goes into `Authorization: Bearer …`.
    pub token: String,
    /// Names the token without being it: the first 16 hexadecimal digits of its SHA-256.
    pub id: String,
}

/// `tokens.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTokens {
    /// `tenant_…`
    pub tenant_id: String,
}

/// `tokens.revoke`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRef {
    /// `tenant_…`
    pub tenant_id: String,
    /// As in the list.
    pub id: String,
}

/// A token, less the token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// As at its creation.
    pub id: String,
    /// Whose it is.
    pub identity: String,
    /// What it is for.
    pub label: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Until when it is good.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<OffsetDateTime>,
    /// Since when it is not.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<OffsetDateTime>,
}

/// `tokens.whoami`: the caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Caller {
    /// `tenant_…`
    pub tenant_id: String,
    /// The tenant's name.
    pub tenant: String,
    /// The identity's name.
    pub identity: String,
    /// What it may do.
    pub grants: Vec<Grant>,
}

/// The query of `GET /v1/events.watch`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WatchEvents {
    /// `tenant_…`
    pub tenant_id: String,
    /// Only this node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Only this command's, and its progress (`command.progress`, which is not durable and has no id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<String>,
    /// Only what came after this event's id; `0` from the beginning; absent from now on. `Last-Event-ID` does the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// An event: the data of one server-sent event, whose name is the topic and whose id is the event's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Where to resume after it.
    pub id: String,
    /// `node.command.queued`, `command.settled`, `node.command.cancel-requested`, …
    pub topic: String,
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`, if it is about a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// What happened, by topic: `{commandId, nodeId, kind, state, reason}` and the like.
    pub body: Value,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
}
