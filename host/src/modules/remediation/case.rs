//! One node, its attempts and the fleet around it, and what is to be done: no I/O.
//!
//! **Invariant:** what is decided here is decided by `bc_proto::rules::remediation`. This only brings rows into its form.

use std::collections::BTreeSet;

use bc_proto::rules::remediation::{self as rules, Ailment, Decision, Hold, Limits, Outcome};

use crate::store::kinds::Digest;
use crate::store::remediations::{Attempt, Fleet, Patient};
use crate::store::unix_ms;

/// Nobody has registered the kind that mends it.
const NOT_REGISTERED: &str = "kind-not-registered";

/// The node's certificate does not allow that kind.
const NOT_ALLOWED: &str = "kind-not-allowed";

/// How long after the end of an attempt nothing more is tried, milliseconds. A node says anew what it has after each run and on each
/// session; until that has come, the last word is from before, and a boot that went well would be followed by another.
pub(super) const SETTLES_MS: u64 = 5 * 60_000;

/// What is to be done with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: it has nothing, or an attempt goes its way.
    Rest,
    /// Mend this.
    Act {
        /// The ailment.
        ailment: Ailment,
        /// The GPUs that have it; empty for the node.
        gpus: Vec<String>,
        /// The component of the kind that does it.
        digest: Digest,
    },
    /// Call an attempt off that was not sent yet, for this reason.
    Withdraw(Attempt, &'static str),
    /// Leave it alone, for this reason.
    Hold(Ailment, String),
}

/// A node and what was tried.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) patient: &'a Patient,
    /// Those of this node that count.
    pub(super) attempts: Vec<&'a Attempt>,
}

impl Case<'_> {
    /// Decides.
    pub(super) fn next(&self, fleet: &Fleet, limits: &Limits, now_ms: u64) -> Next {
        let pending = self.attempts.iter().find(|it| it.standing.outcome() == Some(Outcome::Pending));
        if let Some(pending) = pending {
            // What a node may have already takes its course.
            let why = pending.is_unsent.then(|| self.is_void(pending, fleet, limits, now_ms)).flatten();
            return why.map_or(Next::Rest, |why| Next::Withdraw((*pending).clone(), why));
        }
        let ended = self.attempts.iter().filter_map(|it| it.ended_at).max();
        if ended.is_some_and(|at| now_ms < unix_ms(at).saturating_add(SETTLES_MS)) {
            return Next::Rest;
        }
        let counts = self.around(fleet);
        match self.decide(self.patient.is_connected, None, counts, limits, now_ms) {
            Decision::Nothing => Next::Rest,
            Decision::Hold { ailment, why } => Next::Hold(ailment, why.to_string()),
            Decision::Act { ailment, gpus } => {
                let kind = ailment.kind();
                let allowed = self.patient.allowed_kinds.as_ref();
                match fleet.kinds.get(kind) {
                    None => Next::Hold(ailment, NOT_REGISTERED.into()),
                    Some(_) if allowed.is_some_and(|allowed| !allowed.iter().any(|it| it == kind)) => {
                        Next::Hold(ailment, NOT_ALLOWED.into())
                    }
                    Some(digest) => Next::Act { ailment, gpus, digest: *digest },
                }
            }
        }
    }

    /// Why an attempt that was not sent yet would not be begun now; `None` while it would.
    fn is_void(&self, pending: &Attempt, fleet: &Fleet, limits: &Limits, now_ms: u64) -> Option<&'static str> {
        // What speaks against one more attempt does not speak against this one, which was counted when it began.
        let limits = Limits { attempts: u32::MAX, ..limits.clone() };
        let mut around = rules::Fleet { attempted: 0, ..self.around(fleet) };
        // It counts itself, as one that is to boot and as one whose session is gone.
        if pending.ailment == Ailment::RebootRequired || !self.patient.is_connected {
            around.away = around.away.saturating_sub(1);
        }
        // A session that is gone for a moment is no reason; what lies behind it may be one.
        match self.decide(true, Some(pending), around, &limits, now_ms) {
            Decision::Nothing => Some("no-longer-needed"),
            Decision::Act { ailment, gpus } => {
                let is_same = ailment == pending.ailment && pending.gpus.iter().all(|gpu| gpus.contains(gpu));
                (!is_same).then_some("in-use")
            }
            Decision::Hold { why: Hold::Protected, .. } => Some("protected"),
            Decision::Hold { why: Hold::InUse, .. } => Some("in-use"),
            Decision::Hold { why: Hold::PoolAway, .. } => Some("pool-away"),
            Decision::Hold { .. } => None,
        }
    }

    fn around(&self, fleet: &Fleet) -> rules::Fleet {
        let pool = (self.patient.tenant, self.patient.pool.clone());
        let away = fleet.away.get(&pool).copied().unwrap_or(0);
        rules::Fleet { nodes: fleet.nodes, attempted: fleet.attempted, away }
    }

    /// Asks the rules, as if one attempt had not been.
    fn decide(
        &self,
        is_connected: bool,
        without: Option<&Attempt>,
        fleet: rules::Fleet,
        limits: &Limits,
        now_ms: u64,
    ) -> Decision {
        let counted = self.attempts.iter().filter(|it| without.is_none_or(|without| without.command != it.command));
        let attempts: Vec<rules::Attempt> = counted
            .filter_map(|it| {
                Some(rules::Attempt {
                    ailment: it.ailment,
                    at_ms: unix_ms(it.started_at),
                    outcome: it.standing.outcome()?,
                    is_cleared: it.cleared.is_some(),
                })
            })
            .collect();
        let node = rules::Node {
            ailments: &self.patient.ailments,
            pool: self.patient.pool.as_deref(),
            is_protected: self.patient.is_protected,
            is_connected,
            in_use: &self.in_use(),
            attempts: &attempts,
        };
        rules::decide(&node, fleet, limits, now_ms)
    }

    /// GPUs that must be left alone. A MIG instance does not say which GPU it is of, so one that is in use stands for all.
    fn in_use(&self) -> BTreeSet<String> {
        let mut in_use = self.patient.in_use.clone();
        if in_use.iter().any(|it| it.starts_with("MIG-")) {
            in_use.extend(self.patient.ailments.iter().map(|(_, gpu)| gpu.clone()).filter(|gpu| !gpu.is_empty()));
        }
        in_use
    }
}
