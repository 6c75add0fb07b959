//! Checked types and the conversions to and from the generated messages.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Upload, v1};
use crate::batch::Approved;
use crate::id::{BatchId, CommandId, JournalId, NodeId};
use crate::manifest::Role;
use crate::rules::state::Event;
use crate::sign::{PublicKey, Signature, WorkerKey, WorkerSignature};

/// A message that does not hold what its field is for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}.{field}: {rule}")]
pub struct Invalid {
    /// The message.
    pub message: &'static str,
    /// The field.
    pub field: &'static str,
    /// What it should hold.
    pub rule: &'static str,
}

/// What a node says of itself when it opens a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Its journal.
    pub journal: JournalId,
    /// The kernel's boot id.
    pub boot: String,
    /// Its role now.
    pub role: Role,
    /// The life that its certificate was issued for.
    pub incarnation: u64,
    /// The daemon's version.
    pub bcd_version: semver::Version,
    /// The host ABI that it provides.
    pub host_abi: semver::Version,
    /// The generation of the spec that it applied last; 0 for none.
    pub generation: u64,
    /// The kinds that it has loaded.
    pub kinds: Vec<LoadedKind>,
    /// Milliseconds since it booted.
    pub uptime_ms: u64,
    /// The epoch of the node's newest session, as far as the daemon knows; 0 for none.
    pub last_epoch: u64,
    /// The version of the trust bundle that it holds; 0 for none.
    pub trust_version: u64,
}

/// A kind that a node has loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedKind {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: semver::Version,
    /// SHA-256 of the component, 64 hex digits.
    pub digest: String,
}

/// A command on its way to a node. Its serde form is the one in which the node's journal keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Deliver {
    /// The command.
    pub command: CommandId,
    /// Its place among the node's commands.
    pub seq: u64,
    /// The node that it is for.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: u64,
    /// The kind.
    pub kind: String,
    /// SHA-256 of the component that validated the payload, 64 hex digits.
    pub kind_digest: String,
    /// The payload.
    pub payload: Value,
    /// Until when it may wait to be accepted, milliseconds since the Unix epoch, server time.
    pub not_after_ms: u64,
    /// How long a run may take, milliseconds.
    pub timeout_ms: u64,
    /// The spec generation that it presupposes.
    pub min_generation: Option<u64>,
    /// The control plane's signature; `None` where commands go unsigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<WorkerSignature>,
    /// The batch that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// What was approved and by whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<Box<Approved>>,
    /// Where its file goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Upload>,
}

/// What a node says became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// It was started.
    Running,
    /// It reached its goal.
    Succeeded,
    /// It did not.
    Failed,
    /// It was stopped.
    Cancelled,
    /// It was refused.
    Rejected,
    /// There was no free worker.
    Busy,
}

/// A report with its particulars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The command.
    pub command: CommandId,
    /// What became of it.
    pub report: Report,
    /// Why, as a stable code; empty for success.
    pub reason: String,
    /// The result exactly as the node stored it; empty for none.
    pub result: Vec<u8>,
    /// The node's own time of it.
    pub at_ms: u64,
    /// The node's signature, as it came; empty for none, and until it leaves the node.
    pub node_sig: Vec<u8>,
}

impl Report {
    /// The event in the command's life.
    pub const fn event(self) -> Event {
        match self {
            Self::Running => Event::Started,
            Self::Succeeded => Event::ReportedSucceeded,
            Self::Failed => Event::ReportedFailed,
            Self::Cancelled => Event::ReportedCancelled,
            Self::Rejected => Event::ReportedRejected,
            Self::Busy => Event::Busy,
        }
    }

    /// Whether nothing follows for this command.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Running | Self::Busy)
    }
}

pub(super) fn invalid(message: &'static str, field: &'static str, rule: &'static str) -> Invalid {
    Invalid { message, field, rule }
}

fn digest(message: &'static str, field: &'static str, bytes: &[u8]) -> Result<String, Invalid> {
    if bytes.len() == 32 { Ok(hex::encode(bytes)) } else { Err(invalid(message, field, "must have 32 bytes")) }
}

