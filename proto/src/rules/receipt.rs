//! What a receipt proves.
//!
//! **Invariant:** nothing in a receipt is taken on the word of whoever hands it over: each part is bound to the log's head, and the
//! head to a root that the verifier trusts. What could not be checked is said, and not passed over.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::audit::{Batch, Decider, Entry, Queued, Settled};
use crate::batch::{Approved, Leaf};
use crate::canonical::{self, sha256_hex};
use crate::id::{BatchId, CommandId, NodeId, TenantId};
use crate::merkle;
use crate::receipt::Receipt;
use crate::sign::{self, PublicKey};

/// What the verifier brings.
#[derive(Debug, Clone, Copy)]
pub struct Trusted<'a> {
    /// The roots of command signing, those of the past included; none to accept a log that nobody signs.
    pub roots: &'a [PublicKey],
    /// The node whose certificate the receipt holds and its key, once the node authority's signature was verified.
    pub node: Option<(NodeId, PublicKey)>,
    /// The verifier's clock, milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// Why a receipt does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The head has no root.
    #[error("head.root: must be 64 hexadecimal digits")]
    Root,
    /// The head was signed by nobody, and a signature is expected.
    #[error("head.signature: the head is not signed")]
    HeadUnsigned,
    /// The head's signature does not count.
    #[error("head.signature: {0}")]
    Head(sign::Error),
    /// An entry is not in the log.
    #[error("entry {index}: {error}")]
    Inclusion {
        /// Its place.
        index: u64,
        /// What is wrong.
        error: merkle::Error,
    },
    /// The entries do not stand in the log's order, or one stands there twice.
    #[error("entry {0}: entries stand in the order of the log, each once")]
    Disorder(u64),
    /// A leaf that is no entry.
    #[error("entry {0}: its body is no entry that this program knows")]
    NotAnEntry(u64),
    /// The order itself is missing.
    #[error("no entry says that the command was queued")]
    NoOrder,
    /// There is more than one of what there can be but one.
    #[error("entry {0}: the command was queued, or ended, more than once")]
    Twice(u64),
    /// An entry about something else.
    #[error("entry {0}: it is about another command or batch")]
    Stray(u64),
    /// The end stands before the beginning.
    #[error("entry {0}: the command ended before it was queued")]
    EndedBefore(u64),
    /// The command's signature does not count.
    #[error("the command's signature: {0}")]
    Order(sign::Error),
    /// The batch's document is not that of the command's batch.
    #[error("approved.document: it is not the document of the command's batch")]
    OtherDocument,
    /// The command is not in the batch's scope.
    #[error("approved.proof: the command is not in the scope: {0}")]
    Scope(merkle::Error),
    /// An approval does not count.
    #[error("approved.approvals: that of {approver}: {error}")]
    Approval {
        /// Whose it claims to be.
        approver: PublicKey,
        /// What is wrong.
        error: sign::Error,
    },
    /// The approvals are not those of the log.
    #[error("approved.approvals: they are not those that were logged")]
    OtherApprovals,
    /// The result is not the one that was logged.
    #[error("result: it is not the one that was logged")]
    Result,
    /// The certificate is not the one that was logged.
    #[error("nodeCertificate: it is not the one that was logged")]
    Certificate,
    /// The certificate is another node's.
    #[error("nodeCertificate: it is of {0}, not of the command's node")]
    OtherNode(NodeId),
    /// The node's signature does not count.
    #[error("the node's signature: {0}")]
    Attestation(sign::Error),
}

/// Whether the node stands for the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Attested {
    /// It did not sign: the result is the control plane's word.
    No,
    /// A signature is there; the certificate was not checked against a node authority.
    NotChecked,
    /// It signed.
    Yes,
}

/// How the command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The state.
    pub state: String,
    /// Why, as a stable code; empty for success.
    pub reason: String,
    /// Who says so.
    pub decided_by: Decider,
    /// Whether the node stands for it.
    pub attested: Attested,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// What a receipt proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// The command.
    pub command: CommandId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its node.
    pub node: NodeId,
    /// Its kind.
    pub kind: String,
    /// When it was queued, milliseconds since the Unix epoch.
    pub queued_at_ms: u64,
    /// Whether a trusted root stands for the log's head.
    pub is_head_signed: bool,
    /// Whether a trusted root stands for the command itself.
    pub is_command_signed: bool,
    /// Its batch.
    pub batch: Option<BatchId>,
    /// Who approved it, by key. Whether they are enough, the policy of that time decides.
    pub approvers: Vec<PublicKey>,
    /// How it ended; `None` when the receipt was made before its end.
    pub outcome: Option<Outcome>,
}

