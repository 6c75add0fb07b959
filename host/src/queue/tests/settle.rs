//! Settling on a real Postgres.

use bc_proto::id::{CommandId, NodeId};
use bc_proto::manifest::Lane;
use bc_proto::rules::state::Event;

use crate::queue::mark::Busy;
use crate::queue::settle::Report;
use crate::queue::{requeue, settle};
use crate::store::commands;
use crate::testing::{Fleet, at, greeting};

pub(super) fn report(node: &NodeId, epoch: u64, command: &CommandId, event: Event) -> Report {
    Report { node: *node, epoch, command: *command, event, reason: "why".into(), result: b"{}".to_vec(), at: at(5) }
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