fn role(message: &'static str, role: v1::Role) -> Result<Role, Invalid> {
    match role {
        v1::Role::Host => Ok(Role::Host),
        v1::Role::Ramdisk => Ok(Role::Ramdisk),
        v1::Role::Site => Ok(Role::Site),
        v1::Role::Gateway => Ok(Role::Gateway),
        v1::Role::Unspecified => Err(invalid(message, "role", "must be a role")),
    }
}

impl From<Role> for v1::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Host => Self::Host,
            Role::Ramdisk => Self::Ramdisk,
            Role::Site => Self::Site,
            Role::Gateway => Self::Gateway,
        }
    }
}

impl v1::JoinRequest {
    /// The role that the machine joins with.
    pub fn checked_role(&self) -> Result<Role, Invalid> {
        role("JoinRequest", self.role())
    }

    /// The name that a new node gets.
    pub fn checked_name(&self) -> Result<&str, Invalid> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
        if (1..=63).contains(&self.name.len()) && self.name.bytes().all(is_fit) {
            return Ok(&self.name);
        }
        Err(invalid("JoinRequest", "name", "must have 1 to 63 characters of A-Z, a-z, 0-9, . and -"))
    }
}

impl TryFrom<v1::Hello> for Hello {
    type Error = Invalid;

    fn try_from(hello: v1::Hello) -> Result<Self, Invalid> {
        const M: &str = "Hello";
        let role = role(M, hello.role())?;
        let version = |field, text: &str| text.parse().map_err(|_| invalid(M, field, "must be a semantic version"));
        if hello.boot_id.is_empty() || hello.boot_id.len() > 64 {
            return Err(invalid(M, "boot_id", "must have 1 to 64 bytes"));
        }
        Ok(Self {
            journal: hello.journal_id.parse().map_err(|_| invalid(M, "journal_id", "must be journal_…"))?,
            role,
            incarnation: hello.incarnation,
            bcd_version: version("bcd_version", &hello.bcd_version)?,
            host_abi: version("host_abi", &hello.host_abi)?,
            generation: hello.generation,
            kinds: hello.kinds.into_iter().map(LoadedKind::try_from).collect::<Result<_, _>>()?,
            uptime_ms: hello.uptime_ms,
            last_epoch: hello.last_epoch,
            trust_version: hello.trust_version,
            boot: hello.boot_id,
        })
    }
}

impl From<Hello> for v1::Hello {
    fn from(hello: Hello) -> Self {
        Self {
            journal_id: hello.journal.to_string(),
            boot_id: hello.boot,
            role: v1::Role::from(hello.role).into(),
            incarnation: hello.incarnation,
            bcd_version: hello.bcd_version.to_string(),
            host_abi: hello.host_abi.to_string(),
            generation: hello.generation,
            kinds: hello.kinds.into_iter().map(Into::into).collect(),
            uptime_ms: hello.uptime_ms,
            last_epoch: hello.last_epoch,
            trust_version: hello.trust_version,
        }
    }
}

impl TryFrom<v1::LoadedKind> for LoadedKind {
    type Error = Invalid;

    fn try_from(kind: v1::LoadedKind) -> Result<Self, Invalid> {
        const M: &str = "LoadedKind";
        Ok(Self {
            digest: digest(M, "digest", &kind.digest)?,
            version: kind.version.parse().map_err(|_| invalid(M, "version", "must be a semantic version"))?,
            name: kind.name,
        })
    }
}

impl From<LoadedKind> for v1::LoadedKind {
    fn from(kind: LoadedKind) -> Self {
        Self { name: kind.name, version: kind.version.to_string(), digest: undigest(&kind.digest) }
    }
}

/// A checked digest is always hex; anything else would have been refused when it was read.
fn undigest(digest: &str) -> Vec<u8> {
    hex::decode(digest).unwrap_or_default()
}

impl TryFrom<v1::Deliver> for Deliver {
    type Error = Invalid;

