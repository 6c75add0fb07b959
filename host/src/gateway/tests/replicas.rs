//! Several replicas over one Postgres.

use bc_proto::manifest::Lane;

use super::*;

#[tokio::test]
async fn promise_11_what_one_replica_queues_and_cancels_reaches_a_session_on_the_other_and_killing_it_loses_nothing() {
    let site = Site::new().await;
    let (here, there) = (site.replica("here").await, site.replica("there").await);
    let machine = site.machine(&here).await;
    let kind = site.fleet.kind(Lane::Control, &[]).await;
    let mut link = machine.open(&site.authority, &there).await.expect("it may enter");
    let first = site.enqueue(machine.node(), kind).await;
    here.tell_work(machine.node());
    assert_eq!(link.delivered().await.command_id, first.to_string());
    link.say(ack(first)).await;
    site.reaches(first, "acked").await;
    queue::cancel(
        &mut *site.fleet.db().await,
        &crate::trust::Signer::none(),
        site.fleet.tenant,
        first,
        site.world().now(),
    )
    .await
    .expect("a database");
    here.bus.tell(Signal::Cancel { node: machine.node() });
    let cancel = to_node::Frame::Cancel(v1::Cancel { command_id: first.to_string(), signature: None });
    assert_eq!(link.next().await, cancel);

    drop(there);
    assert_ne!(link.end().await, Code::Ok, "it did not say goodbye");
    let second = site.enqueue(machine.node(), kind).await;
    here.tell_work(machine.node());
    let mut link = machine.open(&site.authority, &here).await.expect("it may enter");
    assert_eq!(link.delivered().await.command_id, first.to_string(), "replayed");
    let mut rest = Vec::new();
    while rest.len() < 2 || !rest.iter().any(|it| matches!(it, to_node::Frame::Deliver(_))) {
        rest.push(link.next().await);
    }
    assert_eq!(rest[0], cancel, "still to be stopped");
    link.report(first, v1::Report::Cancelled).await;
    link.report(second, v1::Report::Succeeded).await;
    site.reaches(first, "cancelled").await;
    site.reaches(second, "succeeded").await;
}

#[tokio::test]
async fn promise_09_a_session_taken_over_by_another_replica_ends_at_the_next_look() {
    let site = Site::new().await;
    let (here, there) = (site.replica("here").await, site.replica("there").await);
    let machine = site.machine(&here).await;
    let kind = site.fleet.kind(Lane::Control, &[]).await;
    let mut old = machine.open(&site.authority, &here).await.expect("it may enter");
    let id = site.enqueue(machine.node(), kind).await;
    here.tell_work(machine.node());
    old.delivered().await;
    let mut new = machine.open(&site.authority, &there).await.expect("it may enter");
    assert_eq!(new.delivered().await.command_id, id.to_string());
    old.report(id, v1::Report::Failed).await;
    assert_eq!(old.end().await, Code::Aborted, "the report that had no effect makes the gateway look");
    assert_eq!(site.state(id).await, "dispatched");
    new.report(id, v1::Report::Succeeded).await;
    new.acknowledged().await;
    assert_eq!(site.state(id).await, "succeeded");
}
