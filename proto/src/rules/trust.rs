//! What a node trusts, and whether a command is one that people and control plane really want.
//!
//! **Invariant:** trust changes only by the word of a root that is trusted already, and never backwards. Whoever relays commands
//! can add nothing to it.

#[cfg(test)]
mod batch_tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::accept::Refusal;
use super::approval::Policy;
use crate::batch::Leaf;
use crate::canonical;
use crate::manifest::Trait;
use crate::sign::body::{CancelBody, CommandBody, RootSignature, SealedSecretBody, SpecBody, UploadBody};
use crate::sign::{self, PublicKey, SecretKey, WorkerSignature};
use crate::wire::Deliver;

/// The window of [`TrustBundle::unbatched_destructive_per_hour`], milliseconds.
pub const HOUR_MS: u64 = 3_600 * 1_000;

/// What nodes trust.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrustBundle {
    /// Counts up with every change.
    pub version: u64,
    /// The roots of command signing; two during a rotation, none where commands go unsigned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<PublicKey>,
    /// Who approves destructive batches; absent where no quorum is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Policy>,
    /// How many destructive commands outside batches a node accepts in an hour; what it takes to break the glass.
    #[serde(default)]
    pub unbatched_destructive_per_hour: u32,
    /// Who signs kinds; empty where unsigned ones are loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publishers: Vec<Publisher>,
    /// The verifier knows whom it trusted and no longer what they said: it takes nothing until they say it again. Never signed,
    /// never sent.
    #[serde(skip)]
    pub is_lost: bool,
}

/// Somebody who signs kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Publisher {
    /// For people.
    pub name: String,
    /// Their key.
    pub key: PublicKey,
}

/// A bundle as it travels and is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignedBundle {
    /// The bundle.
    pub bundle: TrustBundle,
    /// Roots that stand for it.
    #[serde(default)]
    pub signatures: Vec<RootSignature>,
}

/// Why a bundle is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTrusted {
    /// It is older than what is trusted already.
    #[error("version {offered} would roll back version {current}")]
    RolledBack {
        /// Its version.
        offered: u64,
        /// The version here.
        current: u64,
    },
    /// It has the version of what is trusted, and says something else.
    #[error("version {0} says something else here")]
    SameVersion(u64),
    /// None of the trusted roots signed it.
    #[error("no root that is trusted here has signed it")]
    NoTrustedRoot,
    /// A signature that does not fit.
    #[error(transparent)]
    Signature(#[from] sign::Error),
}

impl TrustBundle {
    /// Nothing is configured: commands go unsigned, and nobody approves them.
    pub const NONE: Self = Self {
        version: 0,
        roots: Vec::new(),
        approvers: None,
        unbatched_destructive_per_hour: 0,
        publishers: Vec::new(),
        is_lost: false,
    };

    /// What is left of a bundle that cannot be read any more: nothing passes it, and only the same or a newer one that these
    /// roots signed takes its place.
    pub fn lost(version: u64, roots: Vec<PublicKey>) -> Self {
        Self { version: version.saturating_sub(1), roots, is_lost: true, ..Self::NONE }
    }
}

impl SignedBundle {
    /// Signs a bundle with roots: those that nodes trust now, and the new ones.
    pub fn sign(bundle: TrustBundle, roots: &[&SecretKey]) -> Self {
        let sign = |root: &&SecretKey| RootSignature { root: root.public(), signature: root.sign(&bundle) };
        let signatures = roots.iter().map(sign).collect();
        Self { bundle, signatures }
    }

    /// What to trust after this bundle was offered to somebody who trusts `current`: the offer, or `None` where it is known
    /// already. The first roots are taken as they come, signed by one of themselves; that is what the join's token is for.
    pub fn accept(self, current: &TrustBundle) -> Result<Option<TrustBundle>, NotTrusted> {
        let Self { bundle, signatures } = self;
        if bundle.version < current.version {
            return Err(NotTrusted::RolledBack { offered: bundle.version, current: current.version });
        }
        if bundle.version == current.version {
            return if bundle == *current { Ok(None) } else { Err(NotTrusted::SameVersion(bundle.version)) };
        }
        let judges = if current.roots.is_empty() { &bundle.roots } else { &current.roots };
        if !judges.is_empty() {
            let by = signatures.iter().find(|it| judges.contains(&it.root)).ok_or(NotTrusted::NoTrustedRoot)?;
            by.root.verify(&bundle, &by.signature)?;
        }
        Ok(Some(bundle))
    }
}

/// A command that is not to be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distrust {
    /// The answer.
    pub refusal: Refusal,
    /// Why, in words.
    pub why: String,
}

impl Distrust {
    fn new(refusal: Refusal, why: &dyn ToString) -> Self {
        Self { refusal, why: why.to_string() }
    }
}