/// Checks a receipt.
pub fn verify(receipt: &Receipt, trusted: Trusted<'_>) -> Result<Proven, Invalid> {
    let root = receipt.head.hash().ok_or(Invalid::Root)?;
    match &receipt.head.signature {
        Some(signature) => {
            signature.verify(&receipt.head.body(), trusted.roots, trusted.now_ms).map_err(Invalid::Head)?;
        }
        None if trusted.roots.is_empty() => {}
        None => return Err(Invalid::HeadUnsigned),
    }
    let mut parts = Parts::default();
    let mut next = 0;
    for logged in &receipt.entries {
        let index = logged.index;
        if index < next {
            return Err(Invalid::Disorder(index));
        }
        next = index.saturating_add(1);
        merkle::verify(&root, receipt.head.size, logged.body.as_bytes(), index, &logged.proof)
            .map_err(|error| Invalid::Inclusion { index, error })?;
        parts.take(index, serde_json::from_str(&logged.body).map_err(|_| Invalid::NotAnEntry(index))?)?;
    }
    let Parts { queued, settled, about, batches } = parts;
    let (queued_at, queued) = queued.ok_or(Invalid::NoOrder)?;
    if let Some((index, _)) = about.iter().find(|(_, command)| *command != queued.command) {
        return Err(Invalid::Stray(*index));
    }
    if let Some((index, _)) = batches.iter().find(|(_, it)| it.batch.is_none() || it.batch != queued.batch) {
        return Err(Invalid::Stray(*index));
    }
    if let Some(signature) = &queued.signature {
        signature.verify(&queued.signed_body(), trusted.roots, trusted.now_ms).map_err(Invalid::Order)?;
    }
    let approvers = approvers(&queued, &batches, receipt.approved.as_ref())?;
    let outcome = match settled {
        None if receipt.result.is_some() => return Err(Invalid::Result),
        None if receipt.node_certificate.is_some() => return Err(Invalid::Certificate),
        None => None,
        Some((index, _)) if index < queued_at => return Err(Invalid::EndedBefore(index)),
        Some((index, it)) if it.node != queued.node => return Err(Invalid::Stray(index)),
        Some((_, it)) => Some(outcome(receipt, it, trusted)?),
    };
    Ok(Proven {
        command: queued.command,
        tenant: queued.tenant,
        node: queued.node,
        queued_at_ms: queued.at_ms,
        is_head_signed: receipt.head.signature.is_some(),
        is_command_signed: queued.signature.is_some(),
        batch: queued.batch,
        kind: queued.kind,
        approvers,
        outcome,
    })
}

/// The entries, by what they say; each with its place.
#[derive(Default)]
struct Parts {
    queued: Option<(u64, Queued)>,
    settled: Option<(u64, Settled)>,
    about: Vec<(u64, CommandId)>,
    batches: Vec<(u64, Batch)>,
}

impl Parts {
    fn take(&mut self, index: u64, entry: Entry) -> Result<(), Invalid> {
        self.about.extend(entry.command().map(|command| (index, command)));
        let before = match entry {
            Entry::CommandQueued(it) => self.queued.replace((index, it)).is_some(),
            Entry::CommandSettled(it) => self.settled.replace((index, it)).is_some(),
            Entry::CancelRequested(_) => false,
            Entry::Batch(it) => {
                self.batches.push((index, it));
                false
            }
        };
        if before { Err(Invalid::Twice(index)) } else { Ok(()) }
    }
}

fn approvers(
    queued: &Queued,
    batches: &[(u64, Batch)],
    approved: Option<&Approved>,
) -> Result<Vec<PublicKey>, Invalid> {
    let Some(approved) = approved else { return Ok(Vec::new()) };
    let document = &approved.document;
    let hash = sha256_hex(&canonical::to_vec(document).expect("documents are JSON"));
    let is_logged = batches.iter().filter_map(|(_, it)| it.document_sha256.as_ref()).all(|it| *it == hash);
    if queued.batch != Some(document.batch_id) || queued.tenant != document.tenant_id || !is_logged {
        return Err(Invalid::OtherDocument);
    }
    let leaf = Leaf {
        subject: queued.node.to_string(),
        kind: queued.kind.clone(),
        payload_sha256: approved.binds_payload.then(|| queued.payload_sha256.clone()),
    };
    approved.includes(&leaf).map_err(Invalid::Scope)?;
    let one = |it: &crate::batch::Approval| match it.verify(document) {
        Ok(()) => Ok(it.approver),
        Err(error) => Err(Invalid::Approval { approver: it.approver, error }),
    };
    let approvers = approved.approvals.iter().map(one).collect::<Result<BTreeSet<_>, _>>()?;
    // None can be left out either, and none added that came later.
    if !batches.iter().filter_map(|(_, it)| it.approval.as_ref()).eq(&approved.approvals) {
        return Err(Invalid::OtherApprovals);
    }
    // Whoever approved twice is one.
    Ok(approvers.into_iter().collect())
}

fn outcome(receipt: &Receipt, settled: Settled, trusted: Trusted<'_>) -> Result<Outcome, Invalid> {
    let bytes = |text: &Option<String>| text.as_ref().map(|text| STANDARD.decode(text)).transpose();
    let result = bytes(&receipt.result).map_err(|_| Invalid::Result)?;
    // An empty one has one form: absent.
    if result.as_ref().is_some_and(Vec::is_empty)
        || settled.result_sha256.as_ref().is_some_and(|it| *it != sha256_hex(result.as_deref().unwrap_or_default()))
        || (settled.result_sha256.is_none() && result.is_some())
    {
        return Err(Invalid::Result);
    }
    let certificate = bytes(&receipt.node_certificate).map_err(|_| Invalid::Certificate)?;
    if certificate.as_deref().map(sha256_hex) != settled.node_certificate_sha256 {
        return Err(Invalid::Certificate);
    }
    let attested = match (&settled.node_sig, trusted.node) {
        (None, _) => Attested::No,
        (Some(_), None) => Attested::NotChecked,
        (Some(_), Some((node, _))) if node != settled.node => return Err(Invalid::OtherNode(node)),
        (Some(signature), Some((_, key))) => {
            let body = settled.signed_body().ok_or(Invalid::Result)?;
            key.verify(&body, signature).map_err(Invalid::Attestation)?;
            Attested::Yes
        }
    };
    let Settled { state, reason, decided_by, at_ms, .. } = settled;
    Ok(Outcome { state, reason, decided_by, attested, at_ms })
}

#[cfg(test)]
mod tests;
