use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::id::{BatchId, TenantId};
use crate::sign::SecretKey;

const NOW_MS: u64 = 10_000_000;
const LATER_MS: u64 = NOW_MS + 1_000;

fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

fn approver(name: &str, number: u8, groups: &[&str]) -> Approver {
    Approver { name: name.into(), key: key(number).public(), groups: groups.iter().map(|it| (*it).into()).collect() }
}

fn of(group: &str, count: u32) -> Requirement {
    Requirement { group: Some(group.into()), count }
}

fn anybody(count: u32) -> Requirement {
    Requirement { group: None, count }
}

fn document() -> Document {
    Document {
        batch_id: BatchId::from_uuid(Uuid::from_u128(1)),
        tenant_id: TenantId::from_uuid(Uuid::from_u128(2)),
        reason: "firmware".into(),
        requested_by: "requester".into(),
        root: "00".repeat(32),
        size: 1,
        created_at_ms: NOW_MS,
        expires_at_ms: NOW_MS + 100_000,
    }
}

fn approval(number: u8) -> Approval {
    Approval::sign(&key(number), &document(), NOW_MS, LATER_MS)
}

/// Four people: two in a, one in both, one in b.
fn people(require: Vec<Requirement>) -> Policy {
    let approvers = vec![
        approver("ann", 1, &["a"]),
        approver("abe", 2, &["a"]),
        approver("cat", 3, &["a", "b"]),
        approver("bob", 4, &["b"]),
        approver("requester", 5, &["a", "b"]),
    ];
    Policy { approvers, require }
}

fn missing(policy: &Policy, by: &[u8]) -> u32 {
    let approvals: Vec<_> = by.iter().map(|&it| approval(it)).collect();
    let tally = policy.tally(&document(), &approvals, NOW_MS);
    assert_eq!(tally.is_met, tally.missing == 0);
    tally.missing
}

#[test]
fn so_many_of_all() {
    let policy = people(vec![anybody(2)]);
    let table = [(&[][..], 2), (&[1], 1), (&[1, 4], 0), (&[3, 4, 1], 0)];
    for (by, expected) in table {
        assert_eq!(missing(&policy, by), expected, "{by:?}");
    }
}

#[test]
fn two_of_a_and_one_of_b_are_three_people() {
    let policy = people(vec![of("a", 2), of("b", 1)]);
    let table = [
        (&[][..], 3),
        (&[1, 2], 1),
        (&[1, 2, 4], 0),
        (&[1, 2, 3], 0),
        (&[1, 3, 4], 0),
        // Who is in both groups fills one place.
        (&[1, 3], 1),
        (&[3, 4], 1),
        (&[1, 4], 1),
        (&[3], 2),
    ];
    for (by, expected) in table {
        assert_eq!(missing(&policy, by), expected, "{by:?}");
    }
}

#[test]
fn a_key_that_is_listed_or_sent_twice_counts_once() {
    let mut policy = people(vec![anybody(2)]);
    assert_eq!(missing(&policy, &[1, 1, 1]), 1);
    policy.approvers.push(approver("ann", 1, &["b"]));
    assert_eq!(policy.check(), Ok(()));
    assert_eq!(missing(&policy, &[1, 1]), 1);
    assert_eq!(missing(&people(vec![of("a", 1), of("b", 1)]), &[3, 3]), 1);
    // Both entries say what groups she is in, for one place.
    policy.require = vec![of("b", 1)];
    assert_eq!(missing(&policy, &[1]), 0);
    policy.require = vec![of("a", 1), of("b", 1)];
    assert_eq!(missing(&policy, &[1]), 1);
}

#[test]
fn two_keys_of_one_person_count_once() {
    let mut policy = people(vec![anybody(2)]);
    policy.approvers.push(approver("ann", 9, &["b"]));
    assert_eq!(missing(&policy, &[1, 9]), 1);
    assert_eq!(missing(&policy, &[1, 9, 2]), 0);
    policy.require = vec![of("a", 1), of("b", 1)];
    assert_eq!(missing(&policy, &[1, 9]), 1);
}

