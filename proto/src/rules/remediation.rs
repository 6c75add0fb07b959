//! When does the control plane mend a node by itself? A GPU whose row remap waits for a reset, a host setting that waits for a boot.
//!
//! **Invariant:** it is bounded on every side: attempts for a node, nodes of a pool that are away at once, nodes of the fleet within a
//! while. After an outcome that nobody can tell, people decide.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// A condition that can be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::EnumString)]
pub enum Ailment {
    /// A GPU has rows to remap, which its next reset does.
    RowRemapPending,
    /// Settings of the host wait for a boot.
    RebootRequired,
}

impl Ailment {
    /// The kind that mends it.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::RowRemapPending => "gpu.reset",
            Self::RebootRequired => "node.reboot",
        }
    }
}

impl fmt::Display for Ailment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the operator allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Limits {
    /// How many nodes of a pool may be away for a boot at once, by the pool's name.
    pub max_away: BTreeMap<String, u32>,
    /// The same for pools that are not named, and for nodes without a pool.
    pub max_away_default: u32,
    /// How many attempts at one ailment of a node within [`attempt_window_ms`](Self::attempt_window_ms).
    pub attempts: u32,
    /// Milliseconds.
    pub attempt_window_ms: u64,
    /// The breaker: at most so many percent of the fleet within [`breaker_window_ms`](Self::breaker_window_ms); at least one node.
    pub breaker_percent: u32,
    /// Milliseconds.
    pub breaker_window_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_away: BTreeMap::new(),
            max_away_default: 1,
            attempts: 3,
            attempt_window_ms: 24 * 3_600_000,
            breaker_percent: 5,
            breaker_window_ms: 3_600_000,
        }
    }
}

/// How an attempt ended, if it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its command is not over.
    Pending,
    /// It did what it should.
    Succeeded,
    /// It is known not to have: it was refused, or never ran.
    Failed,
    /// Nobody can say what happened: the node was gone, its journal lost, or its time over.
    Ambiguous,
}

impl Outcome {
    /// What a settled command says. `is_proven` is whether the node's own signature stands for it, where it must.
    pub fn of(state: super::state::State, reason: &str, is_proven: bool) -> Self {
        use super::state::State;
        match state {
            State::Succeeded if is_proven => Self::Succeeded,
            // Of these the node's refusal or the queue says that nothing was done.
            State::Rejected | State::Expired => Self::Failed,
            State::Cancelled if matches!(reason, "cancelled" | "node-deleted" | "batch-rejected" | "batch-expired") => {
                Self::Failed
            }
            State::Failed if matches!(reason, "gpu-busy") => Self::Failed,
            State::Succeeded | State::Failed | State::Cancelled => Self::Ambiguous,
            State::Pending | State::Dispatched | State::Acked | State::Running => Self::Pending,
        }
    }
}

/// An attempt at an ailment of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The ailment.
    pub ailment: Ailment,
    /// When it began, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether somebody has looked at it since and lets it go on.
    pub is_cleared: bool,
}

/// A node that has something.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// Ailments with their GPUs; an empty name is the node itself.
    pub ailments: &'a [(Ailment, String)],
    /// Its pool.
    pub pool: Option<&'a str>,
    /// Whether it must be left alone.
    pub is_protected: bool,
    /// Whether it has a session.
    pub is_connected: bool,
    /// GPUs that an allocation or an instance has.
    pub in_use: &'a BTreeSet<String>,
    /// What was tried.
    pub attempts: &'a [Attempt],
}

/// What is going on around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fleet {
    /// How many nodes there are.
    pub nodes: u32,
    /// How many of them were attempted within the breaker's window.
    pub attempted: u32,
    /// How many nodes of this node's pool are away for a boot.
    pub away: u32,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// There is nothing to mend.
    Nothing,
    /// Mend this.
    Act {
        /// The ailment.
        ailment: Ailment,
        /// The GPUs that have it; empty for the node.
        gpus: Vec<String>,
    },
    /// Not now, and why.
    Hold {
        /// The ailment.
        ailment: Ailment,
        /// Why.
        why: Hold,
    },
}

/// Why nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Hold {
    /// The node is marked so.
    Protected,
    /// An attempt is not over.
    InProgress,
    /// Nobody can say what the last attempt did: somebody has to look.
    Ambiguous,
    /// It was tried as often as it may be.
    OutOfAttempts,
    /// Too many nodes of the fleet were attempted.
    Breaker,
    /// It has no session.
    Disconnected,
    /// An allocation is live.
    InUse,
    /// Too many nodes of its pool are away.
    PoolAway,
}