    fn try_from(deliver: v1::Deliver) -> Result<Self, Invalid> {
        const M: &str = "Deliver";
        Ok(Self {
            command: deliver.command_id.parse().map_err(|_| invalid(M, "command_id", "must be cmd_…"))?,
            seq: deliver.seq,
            node: deliver.node_id.parse().map_err(|_| invalid(M, "node_id", "must be node_…"))?,
            incarnation: deliver.incarnation,
            kind_digest: digest(M, "kind_digest", &deliver.kind_digest)?,
            payload: serde_json::from_str(&deliver.payload).map_err(|_| invalid(M, "payload", "must be JSON"))?,
            not_after_ms: deliver.not_after_ms,
            timeout_ms: deliver.timeout_ms,
            min_generation: deliver.min_generation,
            signature: deliver.signature.map(WorkerSignature::try_from).transpose()?,
            batch: match deliver.batch_id.as_str() {
                "" => None,
                id => Some(id.parse().map_err(|_| invalid(M, "batch_id", "must be batch_…"))?),
            },
            approved: match &*deliver.approved {
                [] => None,
                json => Some(serde_json::from_slice(json).map_err(|_| invalid(M, "approved", "must be an approval"))?),
            },
            upload: deliver.upload.map(Upload::try_from).transpose()?,
            kind: deliver.kind,
        })
    }
}

impl From<Deliver> for v1::Deliver {
    fn from(deliver: Deliver) -> Self {
        Self {
            command_id: deliver.command.to_string(),
            seq: deliver.seq,
            node_id: deliver.node.to_string(),
            incarnation: deliver.incarnation,
            kind: deliver.kind,
            kind_digest: undigest(&deliver.kind_digest),
            payload: deliver.payload.to_string(),
            not_after_ms: deliver.not_after_ms,
            timeout_ms: deliver.timeout_ms,
            min_generation: deliver.min_generation,
            signature: deliver.signature.map(Into::into),
            batch_id: deliver.batch.map(|id| id.to_string()).unwrap_or_default(),
            approved: deliver.approved.map(|it| serde_json::to_vec(&it).expect("it is JSON")).unwrap_or_default(),
            upload: deliver.upload.map(Into::into),
        }
    }
}

impl TryFrom<v1::WorkerSignature> for WorkerSignature {
    type Error = Invalid;

    fn try_from(signed: v1::WorkerSignature) -> Result<Self, Invalid> {
        const M: &str = "WorkerSignature";
        let worker = signed.worker.ok_or(invalid(M, "worker", "must be there"))?;
        Ok(Self {
            worker: worker.try_into()?,
            issued_at_ms: signed.issued_at_ms,
            signature: signature(M, "signature", &signed.signature)?,
        })
    }
}

impl From<WorkerSignature> for v1::WorkerSignature {
    fn from(signed: WorkerSignature) -> Self {
        Self {
            worker: Some(signed.worker.into()),
            issued_at_ms: signed.issued_at_ms,
            signature: signed.signature.as_bytes().to_vec(),
        }
    }
}

impl TryFrom<v1::WorkerKey> for WorkerKey {
    type Error = Invalid;

    fn try_from(worker: v1::WorkerKey) -> Result<Self, Invalid> {
        const M: &str = "WorkerKey";
        Ok(Self {
            key: key(M, "key", &worker.key)?,
            not_before_ms: worker.not_before_ms,
            not_after_ms: worker.not_after_ms,
            root: key(M, "root", &worker.root)?,
            signature: signature(M, "signature", &worker.signature)?,
        })
    }
}

impl From<WorkerKey> for v1::WorkerKey {
    fn from(worker: WorkerKey) -> Self {
        Self {
            key: worker.key.as_bytes().to_vec(),
            not_before_ms: worker.not_before_ms,
            not_after_ms: worker.not_after_ms,
            root: worker.root.as_bytes().to_vec(),
            signature: worker.signature.as_bytes().to_vec(),
        }
    }
}