#[test]
fn each_reason_for_which_an_approval_does_not_count_is_its_own() {
    let policy = people(vec![anybody(1)]);
    let signed = |number, at_ms, until_ms| Approval::sign(&key(number), &document(), at_ms, until_ms);
    let ahead = NOW_MS + sign::MAX_AHEAD_MS;
    let wrong = |name: &str| Void::Signature { name: name.into(), error: sign::Error::Wrong(sign::Purpose::Batch) };
    let swapped = Document { reason: "another".into(), ..document() };
    let cases = [
        (signed(1, NOW_MS, LATER_MS), None),
        (signed(1, ahead, ahead + 1), None),
        (signed(1, ahead + 1, ahead + 2), Some(Void::Early("ann".into()))),
        (signed(1, 0, NOW_MS), Some(Void::Expired("ann".into()))),
        (signed(1, 0, NOW_MS + 1), None),
        (signed(8, NOW_MS, LATER_MS), Some(Void::UnknownKey(key(8).public()))),
        (signed(5, NOW_MS, LATER_MS), Some(Void::Requester("requester".into()))),
        (Approval { expires_at_ms: LATER_MS + 1, ..approval(1) }, Some(wrong("ann"))),
        (Approval { approver: key(2).public(), ..approval(1) }, Some(wrong("abe"))),
        (Approval::sign(&key(1), &swapped, NOW_MS, LATER_MS), Some(wrong("ann"))),
    ];
    for (approval, void) in cases {
        let tally = policy.tally(&document(), &[approval], NOW_MS);
        assert_eq!(tally.void, Vec::from_iter(void.clone()));
        assert_eq!(tally.is_met, void.is_none(), "{approval:?}");
    }
    // What does not count takes nothing away from what does.
    let tally = policy.tally(&document(), &[approval(8), approval(5), approval(1)], NOW_MS);
    assert!(tally.is_met && tally.void.len() == 2 && tally.by == BTreeSet::from(["ann".to_owned()]), "{tally:?}");
}

#[test]
fn policies_that_nobody_can_meet_are_none() {
    assert_eq!(people(vec![]).check(), Err(BadPolicy::AsksForNobody));
    assert_eq!(people(vec![of("a", 0)]).check(), Err(BadPolicy::AsksForNobody));
    assert_eq!(people(vec![anybody(5)]).check(), Ok(()));
    assert_eq!(people(vec![anybody(6)]).check(), Err(BadPolicy::CannotBeMet));
    assert_eq!(people(vec![anybody(u32::MAX), anybody(u32::MAX)]).check(), Err(BadPolicy::CannotBeMet));
    assert_eq!(people(vec![of("c", 1)]).check(), Err(BadPolicy::CannotBeMet));
    assert_eq!(people(vec![of("a", 4), of("b", 2)]).check(), Err(BadPolicy::CannotBeMet));
    assert_eq!(people(vec![of("a", 3), of("b", 2)]).check(), Ok(()));
    let mut policy = people(vec![anybody(1)]);
    policy.approvers.push(approver("eve", 1, &[]));
    assert_eq!(policy.check(), Err(BadPolicy::KeyOfTwo(key(1).public())));
    assert_eq!(Policy { approvers: Vec::new(), require: vec![anybody(1)] }.check(), Err(BadPolicy::CannotBeMet));
}

/// The largest number of places that people can fill, by trying all ways.
fn most(people: &[usize], places: &[Option<usize>], groups: &[Vec<bool>]) -> usize {
    let Some((&person, rest)) = people.split_first() else { return 0 };
    let mut best = most(rest, places, groups);
    for at in 0..places.len() {
        if places[at].is_none_or(|group| groups[person][group]) {
            let mut left = places.to_vec();
            left.remove(at);
            best = best.max(1 + most(rest, &left, groups));
        }
    }
    best
}

proptest! {
    #[test]
    fn as_many_places_are_filled_as_can_be(
        groups in prop::collection::vec(prop::collection::vec(any::<bool>(), 3), 1..5),
        counts in prop::collection::vec((prop::option::of(0_usize..3), 0_u32..3), 1..4),
        signs in prop::collection::vec(any::<bool>(), 5),
    ) {
        let name = |group: usize| format!("group {group}");
        let approvers = groups.iter().enumerate().map(|(n, is_in)| Approver {
            name: n.to_string(),
            key: key(u8::try_from(n).expect("few")).public(),
            groups: (0..3).filter(|&group| is_in[group]).map(name).collect(),
        });
        let require = counts.iter().map(|&(group, count)| Requirement { group: group.map(name), count });
        let policy = Policy { approvers: approvers.collect(), require: require.collect() };
        let by: Vec<usize> = (0..groups.len()).filter(|&n| signs[n]).collect();
        let places: Vec<Option<usize>> =
            counts.iter().flat_map(|&(group, count)| std::iter::repeat_n(group, count as usize)).collect();
        // Beyond one more place than people, the rest are missing whoever signs.
        prop_assume!(places.len() <= groups.len() + 1);
        let filled = most(&by, &places, &groups);
        let approvals: Vec<_> = by.iter().map(|&n| approval(u8::try_from(n).expect("few"))).collect();
        let tally = policy.tally(&document(), &approvals, NOW_MS);
        prop_assert_eq!(tally.missing as usize, places.len() - filled);
    }
}
