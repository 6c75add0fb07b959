//! How a release goes to many nodes: in waves, few at a time, and no further when it fails.
//!
//! **Invariant:** no step is begun that would take more nodes away than allowed, nor after more failures than allowed, nor in a wave
//! while a node of an earlier one that can be reached has no end.

use std::collections::BTreeSet;

use crate::id::NodeId;

/// The most nodes of one rollout.
pub const MAX_NODES: usize = 10_000;

/// What limits a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many of its nodes may be under way, or without a session, at once.
    pub max_unavailable: u32,
    /// How many steps may fail before it pauses.
    pub max_failures: u32,
    /// How many failures somebody has looked at: they count no more.
    pub forgiven: u32,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "lowercase")]
pub enum Step {
    /// Its command was not queued.
    Waiting,
    /// Its command is not over.
    Pending,
    /// Its command succeeded.
    Succeeded,
    /// Its command ended otherwise.
    Failed,
    /// It is gone.
    Skipped,
}

/// A node of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Its wave, from 0.
    pub wave: u32,
    /// Where it stands.
    pub step: Step,
    /// Whether it has a session.
    pub is_connected: bool,
    /// Whether another rollout changes it now.
    pub is_taken: bool,
}

/// What to do with a rollout that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Begin the steps of these nodes; of none where it has to wait.
    Begin(Vec<NodeId>),
    /// Too many steps have failed.
    Pause,
    /// Every node has its end.
    Done,
}

/// Decides.
pub fn decide(nodes: &[Node], limits: Limits) -> Decision {
    let count =
        |holds: &dyn Fn(&Node) -> bool| u32::try_from(nodes.iter().filter(|it| holds(it)).count()).unwrap_or(u32::MAX);
    let failed = count(&|it| it.step == Step::Failed);
    if failed.saturating_sub(limits.forgiven) > limits.max_failures {
        return Decision::Pause;
    }
    let is_open = |node: &Node| matches!(node.step, Step::Waiting | Step::Pending);
    if !nodes.iter().any(is_open) {
        return Decision::Done;
    }
    // Nodes that nobody reaches keep no wave from beginning; they get their turn when they come back.
    let reachable = nodes.iter().filter(|it| it.step == Step::Pending || (it.step == Step::Waiting && it.is_connected));
    let wave = reachable.map(|it| it.wave).min().unwrap_or(0);
    let away = count(&|it| it.step == Step::Pending || (it.step != Step::Skipped && !it.is_connected));
    // Each begun step may become a failure: no more are under way than may fail before it pauses.
    let pending = count(&|it| it.step == Step::Pending);
    let may_fail = (limits.max_failures + 1).saturating_sub(failed.saturating_sub(limits.forgiven) + pending);
    let room = limits.max_unavailable.saturating_sub(away).min(may_fail) as usize;
    let ready =
        nodes.iter().filter(|it| it.step == Step::Waiting && it.is_connected && !it.is_taken && it.wave <= wave);
    Decision::Begin(ready.map(|it| it.id).take(room).collect())
}

/// The wave of each of so many nodes, in their order. `percents` are cumulative ends of waves but the last: `[5, 25]` makes three.
/// Every wave but the last has one node at least.
pub fn waves(nodes: usize, percents: &[u32]) -> Vec<u32> {
    let mut ends: Vec<usize> = Vec::new();
    for percent in percents {
        let end = (nodes * *percent as usize).div_ceil(100).max(ends.last().map_or(1, |last| last + 1));
        ends.push(end);
    }
    (0..nodes).map(|at| u32::try_from(ends.iter().filter(|end| at >= **end).count()).unwrap_or(u32::MAX)).collect()
}