/// What is signed of a command for a kind with these traits.
pub fn command_body<'a>(deliver: &'a Deliver, traits: &BTreeSet<Trait>, payload_sha256: &'a str) -> CommandBody<'a> {
    CommandBody {
        command: deliver.command,
        node: deliver.node,
        incarnation: traits.contains(&Trait::Destructive).then_some(deliver.incarnation),
        kind: &deliver.kind,
        kind_digest: &deliver.kind_digest,
        payload_sha256,
        not_after_ms: deliver.not_after_ms,
        min_generation: deliver.min_generation,
        batch: deliver.batch,
        upload: deliver.upload.as_ref().map(|it| UploadBody { object: &it.object, max_bytes: it.max_bytes }),
    }
}

impl TrustBundle {
    /// Whether the control plane wants the command. Everything passes where there are no roots.
    pub fn signature(&self, deliver: &Deliver, traits: &BTreeSet<Trait>, now_ms: u64) -> Result<(), Distrust> {
        if self.is_lost {
            return Err(Distrust::new(Refusal::BadSignature, &sign::Error::TrustLost));
        }
        if self.roots.is_empty() {
            return Ok(());
        }
        let payload_sha256 = payload_sha256(deliver);
        let signature = deliver.signature.as_ref().ok_or(sign::Error::Missing);
        signature
            .and_then(|it| it.verify(&command_body(deliver, traits, &payload_sha256), &self.roots, now_ms))
            .map_err(|error| Distrust::new(Refusal::BadSignature, &error))
    }

    /// Whether the control plane wants the command, for who does not know its kind's traits: the component that names them may not
    /// be here.
    pub fn is_ordered(&self, deliver: &Deliver, now_ms: u64) -> bool {
        let either = [BTreeSet::new(), BTreeSet::from([Trait::Destructive])];
        either.iter().any(|traits| self.signature(deliver, traits, now_ms).is_ok())
    }

    /// Whether people want the command. `unbatched` is how many destructive commands outside batches the node has accepted within
    /// the last [`HOUR_MS`].
    pub fn batch(
        &self,
        deliver: &Deliver,
        traits: &BTreeSet<Trait>,
        now_ms: u64,
        unbatched: u32,
    ) -> Result<(), Distrust> {
        let Some(policy) = self.approvers.as_ref().filter(|_| traits.contains(&Trait::Destructive)) else {
            return Ok(());
        };
        let unapproved = |why: &dyn ToString| Distrust::new(Refusal::BatchUnapproved, why);
        let Some(approved) = &deliver.approved else {
            // The budget is for what has no batch: else approvals could be taken away from a command, and it would not even count.
            if deliver.batch.is_some() {
                return Err(unapproved(&"the approvals of its batch are missing"));
            }
            let limit = self.unbatched_destructive_per_hour;
            return if limit == 0 {
                Err(unapproved(&"it belongs to no approved batch"))
            } else if unbatched >= limit {
                let why = format!("{limit} destructive commands an hour are accepted outside batches");
                Err(Distrust::new(Refusal::UnbatchedLimit, &why))
            } else {
                Ok(())
            };
        };
        let document = &approved.document;
        if deliver.batch != Some(document.batch_id) {
            return Err(unapproved(&"the approvals are for another batch"));
        }
        if now_ms >= document.expires_at_ms {
            return Err(unapproved(&"the batch has expired"));
        }
        let leaf = Leaf {
            subject: deliver.node.to_string(),
            kind: deliver.kind.clone(),
            payload_sha256: approved.binds_payload.then(|| payload_sha256(deliver)),
        };
        approved.includes(&leaf).map_err(|error| unapproved(&error))?;
        let tally = policy.tally(document, &approved.approvals, now_ms);
        if tally.is_met {
            return Ok(());
        }
        let void = tally.void.iter().map(|it| format!("; {it}")).collect::<String>();
        Err(unapproved(&format!("{} approvals are missing{void}", tally.missing)))
    }

    /// Whether the control plane wants a command called off.
    pub fn cancel(
        &self,
        body: &CancelBody,
        signature: Option<&WorkerSignature>,
        now_ms: u64,
    ) -> Result<(), sign::Error> {
        self.by_worker(body, signature, now_ms)
    }

    /// Whether the control plane wants a spec.
    pub fn spec(
        &self,
        body: &SpecBody<'_>,
        signature: Option<&WorkerSignature>,
        now_ms: u64,
    ) -> Result<(), sign::Error> {
        self.by_worker(body, signature, now_ms)
    }

    /// Whether the control plane sealed a secret, for exactly what was asked for.
    pub fn sealed_secret(
        &self,
        body: &SealedSecretBody<'_>,
        signature: Option<&WorkerSignature>,
        now_ms: u64,
    ) -> Result<(), sign::Error> {
        self.by_worker(body, signature, now_ms)
    }

    fn by_worker<B: sign::Body>(
        &self,
        body: &B,
        signature: Option<&WorkerSignature>,
        now_ms: u64,
    ) -> Result<(), sign::Error> {
        if self.is_lost {
            return Err(sign::Error::TrustLost);
        }
        if self.roots.is_empty() {
            return Ok(());
        }
        signature.ok_or(sign::Error::Missing)?.verify(body, &self.roots, now_ms)
    }
}

fn payload_sha256(deliver: &Deliver) -> String {
    canonical::sha256_hex(&canonical::to_vec(&deliver.payload).expect("a JSON value has canonical bytes"))
}

#[cfg(test)]
mod tests;
