//! Deadlines on a real Postgres.

use bc_proto::manifest::Lane;
use bc_proto::rules::state::{Event, State};
use bc_proto::rules::sweep::due_ms;
use time::OffsetDateTime;

use crate::queue::mark::Mark;
use crate::queue::{enqueue_many, mark, sweep};
use crate::store::{kinds, unix_ms};
use crate::testing::{Fleet, at, command, greeting};

async fn sweep_at(fleet: &Fleet, now: OffsetDateTime) -> Option<usize> {
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let swept = sweep(&mut tx, now, 10).await.expect("a database");
    tx.commit().await.expect("a commit");
    swept
}

#[tokio::test]
async fn promise_04_whatever_its_node_does_a_command_ends_by_its_deadline() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let mut flying = Vec::new();
    for event in [None, Some(Event::Acked), Some(Event::Started)] {
        let id = fleet.enqueue(&node, kind).await.id;
        fleet.claim(&node, epoch, at(1)).await;
        let marks = event.map(|event| Mark { node, epoch, command: id, event });
        mark(&mut *fleet.db().await, marks.as_slice()).await.expect("a database");
        flying.push(id);
    }
    let pending = fleet.enqueue(&node, kind).await.id;

    assert_eq!(sweep_at(&fleet, at(599)).await, Some(0));
    assert_eq!(sweep_at(&fleet, at(600)).await, Some(1));
    assert_eq!(fleet.state(&pending).await, ("expired".into(), "not_after".into()));
    assert_eq!(sweep_at(&fleet, at(659)).await, Some(0), "the kind has a minute");
    assert_eq!(sweep_at(&fleet, at(660)).await, Some(3));
    for id in flying {
        assert_eq!(fleet.state(&id).await, ("failed".into(), "timeout".into()));
    }
}

#[tokio::test]
async fn promise_04_a_kind_that_is_no_longer_registered_gets_the_rules_timeout() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let id = fleet.enqueue(&node, kind).await.id;
    assert!(kinds::withdraw(&mut *fleet.db().await, "test.control").await.expect("a database"));
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, epoch, at(1)).await;
    let due: OffsetDateTime =
        sqlx::query_scalar("select due_at from in_flight").fetch_one(&fleet.pool).await.expect("a row");
    assert_eq!(Some(unix_ms(due)), due_ms(State::Dispatched, unix_ms(at(600)), None));
    assert_eq!(sweep_at(&fleet, at(600 + 899)).await, Some(0));
    assert_eq!(sweep_at(&fleet, at(600 + 900)).await, Some(1));
    assert_eq!(fleet.state(&id).await.1, "timeout");
}

#[tokio::test]
async fn one_sweeper_works_at_a_time_in_bounded_batches() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let commands: Vec<_> = (0..25).map(|_| command(&node, kind)).collect();
    enqueue_many(&mut *fleet.db().await, &crate::trust::Signer::none(), &commands, at(0)).await.expect("a database");
    let mut other = fleet.pool.begin().await.expect("a transaction");
    assert_eq!(sweep(&mut other, at(599), 10).await.expect("a database"), Some(0));
    assert_eq!(sweep_at(&fleet, at(700)).await, None, "another one is at it");
    drop(other);
    // A rollback is sent when the connection is used next; this waits for it.
    let mut batches = Vec::new();
    while batches.last() != Some(&0) {
        batches.extend(sweep_at(&fleet, at(700)).await);
    }
    assert_eq!(batches, [10, 10, 5, 0]);
}
