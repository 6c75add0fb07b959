//! What modules call, and decisions that meet.

use std::sync::Arc;

use bc_proto::batch::{Approval, Leaf};
use bc_proto::id::{BatchId, CommandId, NodeId};
use bc_proto::manifest::Lane;
use sqlx::PgConnection;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::bus::{Bus, Signal};
use crate::loops;
use crate::queue::enqueue::{NewCommand, Outcome};
use crate::store::batches::State;
use crate::store::kinds::Digest;
use crate::testing::{Fleet, approver_key, at, command, two_of_a_and_one_of_b, uuid};
use crate::trust::{Settings, Signer};
use crate::world::World;

const KIND: &str = "test.control-destructive";

/// A fleet with a node, a destructive kind, and a batch for both.
struct Stage {
    fleet: Fleet,
    settings: Settings,
    node: NodeId,
    kind: Digest,
    batch: Batch,
}

fn proposal(fleet: &Fleet, nodes: &[NodeId], key: &str) -> Proposal {
    let leaf = |node: &NodeId| Leaf { subject: node.to_string(), kind: KIND.into(), payload_sha256: None };
    Proposal {
        id: BatchId::from_uuid(uuid()),
        tenant: fleet.tenant,
        requested_by: "module/remediation".into(),
        idempotency_key: key.into(),
        reason: "row remapping is pending".into(),
        scope: nodes.iter().map(leaf).collect(),
        lasts: Duration::hours(1),
    }
}

async fn stage() -> Arc<Stage> {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &["destructive"]).await;
    let created = create(&mut *fleet.db().await, &proposal(&fleet, &[node], "remediation:1"), at(0)).await;
    let Created::New(batch) = created.expect("a database") else { panic!("it is new") };
    Arc::new(Stage { settings: two_of_a_and_one_of_b(), fleet, node, kind, batch })
}

impl Stage {
    fn id(&self) -> BatchId {
        self.batch.document.batch_id
    }

    fn command(&self) -> NewCommand {
        NewCommand { batch: Some(self.id()), ..command(&self.node, self.kind) }
    }

    async fn approve(&self, number: u8) -> Result<Approved, NotApproved> {
        let approval = Approval::sign(&approver_key(number), &self.batch.document, 0, u64::from(u32::MAX) * 1_000);
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let done = approve(&mut tx, &self.settings, self.fleet.tenant, self.id(), &approval, at(1)).await;
        tx.commit().await.expect("a commit");
        done
    }

    async fn reject(&self) -> Result<Batch, NotRejected> {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let done = reject(&mut tx, self.fleet.tenant, self.id(), "ann", "no", at(1)).await;
        tx.commit().await.expect("a commit");
        done
    }

    /// Queues one command in the batch.
    async fn enqueue(&self) -> Result<CommandId, Refused> {
        let new = self.command();
        let id = new.id;
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let outcome = enqueue(&mut tx, &self.settings, &Signer::none(), vec![new], at(1)).await.map(|_| id);
        tx.commit().await.expect("a commit");
        outcome
    }

    /// `held`, `free`, or how it ended.
    async fn stands(&self, command: CommandId) -> String {
        let found = crate::store::commands::find(&mut *self.fleet.db().await, self.fleet.tenant, command).await;
        let found = found.expect("a database").expect("it is there");
        match (found.is_held, found.reason.as_str()) {
            (true, _) => "held".into(),
            (false, "") => "free".into(),
            (false, reason) => reason.into(),
        }
    }

    async fn state(&self) -> State {
        let found = batches::find(&mut *self.fleet.db().await, self.fleet.tenant, self.id()).await;
        found.expect("a database").expect("it is there").state
    }
}