fn key(message: &'static str, field: &'static str, bytes: &[u8]) -> Result<PublicKey, Invalid> {
    let key = bytes.try_into().ok().and_then(|bytes| PublicKey::from_bytes(bytes).ok());
    key.ok_or(invalid(message, field, "must be an Ed25519 public key of 32 bytes"))
}

fn signature(message: &'static str, field: &'static str, bytes: &[u8]) -> Result<Signature, Invalid> {
    Signature::from_slice(bytes).map_err(|_| invalid(message, field, "must have 64 bytes"))
}

impl TryFrom<v1::Update> for Update {
    type Error = Invalid;

    fn try_from(update: v1::Update) -> Result<Self, Invalid> {
        const M: &str = "Update";
        let report = match update.report() {
            v1::Report::Running => Report::Running,
            v1::Report::Succeeded => Report::Succeeded,
            v1::Report::Failed => Report::Failed,
            v1::Report::Cancelled => Report::Cancelled,
            v1::Report::Rejected => Report::Rejected,
            v1::Report::Busy => Report::Busy,
            v1::Report::Unspecified => return Err(invalid(M, "report", "must be a report")),
        };
        if update.reason.len() > 128 {
            return Err(invalid(M, "reason", "must have at most 128 bytes"));
        }
        if !update.result.is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(&update.result).is_err() {
            return Err(invalid(M, "result", "must be JSON"));
        }
        Ok(Self {
            command: update.command_id.parse().map_err(|_| invalid(M, "command_id", "must be cmd_…"))?,
            report,
            reason: update.reason,
            result: update.result,
            at_ms: update.at_ms,
            node_sig: update.node_sig,
        })
    }
}

impl From<Update> for v1::Update {
    fn from(update: Update) -> Self {
        let report = match update.report {
            Report::Running => v1::Report::Running,
            Report::Succeeded => v1::Report::Succeeded,
            Report::Failed => v1::Report::Failed,
            Report::Cancelled => v1::Report::Cancelled,
            Report::Rejected => v1::Report::Rejected,
            Report::Busy => v1::Report::Busy,
        };
        Self {
            command_id: update.command.to_string(),
            report: report.into(),
            reason: update.reason,
            result: update.result,
            at_ms: update.at_ms,
            node_sig: update.node_sig,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn deliver() -> Deliver {
        Deliver {
            command: CommandId::from_uuid(Uuid::from_u128(1)),
            seq: 42,
            node: NodeId::from_uuid(Uuid::from_u128(2)),
            incarnation: 1,
            kind: "diag.nvml".into(),
            kind_digest: "ab".repeat(32),
            payload: json!({ "expectedGpus": 8 }),
            not_after_ms: 1_000,
            timeout_ms: 60_000,
            min_generation: Some(3),
            signature: None,
            batch: None,
            approved: None,
            upload: None,
        }
    }

    #[test]
    fn a_message_that_does_not_fit_names_its_field() {
        let good = v1::Deliver::from(deliver());
        for (bad, error) in [
            (v1::Deliver { command_id: "node_x".into(), ..good.clone() }, "Deliver.command_id: must be cmd_…"),
            (v1::Deliver { kind_digest: vec![1], ..good.clone() }, "Deliver.kind_digest: must have 32 bytes"),
            (v1::Deliver { payload: "{".into(), ..good.clone() }, "Deliver.payload: must be JSON"),
        ] {
            assert_eq!(Deliver::try_from(bad).expect_err(error).to_string(), error);
        }
        assert_eq!(Deliver::try_from(good), Ok(deliver()));
        let update = v1::Update { command_id: deliver().command.to_string(), ..v1::Update::default() };
        assert_eq!(Update::try_from(update).expect_err("no report").field, "report");
    }

    proptest! {
        #[test]
        fn no_bytes_from_the_wire_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = v1::Deliver::decode(&*bytes).map(Deliver::try_from);
            let _ = v1::Update::decode(&*bytes).map(Update::try_from);
            let _ = v1::Hello::decode(&*bytes).map(Hello::try_from);
        }
    }
}