/// What is wrong with the ends of waves; nothing where they can be.
pub fn are_percents(percents: &[u32]) -> bool {
    percents.len() <= 10
        && percents.iter().all(|it| (1..100).contains(it))
        && percents.iter().collect::<BTreeSet<_>>().into_iter().eq(percents)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use strum::IntoEnumIterator as _;
    use uuid::Uuid;

    use super::*;

    fn id(n: usize) -> NodeId {
        NodeId::from_uuid(Uuid::from_u128(n as u128 + 1))
    }

    fn nodes(steps: &[(u32, Step, bool)]) -> Vec<Node> {
        let node = |(at, (wave, step, is_connected)): (usize, &(u32, Step, bool))| Node {
            id: id(at),
            wave: *wave,
            step: *step,
            is_connected: *is_connected,
            is_taken: false,
        };
        steps.iter().enumerate().map(node).collect()
    }

    const LIMITS: Limits = Limits { max_unavailable: 2, max_failures: 1, forgiven: 0 };

    #[test]
    fn a_rollout_goes_as_far_as_its_limits_allow() {
        use Step::{Failed, Pending, Skipped, Succeeded, Waiting};
        for (steps, limits, expected) in [
            (
                vec![(0, Waiting, true), (0, Waiting, true), (0, Waiting, true)],
                LIMITS,
                Decision::Begin(vec![id(0), id(1)]),
            ),
            // One is under way, one has no session: nobody else.
            (vec![(0, Pending, true), (0, Waiting, false), (0, Waiting, true)], LIMITS, Decision::Begin(vec![])),
            // Later waves wait for the one before.
            (vec![(0, Pending, true), (1, Waiting, true)], LIMITS, Decision::Begin(vec![])),
            (vec![(0, Succeeded, true), (1, Waiting, true)], LIMITS, Decision::Begin(vec![id(1)])),
            // One that cannot be reached keeps no wave waiting, and counts as away.
            (vec![(0, Waiting, false), (1, Waiting, true), (1, Waiting, true)], LIMITS, Decision::Begin(vec![id(1)])),
            // After one failure one more may fail: one at a time.
            (vec![(0, Failed, true), (0, Waiting, true), (0, Waiting, true)], LIMITS, Decision::Begin(vec![id(1)])),
            (vec![(0, Failed, true), (0, Failed, true), (0, Waiting, true)], LIMITS, Decision::Pause),
            (
                vec![(0, Failed, true), (0, Failed, true), (0, Waiting, true)],
                Limits { forgiven: 2, ..LIMITS },
                Decision::Begin(vec![id(2)]),
            ),
            (vec![(0, Succeeded, true), (0, Failed, true), (0, Skipped, false)], LIMITS, Decision::Done),
            (vec![], LIMITS, Decision::Done),
        ] {
            assert_eq!(decide(&nodes(&steps), limits), expected, "{steps:?}");
        }
        let mut taken = nodes(&[(0, Waiting, true), (0, Waiting, true)]);
        taken[0].is_taken = true;
        assert_eq!(decide(&taken, LIMITS), Decision::Begin(vec![id(1)]), "another rollout has the first");
    }

    #[test]
    fn waves_end_where_they_should_and_none_is_empty() {
        assert_eq!(waves(10, &[]), [0; 10]);
        assert_eq!(waves(10, &[10, 50]), [0, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(waves(3, &[1, 2]), [0, 1, 2]);
        assert_eq!(waves(1, &[1, 2]), [0]);
        for (percents, holds) in [
            (vec![], true),
            (vec![5, 25], true),
            (vec![25, 5], false),
            (vec![5, 5], false),
            (vec![100], false),
            (vec![0], false),
        ] {
            assert_eq!(are_percents(&percents), holds, "{percents:?}");
        }
    }

    fn any_node() -> impl Strategy<Value = (u32, Step, bool)> {
        (0..3_u32, prop::sample::select(Step::iter().collect::<Vec<_>>()), any::<bool>())
    }

    proptest! {
        #[test]
        fn a_rollout_never_goes_beyond_its_limits(
            steps in prop::collection::vec(any_node(), 0..30),
            max_unavailable in 1..5_u32, max_failures in 0..4_u32, forgiven in 0..4_u32,
        ) {
            let nodes = nodes(&steps);
            let failed = nodes.iter().filter(|it| it.step == Step::Failed).count();
            let pending = nodes.iter().filter(|it| it.step == Step::Pending).count();
            let counted = failed.saturating_sub(forgiven as usize);
            match decide(&nodes, Limits { max_unavailable, max_failures, forgiven }) {
                Decision::Begin(begun) => {
                    let away = nodes.iter().filter(|it| it.step != Step::Skipped && (it.step == Step::Pending || !it.is_connected)).count();
                    prop_assert!(begun.is_empty() || away + begun.len() <= max_unavailable as usize);
                    prop_assert!(begun.is_empty() || counted + pending + begun.len() <= max_failures as usize + 1);
                    let unique: BTreeSet<_> = begun.iter().collect();
                    prop_assert_eq!(unique.len(), begun.len());
                    for id in &begun {
                        let node = nodes.iter().find(|it| it.id == *id).expect("it is one of them");
                        prop_assert!(node.step == Step::Waiting && node.is_connected);
                        let earlier = nodes.iter().filter(|it| it.wave < node.wave);
                        prop_assert!(!earlier.clone().any(|it| it.step == Step::Pending));
                        prop_assert!(!earlier.clone().any(|it| it.step == Step::Waiting && it.is_connected));
                    }
                }
                Decision::Pause => prop_assert!(counted > max_failures as usize),
                Decision::Done => prop_assert!(!nodes.iter().any(|it| matches!(it.step, Step::Waiting | Step::Pending))),
            }
        }
    }
}