/// Waits until somebody waits for a lock in this database.
async fn blocked(db: &mut PgConnection) {
    let waits = "select exists (select from pg_stat_activity
                                where datname = current_database() and wait_event_type = 'Lock')";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut *db).await.expect("a database") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_module_makes_a_batch_and_queues_under_it_in_its_own_transaction() {
    let stage = stage().await;
    let fleet = &stage.fleet;
    let other = fleet.node().await;
    let proposal = proposal(fleet, &[stage.node, other], "remediation:2");
    let commands = |batch: Option<BatchId>| -> Vec<NewCommand> {
        [stage.node, other].iter().map(|node| NewCommand { batch, ..command(node, stage.kind) }).collect()
    };
    // All of it or nothing.
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    create(&mut tx, &proposal, at(0)).await.expect("a database");
    enqueue(&mut tx, &stage.settings, &Signer::none(), commands(Some(proposal.id)), at(0))
        .await
        .expect("it is in the scope");
    tx.rollback().await.expect("a rollback");
    assert_eq!(batches::find(&mut *fleet.db().await, fleet.tenant, proposal.id).await.expect("a database"), None);

    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let refused = enqueue(&mut tx, &stage.settings, &Signer::none(), commands(None), at(0)).await;
    assert!(matches!(&refused, Err(Refused::BatchRequired { kind }) if kind == KIND), "{refused:?}");
    let created = create(&mut tx, &proposal, at(0)).await.expect("a database");
    assert!(matches!(created, Created::New(_)), "{created:?}");
    let queued = enqueue(&mut tx, &stage.settings, &Signer::none(), commands(Some(proposal.id)), at(0))
        .await
        .expect("they are in the scope");
    tx.commit().await.expect("a commit");
    for outcome in queued {
        let Outcome::Queued(queued) = outcome else { panic!("{outcome:?}") };
        assert_eq!(stage.stands(queued.id).await, "held");
    }
    // A module that begins again finds its batch; one that means something else does not.
    let mut db = fleet.db().await;
    let again = Proposal { id: BatchId::from_uuid(uuid()), ..proposal.clone() };
    assert!(
        matches!(create(&mut db, &again, at(9)).await, Ok(Created::Existing(batch)) if batch.document.batch_id == proposal.id)
    );
    let other = Proposal { reason: "another".into(), ..again };
    assert_eq!(create(&mut db, &other, at(9)).await.expect("a database"), Created::Conflict(proposal.id));
}

#[tokio::test]
async fn one_command_that_is_refused_refuses_all_of_a_transaction() {
    let stage = stage().await;
    let other = stage.fleet.node().await;
    let outside = NewCommand { node: other, ..stage.command() };
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    let refused = enqueue(&mut tx, &stage.settings, &Signer::none(), vec![stage.command(), outside], at(0)).await;
    assert!(matches!(refused, Err(Refused::OutOfScope { node, .. }) if node == other), "{refused:?}");
    let unknown = NewCommand { batch: Some(BatchId::from_uuid(uuid())), ..stage.command() };
    let refused = enqueue(&mut tx, &stage.settings, &Signer::none(), vec![unknown], at(0)).await;
    assert!(matches!(refused, Err(Refused::UnknownBatch(_))), "{refused:?}");
    let late = enqueue(&mut tx, &stage.settings, &Signer::none(), vec![stage.command()], at(3_600)).await;
    assert!(
        matches!(late, Err(Refused::Over { state: State::Expired, .. })),
        "its time is over, swept or not: {late:?}"
    );
}

#[tokio::test]
async fn a_command_that_joins_while_the_last_approval_comes_is_let_go() {
    let stage = stage().await;
    for number in [1, 2] {
        stage.approve(number).await.expect("it counts");
    }
    // It joins first, and the approval waits for it.
    let new = stage.command();
    let early = new.id;
    let mut joining = stage.fleet.pool.begin().await.expect("a transaction");
    enqueue(&mut joining, &stage.settings, &Signer::none(), vec![new], at(1)).await.expect("it is in the scope");
    let here = stage.clone();
    let approving: JoinHandle<_> = tokio::spawn(async move { here.approve(3).await });
    blocked(&mut *stage.fleet.db().await).await;
    joining.commit().await.expect("a commit");
    let approved = approving.await.expect("no panic").expect("it counts");
    assert_eq!((approved.released, approved.batch.state), (vec![stage.node], State::Approved));
    assert_eq!(stage.stands(early).await, "free");
    let late = stage.enqueue().await.expect("it is in the scope");
    assert_eq!(stage.stands(late).await, "free");
}

#[tokio::test]
async fn a_command_that_waits_for_the_last_approval_to_be_written_is_not_held() {
    let stage = stage().await;
    for number in [1, 2] {
        stage.approve(number).await.expect("it counts");
    }
    let approval = Approval::sign(&approver_key(3), &stage.batch.document, 0, u64::from(u32::MAX) * 1_000);
    let mut approving = stage.fleet.pool.begin().await.expect("a transaction");
    let done = approve(&mut approving, &stage.settings, stage.fleet.tenant, stage.id(), &approval, at(1)).await;
    assert!(done.expect("it counts").tally.is_met);
    let here = stage.clone();
    let joining = tokio::spawn(async move { here.enqueue().await });
    blocked(&mut *stage.fleet.db().await).await;
    approving.commit().await.expect("a commit");
    let joined = joining.await.expect("no panic").expect("it is in the scope");
    assert_eq!(stage.stands(joined).await, "free");
}

