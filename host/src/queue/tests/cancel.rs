//! Cancelling on a real Postgres.

use bc_proto::id::{CommandId, TenantId};
use bc_proto::manifest::Lane;
use bc_proto::rules::state::{Event, State};

use super::settle::report;
use crate::queue::cancel::Cancellation;
use crate::queue::mark::{Busy, Mark};
use crate::queue::{cancel, mark, requeue, settle};
use crate::testing::{Fleet, at, greeting, uuid};

async fn call_off(fleet: &Fleet, command: &CommandId) -> Option<Cancellation> {
    cancel(&mut *fleet.db().await, &crate::trust::Signer::none(), fleet.tenant, *command, at(5))
        .await
        .expect("a database")
}

async fn topics(fleet: &Fleet) -> Vec<String> {
    fleet.events().await.into_iter().map(|(topic, _)| topic).collect()
}

#[tokio::test]
async fn promise_13_a_pending_command_that_is_cancelled_never_runs() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    assert_eq!(call_off(&fleet, &queued.id).await, Some(Cancellation::Cancelled));
    assert_eq!(fleet.claim(&node, epoch, at(6)).await, []);
    assert_eq!(call_off(&fleet, &queued.id).await, Some(Cancellation::Over(State::Cancelled)));
    let expected = ["node.command.queued", "command.settled", "node.command.cancel-requested"];
    assert_eq!(topics(&fleet).await, expected);
}

#[tokio::test]
async fn promise_13_in_flight_the_node_decides_and_its_true_outcome_stands() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, epoch, at(1)).await;
    for (event, state) in
        [(None, State::Dispatched), (Some(Event::Acked), State::Acked), (Some(Event::Started), State::Running)]
    {
        let marks = event.map(|event| Mark { node, epoch, command: queued.id, event });
        mark(&mut *fleet.db().await, marks.as_slice()).await.expect("a database");
        let expected = Cancellation::Requested { node, state };
        assert_eq!(call_off(&fleet, &queued.id).await, Some(expected));
    }
    let session = fleet.hello(&greeting(&node), at(6)).await;
    assert!(session.replay[0].is_cancelled, "the next session asks it again");
    let reports = [report(&node, session.epoch, &queued.id, Event::ReportedSucceeded)];
    settle(&mut *fleet.db().await, &reports, at(7)).await.expect("a database");
    assert_eq!(call_off(&fleet, &queued.id).await, Some(Cancellation::Over(State::Succeeded)));
    let expected = ["node.command.queued", "node.command.cancel-requested", "command.settled"];
    assert_eq!(topics(&fleet).await, expected, "asked for three times, published once");
}

#[tokio::test]
async fn promise_13_a_command_that_was_called_off_is_not_sent_again_after_busy() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, epoch, at(1)).await;
    call_off(&fleet, &queued.id).await;
    let busy = [Busy { node, epoch, command: queued.id }];
    assert_eq!(requeue(&mut *fleet.db().await, &busy, at(6), || 0.5).await.expect("a database").len(), 0);
    assert_eq!(fleet.state(&queued.id).await.0, "cancelled");
    assert_eq!(fleet.claim(&node, epoch, at(100)).await, []);
}

#[tokio::test]
async fn promise_13_cancel_and_claim_at_the_same_time_agree() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    for round in 0..40 {
        let queued = fleet.enqueue(&node, kind).await;
        let (claimed, cancelled) = if round % 2 == 0 {
            tokio::join!(fleet.claim(&node, epoch, at(1)), call_off(&fleet, &queued.id))
        } else {
            let (cancelled, claimed) = tokio::join!(call_off(&fleet, &queued.id), fleet.claim(&node, epoch, at(1)));
            (claimed, cancelled)
        };
        let is_cancelled = cancelled == Some(Cancellation::Cancelled);
        assert_ne!(is_cancelled, claimed.len() == 1, "round {round}: {cancelled:?}");
        let expected = if is_cancelled { "cancelled" } else { "dispatched" };
        assert_eq!(fleet.state(&queued.id).await.0, expected);
    }
}

#[tokio::test]
async fn what_another_tenant_has_is_not_found() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let stranger = TenantId::from_uuid(uuid());
    let found = cancel(&mut *fleet.db().await, &crate::trust::Signer::none(), stranger, queued.id, at(5))
        .await
        .expect("a database");
    assert_eq!(found, None);
    assert_eq!(fleet.state(&queued.id).await.0, "pending");
}
