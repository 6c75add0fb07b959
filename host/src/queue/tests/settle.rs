//! Settling on a real Postgres.

use bc_proto::id::{CommandId, NodeId};
use bc_proto::manifest::Lane;
use bc_proto::rules::state::Event;

use sqlx::PgConnection;

use crate::queue::mark::{Busy, Mark};
use crate::queue::settle::Report;
use crate::queue::{enqueue_many, mark, requeue, settle};
use crate::store::commands;
use crate::testing::{Fleet, at, command, greeting};

pub(super) fn report(node: &NodeId, epoch: u64, command: &CommandId, event: Event) -> Report {
    Report {
        node: *node,
        epoch,
        command: *command,
        event,
        reason: "why".into(),
        result: b"{}".to_vec(),
        at: Some(at(5)),
        node_sig: Vec::new(),
        attested_by: None,
    }
}

#[tokio::test]
async fn a_result_lands_once_with_its_event_and_later_ones_are_absorbed() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, epoch, at(1)).await;
    let mut db = fleet.db().await;
    let of = |event| report(&node, epoch, &queued.id, event);

    let both = [of(Event::ReportedSucceeded), of(Event::ReportedFailed)];
    let settled = settle(&mut db, &both, at(6)).await.expect("a database");
    assert_eq!((settled.now, settled.before, settled.dropped), (vec![queued.id], vec![], vec![]));
    let late = settle(&mut db, &[of(Event::ReportedCancelled)], at(7)).await.expect("a database");
    assert_eq!((late.now, late.before, late.dropped), (vec![], vec![queued.id], vec![]));

    let found = commands::find(&mut db, fleet.tenant, queued.id).await.expect("a database");
    let found = found.expect("it is there");
    assert_eq!(found.state.to_string(), "succeeded");
    assert_eq!((found.settled_at, found.result.as_deref()), (Some(at(6)), Some(&b"{}"[..])));
    let topics: Vec<_> = fleet.events().await.into_iter().map(|(topic, _)| topic).collect();
    assert_eq!(topics, ["node.command.queued", "command.settled"]);
}

#[tokio::test]
async fn a_report_of_a_command_that_is_ready_again_lands_too() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, epoch, at(1)).await;
    let busy = [Busy { node, epoch, command: queued.id }];
    requeue(&mut *fleet.db().await, &busy, at(1), || 0.0).await.expect("a database");
    let reports = [report(&node, epoch, &queued.id, Event::ReportedSucceeded)];
    let settled = settle(&mut *fleet.db().await, &reports, at(6)).await.expect("a database");
    assert_eq!(settled.now, std::slice::from_ref(&queued.id));
    assert_eq!(fleet.claim(&node, epoch, at(100)).await, [], "it is not sent again");
    assert_eq!(fleet.state(&queued.id).await, ("succeeded".into(), "why".into()));
}

#[tokio::test]
async fn promise_09_reports_of_an_older_session_or_another_node_are_dropped() {
    let fleet = Fleet::new().await;
    let (node, other) = (fleet.node().await, fleet.node().await);
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let old = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, old, at(1)).await;
    let new = fleet.hello(&greeting(&node), at(2)).await.epoch;
    let of_other = fleet.hello(&greeting(&other), at(2)).await.epoch;
    let unknown = CommandId::from_uuid(crate::testing::uuid());
    for stray in [
        report(&node, old, &queued.id, Event::ReportedFailed),
        report(&other, of_other, &queued.id, Event::ReportedFailed),
        report(&node, new, &unknown, Event::ReportedFailed),
    ] {
        let settled = settle(&mut *fleet.db().await, std::slice::from_ref(&stray), at(6)).await.expect("a database");
        assert_eq!((settled.now, settled.before, settled.dropped), (vec![], vec![], vec![stray.command]));
    }
    assert_eq!(fleet.state(&queued.id).await.0, "dispatched");
    let reports = [report(&node, new, &queued.id, Event::ReportedSucceeded)];
    let settled = settle(&mut *fleet.db().await, &reports, at(6)).await.expect("a database");
    assert_eq!(settled.now, [queued.id], "the session that replayed it");
}

/// Rows of `commands` that this transaction has read through an index.
async fn commands_read(db: &mut PgConnection) -> i64 {
    let read = "select idx_tup_fetch from pg_stat_xact_user_tables where relname = 'commands'";
    sqlx::query_scalar(read).fetch_one(db).await.expect("a statistic")
}

#[tokio::test]
async fn marks_and_reports_read_their_own_commands_however_many_the_node_has() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let many: Vec<_> = (0..2000).map(|_| command(&node, kind)).collect();
    enqueue_many(&mut *fleet.db().await, &crate::trust::Signer::none(), &many, at(0)).await.expect("a database");
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let claimed = fleet.claim(&node, epoch, at(1)).await;
    let ids: Vec<_> = claimed.iter().map(|it| it.deliver.command).collect();

    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let mark_of = |id: &CommandId| Mark { node, epoch, command: *id, event: Event::Started };
    let marked = mark(&mut tx, &ids.iter().map(mark_of).collect::<Vec<_>>()).await.expect("a database");
    let reports: Vec<_> = ids.iter().map(|id| report(&node, epoch, id, Event::ReportedSucceeded)).collect();
    let settled = settle(&mut tx, &reports, at(6)).await.expect("a database");
    assert_eq!((marked, settled.now.len()), (8, 8));
    // Each is looked up once by either statement. The planner has no statistics, as in the first minute of a database.
    let read = commands_read(&mut tx).await;
    assert!(read <= 32, "{read} rows were read");
}
