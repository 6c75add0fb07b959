//! Destructive commands that people did not approve.

use bc_proto::batch::{Approval, Approved, tree};
use bc_proto::wire::Deliver;
use serde_json::json;

use super::control_plane::{Batch, ControlPlane, HOUR, counted, key, quorum};
use super::{Scene, Table};
use crate::gateway::SERVER_TIME_MS as NOW;

const NO: &str = "BATCH_UNAPPROVED";

pub(super) async fn play() -> Vec<Table> {
    vec![quorums().await, broken_glass().await]
}

/// What is made of an approved command.
type Forge = fn(&mut Deliver);

async fn quorums() -> Table {
    let mut scene = Scene::new("What people approved", quorum(1, 0)).await;
    let seq = scene.next();
    let alone = scene.honest.command(seq);
    scene.dropped("a destructive command outside batches", NO, &alone).await;
    let attempts: [(&str, bool, Forge); 11] = [
        ("its approvals, taken away", false, |it| it.approved = None),
        ("the approvals of another batch", false, |it| it.approved = Some(Box::new(Batch::new(2, false).approved(0)))),
        ("another batch's approvals under its document", false, |it| {
            let other = Batch::new(2, false);
            approved(it).approvals = vec![other.approval(3), other.approval(4)];
        }),
        ("one approver twice", false, |it| approved(it).approvals[1] = approved(it).approvals[0]),
        ("one approver, and one whom nobody knows", false, |it| {
            approved(it).approvals[1] = Batch::new(1, false).approval(9);
        }),
        ("the requester's own approval", false, |it| approved(it).approvals[1] = Batch::new(1, false).approval(5)),
        ("an approval whose end was put off", false, |it| approved(it).approvals[1].expires_at_ms += 1),
        ("the proof of another leaf", false, |it| *approved(it) = Batch::new(1, false).approved(1)),
        ("another scope, which fits", false, |it| {
            let mut other = Batch::new(1, false);
            other.scope.truncate(1);
            other.document.root = hex::encode(tree(&other.scope).root());
            other.document.size = 1;
            let approvals = approved(it).approvals.clone();
            *approved(it) = Approved { approvals, ..other.approved(0) };
        }),
        ("a later end of the batch", false, |it| approved(it).document.expires_at_ms += 1),
        ("a leaf that binds the payload, as one that does not", true, |it| approved(it).binds_payload = false),
    ];
    for (attempt, bound, forge) in attempts {
        let mut deliver = Batch::new(1, bound).command(scene.next());
        forge(&mut deliver);
        scene.dropped(attempt, NO, &deliver).await;
    }
    let seq = scene.next();
    let batch = Batch::new(3, false);
    let mut deliver = batch.command(seq);
    let over = |seed| Approval::sign(&key(seed), &batch.document, NOW - HOUR, NOW);
    approved(&mut deliver).approvals = vec![over(3), over(4)];
    scene.dropped("approvals whose time is over", NO, &deliver).await;

    let seq = scene.next();
    let other = Deliver { payload: json!({ "mode": "ok" }), ..Batch::new(4, true).command(seq) };
    let deliver = scene.honest.signed(other);
    scene.dropped("a payload that the leaf does not bind, and that the control plane signed", NO, &deliver).await;

    let seq = scene.next();
    let mut batch = Batch::new(4, false);
    batch.document.expires_at_ms = NOW;
    scene.dropped("a batch whose time is over", NO, &batch.command(seq)).await;
    scene.end().await
}

fn approved(deliver: &mut Deliver) -> &mut Approved {
    deliver.approved.as_mut().expect("it is approved")
}

/// One destructive command an hour outside batches.
async fn broken_glass() -> Table {
    let mut scene =
        Scene::new("Breaking the glass: one destructive command an hour outside batches", quorum(1, 1)).await;
    let long = |seq| ControlPlane::honest().signed(Deliver { not_after_ms: NOW + 9 * HOUR, ..counted(seq) });
    let seq = scene.next();
    scene.runs_once(&long(seq)).await;
    let seq = scene.next();
    scene.dropped("a second one", "UNBATCHED_LIMIT", &long(seq)).await;
    scene.link = None;
    scene.enter(NOW + 2 * HOUR, 400, Vec::new()).await;
    scene.seq = 400;
    let seq = scene.next();
    scene.dropped("a second one, after the clock was pushed ahead by two hours", "UNBATCHED_LIMIT", &long(seq)).await;
    scene.restart().await;
    scene.enter(NOW + 2 * HOUR, 400, Vec::new()).await;
    let seq = scene.next();
    scene.dropped("the same after the daemon started anew", "UNBATCHED_LIMIT", &long(seq)).await;
    scene.daemon.take().expect("it runs").stop().await;
    scene.table
}
