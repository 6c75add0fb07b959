//! `commands.cancel`.

use bc_proto::id::{CommandId, NodeId};
use bc_proto::manifest::Lane;
use bc_proto::rules::state::{Event, State};
use serde_json::json;

use super::Api;
use crate::bus::Signal;
use crate::queue::mark::Mark;
use crate::queue::settle::Report;
use crate::queue::{self, mark, settle};
use crate::testing::{at, greeting};

/// One command in each of the nine states, on one node.
pub(crate) async fn in_every_state(api: &Api) -> (NodeId, Vec<(State, CommandId)>) {
    let fleet = &api.fleet;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let mut commands = Vec::new();
    let events = [
        (State::Dispatched, None),
        (State::Acked, Some(Event::Acked)),
        (State::Running, Some(Event::Started)),
        (State::Succeeded, Some(Event::ReportedSucceeded)),
        (State::Failed, Some(Event::ReportedFailed)),
        (State::Rejected, Some(Event::ReportedRejected)),
    ];
    for (state, event) in events {
        let id = fleet.enqueue(&node, kind).await.id;
        assert_eq!(fleet.claim(&node, epoch, at(1)).await.len(), 1);
        let mut db = fleet.db().await;
        match event {
            None => {}
            Some(event) if state.is_terminal() => {
                let reason = if state == State::Succeeded { "" } else { "a-reason" };
                let result = if state == State::Succeeded { br#"{"a":1}"#.to_vec() } else { Vec::new() };
                let report = Report {
                    node,
                    epoch,
                    command: id,
                    event,
                    reason: reason.into(),
                    result,
                    at: Some(at(2)),
                    node_sig: Vec::new(),
                    attested_by: None,
                };
                settle(&mut db, &[report], at(2)).await.expect("a database");
            }
            Some(event) => {
                mark(&mut db, &[Mark { node, epoch, command: id, event }]).await.expect("a database");
            }
        }
        commands.push((state, id));
    }
    let id = fleet.enqueue(&node, kind).await.id;
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    assert_eq!(queue::sweep(&mut tx, at(601), 100).await.expect("a database"), Some(1));
    tx.commit().await.expect("a commit");
    commands.push((State::Expired, id));
    let id = fleet.enqueue(&node, kind).await.id;
    queue::cancel(&mut *fleet.db().await, &crate::trust::Signer::none(), fleet.tenant, id, at(5))
        .await
        .expect("a database");
    commands.push((State::Cancelled, id));
    commands.push((State::Pending, fleet.enqueue(&node, kind).await.id));
    (node, commands)
}

#[tokio::test]
async fn promise_13_cancel_in_every_state() {
    let api = Api::new().await;
    let (node, commands) = in_every_state(&api).await;
    for (state, id) in commands {
        let mut signals = api.app.bus.subscribe();
        let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "commandId": id.to_string() });
        let before = api.call("commands.get", reference.clone()).await.ok();
        assert_eq!(before["state"], state.to_string());
        let after = api.call("commands.cancel", reference.clone()).await.ok();
        let mut told = Vec::new();
        while let Ok(signal) = signals.try_recv() {
            told.push(signal);
        }
        if state.is_terminal() {
            assert_eq!(after, before, "what is over stays as it is");
            assert_eq!(told, []);
        } else if state == State::Pending {
            assert_eq!((&after["state"], &after["reason"]), (&json!("cancelled"), &json!("cancelled")));
            assert_eq!(told, [Signal::Events]);
        } else {
            assert_eq!(after["state"], state.to_string(), "the node decides");
            assert_eq!(after["cancelRequestedAt"], "2027-01-15T08:01:40Z");
            assert_eq!(told, [Signal::Cancel { node }, Signal::Events]);
        }
        assert_eq!(api.call("commands.cancel", reference).await.ok(), after, "asking again changes nothing");
    }
}