/// Decides for one node. A reset comes before a boot.
pub fn decide(node: &Node<'_>, fleet: Fleet, limits: &Limits, now_ms: u64) -> Decision {
    let Some(ailment) = node.ailments.iter().map(|(ailment, _)| *ailment).min() else { return Decision::Nothing };
    let hold = |why| Decision::Hold { ailment, why };
    if node.is_protected {
        return hold(Hold::Protected);
    }
    // Any attempt, at whatever: two at once would be in each other's way.
    if node.attempts.iter().any(|it| it.outcome == Outcome::Pending) {
        return hold(Hold::InProgress);
    }
    if node.attempts.iter().any(|it| it.outcome == Outcome::Ambiguous && !it.is_cleared) {
        return hold(Hold::Ambiguous);
    }
    let recent = |at_ms: u64, window_ms: u64| now_ms < at_ms.saturating_add(window_ms);
    let tried = node.attempts.iter().filter(|it| it.ailment == ailment && recent(it.at_ms, limits.attempt_window_ms));
    if tried.count() >= usize::try_from(limits.attempts).unwrap_or(usize::MAX) {
        return hold(Hold::OutOfAttempts);
    }
    let allowed = (u64::from(fleet.nodes) * u64::from(limits.breaker_percent) / 100).max(1);
    let counted = node.attempts.iter().any(|it| recent(it.at_ms, limits.breaker_window_ms));
    if !counted && u64::from(fleet.attempted) >= allowed {
        return hold(Hold::Breaker);
    }
    if !node.is_connected {
        return hold(Hold::Disconnected);
    }
    match ailment {
        Ailment::RowRemapPending => {
            let sick = node.ailments.iter().filter(|(it, _)| *it == ailment).map(|(_, gpu)| gpu);
            let gpus: Vec<String> = sick.filter(|gpu| !node.in_use.contains(*gpu)).cloned().collect();
            if gpus.is_empty() { hold(Hold::InUse) } else { Decision::Act { ailment, gpus } }
        }
        Ailment::RebootRequired => {
            let max = node.pool.and_then(|pool| limits.max_away.get(pool)).copied().unwrap_or(limits.max_away_default);
            if !node.in_use.is_empty() {
                hold(Hold::InUse)
            } else if fleet.away >= max {
                hold(Hold::PoolAway)
            } else {
                Decision::Act { ailment, gpus: Vec::new() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::state::State;
    use super::*;

    const CALM: Fleet = Fleet { nodes: 100, attempted: 0, away: 0 };
    const NOW: u64 = 1_000_000_000;

    fn remap(gpu: &str) -> (Ailment, String) {
        (Ailment::RowRemapPending, gpu.into())
    }

    fn reboot() -> (Ailment, String) {
        (Ailment::RebootRequired, String::new())
    }

    fn node<'a>(ailments: &'a [(Ailment, String)], in_use: &'a BTreeSet<String>, attempts: &'a [Attempt]) -> Node<'a> {
        Node { ailments, pool: Some("train"), is_protected: false, is_connected: true, in_use, attempts }
    }

    fn attempt(ago_ms: u64, outcome: Outcome) -> Attempt {
        Attempt { ailment: Ailment::RowRemapPending, at_ms: NOW - ago_ms, outcome, is_cleared: false }
    }

    fn held(decision: &Decision) -> Option<Hold> {
        match decision {
            Decision::Hold { why, .. } => Some(*why),
            _ => None,
        }
    }

    #[test]
    fn a_reset_waits_for_its_gpu_and_comes_before_a_boot() {
        let (none, busy) = (BTreeSet::new(), BTreeSet::from(["GPU-a".to_owned()]));
        let both = [reboot(), remap("GPU-a"), remap("GPU-b")];
        let decide = |node: &Node<'_>| decide(node, CALM, &Limits::default(), NOW);
        let act = |gpus: &[&str]| Decision::Act {
            ailment: Ailment::RowRemapPending,
            gpus: gpus.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(decide(&node(&both, &none, &[])), act(&["GPU-a", "GPU-b"]));
        assert_eq!(decide(&node(&both, &busy, &[])), act(&["GPU-b"]));
        assert_eq!(held(&decide(&node(&[remap("GPU-a")], &busy, &[]))), Some(Hold::InUse));
        assert_eq!(held(&decide(&node(&[reboot()], &busy, &[]))), Some(Hold::InUse));
        assert_eq!(decide(&node(&[], &none, &[])), Decision::Nothing);
    }

    #[test]
    fn each_bound_holds_it() {
        let (none, limits) = (BTreeSet::new(), Limits::default());
        let (sick, boot) = ([remap("GPU-a")], [reboot()]);
        let well = node(&sick, &none, &[]);
        let why = |node: &Node<'_>, fleet| held(&decide(node, fleet, &limits, NOW));
        assert_eq!(why(&Node { is_protected: true, ..well.clone() }, CALM), Some(Hold::Protected));
        assert_eq!(why(&Node { is_connected: false, ..well.clone() }, CALM), Some(Hold::Disconnected));
        assert_eq!(why(&node(&sick, &none, &[attempt(1, Outcome::Pending)]), CALM), Some(Hold::InProgress));
        assert_eq!(why(&well, Fleet { attempted: 5, ..CALM }), Some(Hold::Breaker));
        assert_eq!(why(&well, Fleet { attempted: 4, ..CALM }), None);
        assert_eq!(why(&well, Fleet { nodes: 3, ..CALM }), None, "one node is always allowed");
        assert_eq!(why(&node(&boot, &none, &[]), Fleet { away: 1, ..CALM }), Some(Hold::PoolAway));
        let wide = Limits { max_away: [("train".to_owned(), 2)].into(), ..limits.clone() };
        assert_eq!(held(&decide(&node(&boot, &none, &[]), Fleet { away: 1, ..CALM }, &wide, NOW)), None);
    }

    #[test]
    fn promise_16_attempts_are_bounded_and_an_ambiguous_outcome_is_not_retried() {
        let (none, limits, sick) = (BTreeSet::new(), Limits::default(), [remap("GPU-a")]);
        let why = |attempts: &[Attempt], now| held(&decide(&node(&sick, &none, attempts), CALM, &limits, now));
        let failed = [3, 2, 1].map(|ago| attempt(ago, Outcome::Failed));
        assert_eq!(why(&failed[..2], NOW), None);
        assert_eq!(why(&failed, NOW), Some(Hold::OutOfAttempts));
        assert_eq!(why(&failed, NOW + limits.attempt_window_ms), None, "a day later it may be tried again");
        let unclear = attempt(1, Outcome::Ambiguous);
        assert_eq!(why(&[unclear], NOW + 100 * limits.attempt_window_ms), Some(Hold::Ambiguous), "however long ago");
        assert_eq!(why(&[Attempt { is_cleared: true, ..unclear }], NOW), None);
        for (state, reason, expected) in [
            (State::Succeeded, "", Outcome::Succeeded),
            (State::Failed, "gpu-busy", Outcome::Failed),
            (State::Failed, "timeout", Outcome::Ambiguous),
            (State::Failed, "interrupted", Outcome::Ambiguous),
            (State::Failed, "journal-lost", Outcome::Ambiguous),
            (State::Rejected, "BATCH_UNAPPROVED", Outcome::Failed),
            (State::Expired, "not_after", Outcome::Failed),
            (State::Running, "", Outcome::Pending),
        ] {
            assert_eq!(Outcome::of(state, reason, true), expected, "{state} {reason}");
        }
        assert_eq!(
            Outcome::of(State::Succeeded, "", false),
            Outcome::Ambiguous,
            "a success that nobody signed proves nothing"
        );
    }

    proptest! {
        /// Whatever happens, in a window there are no more attempts than allowed, and none after an ambiguous one.
        #[test]
        fn promise_16_a_loop_is_bounded(outcomes in prop::collection::vec(0_u8..3, 1..60), step_ms in 1_u64..20_000_000) {
            let (none, limits, sick) = (BTreeSet::new(), Limits::default(), [remap("GPU-a")]);
            let mut attempts: Vec<Attempt> = Vec::new();
            let mut now = NOW;
            for outcome in outcomes {
                now += step_ms;
                if let Decision::Act { .. } = decide(&node(&sick, &none, &attempts), CALM, &limits, now) {
                    prop_assert!(attempts.iter().all(|it| it.outcome != Outcome::Ambiguous));
                    let outcome = [Outcome::Succeeded, Outcome::Failed, Outcome::Ambiguous][usize::from(outcome)];
                    attempts.push(Attempt { at_ms: now, ..attempt(0, outcome) });
                }
                let since = now.saturating_sub(limits.attempt_window_ms);
                let recent = attempts.iter().filter(|it| it.at_ms > since).count();
                prop_assert!(recent <= limits.attempts as usize);
            }
        }
    }
}
