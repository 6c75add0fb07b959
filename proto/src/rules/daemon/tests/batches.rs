//! Destructive commands, with and without a batch.

use super::*;
use crate::batch::{Approval, Approved, Document, Leaf, tree};
use crate::id::{BatchId, TenantId};
use crate::rules::approval::{Approver, Policy, Requirement};
use crate::rules::trust::HOUR_MS;
use crate::sign::SecretKey;

fn trust(per_hour: u32) -> TrustBundle {
    let approver = |n| Approver { name: format!("approver {n}"), key: key(n).public(), groups: Vec::new() };
    let require = vec![Requirement { group: None, count: 2 }];
    let approvers = Some(Policy { approvers: vec![approver(1), approver(2)], require });
    TrustBundle { approvers, unbatched_destructive_per_hour: per_hour, ..TrustBundle::NONE }
}

fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

/// A destructive command that is welcome for long.
fn destructive(seq: u64) -> Deliver {
    Deliver { not_after_ms: 3 * HOUR_MS, ..deliver(seq, "reboot") }
}

/// The same in a batch that was approved.
fn batched(seq: u64) -> Deliver {
    let mut deliver = destructive(seq);
    let scope = [Leaf { subject: deliver.node.to_string(), kind: deliver.kind.clone(), payload_sha256: None }];
    let tree = tree(&scope);
    let document = Document {
        batch_id: BatchId::from_uuid(Uuid::from_u128(1)),
        tenant_id: TenantId::from_uuid(Uuid::from_u128(2)),
        reason: "firmware".into(),
        requested_by: "requester".into(),
        root: hex::encode(tree.root()),
        size: 1,
        created_at_ms: 1_000,
        expires_at_ms: 3 * HOUR_MS,
    };
    let approvals = [1, 2].map(|n| Approval::sign(&key(n), &document, 1_000, 3 * HOUR_MS)).to_vec();
    let proof = tree.prove(0).expect("it is there");
    deliver.batch = Some(document.batch_id);
    deliver.approved = Some(Box::new(Approved { document, index: 0, binds_payload: false, proof, approvals }));
    deliver
}

fn world(now_ms: u64, trust: &TrustBundle) -> World<'_> {
    World { now_ms, trust, ..WORLD }
}

/// What becomes of a delivery: `started`, or why not.
fn outcome(core: &mut Core, deliver: Deliver, world: &World<'_>, journal: &mut Vec<Record>) -> String {
    let command = deliver.command;
    let step = core.on(delivered(1, deliver), world);
    let said = reports(&step).iter().map(|(report, reason)| format!("{report:?} {reason}")).collect::<Vec<_>>();
    let is_started = step.start.len() == 1;
    assert_eq!(is_started, said == ["Running "], "{said:?}");
    journal.extend(step.save);
    if is_started {
        // The worker is free again for the next one.
        journal.extend(core.on(succeeded(command), world).save);
        return "started".into();
    }
    said.join(", ")
}

#[test]
fn a_destructive_command_runs_in_an_approved_batch_and_not_outside() {
    let trust = trust(0);
    let world = world(2_000, &trust);
    let (mut core, mut journal) = open();
    assert_eq!(outcome(&mut core, destructive(1), &world, &mut journal), "Rejected BATCH_UNAPPROVED");
    assert_eq!(outcome(&mut core, batched(2), &world, &mut journal), "started");
    let stripped = Deliver { approved: None, ..batched(3) };
    assert_eq!(outcome(&mut core, stripped, &world, &mut journal), "Rejected BATCH_UNAPPROVED");
    let mut one = batched(4);
    one.approved.as_mut().expect("it is approved").approvals.pop();
    let step = core.on(delivered(1, one), &world);
    assert_eq!(reports(&step), [(Report::Rejected, "BATCH_UNAPPROVED")]);
    let Some(Frame::Update(update)) = step.send.last() else { panic!("an update: {step:?}") };
    assert_eq!(update.result, br#"{"message":"1 approvals are missing"}"#);
    assert_eq!(outcome(&mut core, deliver(5, "safe"), &world, &mut journal), "started", "no batch is asked of others");
}

#[test]
fn broken_glass_counts_over_restarts_for_an_hour() {
    let trust = trust(2);
    let at = |now_ms| world(now_ms, &trust);
    let (mut core, mut journal) = open();
    assert_eq!(outcome(&mut core, destructive(1), &at(2_000), &mut journal), "started");
    assert_eq!(outcome(&mut core, batched(2), &at(3_000), &mut journal), "started");
    assert_eq!(outcome(&mut core, batched(3), &at(3_000), &mut journal), "started");
    assert_eq!(outcome(&mut core, destructive(4), &at(4_000), &mut journal), "started", "batches did not count");
    assert_eq!(outcome(&mut core, destructive(5), &at(5_000), &mut journal), "Rejected UNBATCHED_LIMIT");
    assert_eq!(outcome(&mut core, batched(6), &at(5_000), &mut journal), "started", "a batch needs no budget");
    // All of it is settled and acknowledged, and still counts.
    let commands = (1..=6).map(id).collect();
    let settled = core.on(Input::UpdateAcked { epoch: 1, commands, settled_below_seq: 7 }, &at(6_000));
    journal.extend(settled.save);

    let book = Book::read(journal.clone()).expect("a journal");
    let (mut core, step) = Core::restart(identity(2), 5, book, 7_000);
    journal.extend(step.save);
    journal.extend(core.on(Input::SessionOpened { epoch: 1, settled_below_seq: 7 }, &at(7_000)).save);
    assert_eq!(outcome(&mut core, destructive(7), &at(8_000), &mut journal), "Rejected UNBATCHED_LIMIT");
    // An hour after the first one there is room for one, and for no more until an hour after the second.
    assert_eq!(outcome(&mut core, destructive(8), &at(2_000 + HOUR_MS - 1), &mut journal), "Rejected UNBATCHED_LIMIT");
    assert_eq!(outcome(&mut core, destructive(9), &at(2_000 + HOUR_MS), &mut journal), "started");
    assert_eq!(outcome(&mut core, destructive(10), &at(3_999 + HOUR_MS), &mut journal), "Rejected UNBATCHED_LIMIT");
    assert_eq!(outcome(&mut core, destructive(11), &at(4_000 + HOUR_MS), &mut journal), "started");
}