#[tokio::test]
async fn a_command_that_joins_while_the_batch_is_rejected_is_cancelled_or_refused() {
    let stage = stage().await;
    let new = stage.command();
    let early = new.id;
    let mut joining = stage.fleet.pool.begin().await.expect("a transaction");
    enqueue(&mut joining, &stage.settings, &Signer::none(), vec![new], at(1)).await.expect("it is in the scope");
    let here = stage.clone();
    let rejecting = tokio::spawn(async move { here.reject().await });
    blocked(&mut *stage.fleet.db().await).await;
    joining.commit().await.expect("a commit");
    rejecting.await.expect("no panic").expect("it is open");
    assert_eq!(stage.stands(early).await, "batch-rejected");
    assert!(matches!(stage.enqueue().await, Err(Refused::Over { state: State::Rejected, .. })));
}

#[tokio::test]
async fn two_approvals_at_once_both_count() {
    let stage = stage().await;
    let held = stage.enqueue().await.expect("it is in the scope");
    stage.approve(1).await.expect("it counts");
    let approval = Approval::sign(&approver_key(2), &stage.batch.document, 0, u64::from(u32::MAX) * 1_000);
    let mut first = stage.fleet.pool.begin().await.expect("a transaction");
    let done = approve(&mut first, &stage.settings, stage.fleet.tenant, stage.id(), &approval, at(1)).await;
    assert_eq!(done.expect("it counts").tally.missing, 1);
    let here = stage.clone();
    let second = tokio::spawn(async move { here.approve(3).await });
    blocked(&mut *stage.fleet.db().await).await;
    first.commit().await.expect("a commit");
    let second = second.await.expect("no panic").expect("it counts");
    assert!(second.tally.is_met, "it sees the first: {second:?}");
    assert_eq!(stage.stands(held).await, "free");
}

#[tokio::test]
async fn of_an_approval_and_a_rejection_at_once_the_batch_ends_rejected() {
    for rejects_first in [true, false] {
        let stage = stage().await;
        let held = stage.enqueue().await.expect("it is in the scope");
        for number in [1, 2] {
            stage.approve(number).await.expect("it counts");
        }
        let mut first = stage.fleet.pool.begin().await.expect("a transaction");
        let here = stage.clone();
        if rejects_first {
            reject(&mut first, stage.fleet.tenant, stage.id(), "ann", "no", at(1)).await.expect("it is open");
            let second = tokio::spawn(async move { here.approve(3).await });
            blocked(&mut *stage.fleet.db().await).await;
            first.commit().await.expect("a commit");
            let late = second.await.expect("no panic");
            assert!(matches!(late, Err(NotApproved::Over(_, State::Rejected))), "{late:?}");
        } else {
            let approval = Approval::sign(&approver_key(3), &stage.batch.document, 0, u64::from(u32::MAX) * 1_000);
            let done = approve(&mut first, &stage.settings, stage.fleet.tenant, stage.id(), &approval, at(1)).await;
            assert!(done.expect("it counts").tally.is_met);
            let second = tokio::spawn(async move { here.reject().await });
            blocked(&mut *stage.fleet.db().await).await;
            first.commit().await.expect("a commit");
            second.await.expect("no panic").expect("it is approved, and not over");
        }
        // Not sent yet, so it is called off in either order.
        assert_eq!(stage.stands(held).await, "batch-rejected");
        assert_eq!(stage.state().await, State::Rejected);
    }
}

#[tokio::test]
async fn whatever_meets_no_command_stays_held_in_a_batch_that_is_decided() {
    let stage = stage().await;
    let mut joining = Vec::new();
    let mut approving = Vec::new();
    for round in 0..12 {
        let here = stage.clone();
        joining.push(tokio::spawn(async move { here.enqueue().await }));
        if round % 4 == 3 {
            let here = stage.clone();
            approving.push(tokio::spawn(async move { here.approve(round / 4 + 1).await }));
        }
    }
    for task in approving {
        task.await.expect("no panic").expect("it counts");
    }
    for task in joining {
        let command = task.await.expect("no panic").expect("it is in the scope");
        assert_eq!(stage.stands(command).await, "free");
    }
    assert_eq!(stage.state().await, State::Approved);
}

#[tokio::test]
async fn the_loop_ends_a_batch_whose_time_is_over_and_what_waits_in_it_and_tells() {
    let stage = stage().await;
    // It may wait for longer than its batch.
    let new = NewCommand { not_after: at(7_200), ..stage.command() };
    let held = new.id;
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    enqueue(&mut tx, &stage.settings, &Signer::none(), vec![new], at(1)).await.expect("in its scope");
    tx.commit().await.expect("a commit");
    let (bus, stop) = (Bus::local(), CancellationToken::new());
    let mut told = bus.subscribe();
    let world = World::new(|| at(3_600), |_| unreachable!("nothing is named"));
    loops::start(&stage.fleet.pool, &bus, &world, &stop);
    while !matches!(told.recv().await.expect("the bus lives"), Signal::Events) || stage.state().await != State::Expired
    {
    }
    stop.cancel();
    assert_eq!(stage.stands(held).await, "batch-expired");
}
