//! Commands that nobody ordered, and changes to those that somebody did.

use bc_proto::sign::WorkerKey;
use bc_proto::sign::body::CancelBody;
use bc_proto::wire::v1::to_node::Frame;
use bc_proto::wire::{Deliver, Report, v1};
use serde_json::json;

use super::control_plane::{Batch, ControlPlane, HOUR, bundle, counted, key, other_node};
use super::{DROP, NOTHING, Scene, Table, told_of};
use crate::bench::{NOOP, component, digest};
use crate::gateway::{SERVER_TIME_MS as NOW, id, node_id};

const BAD: &str = "BAD_SIGNATURE";

pub(super) async fn play() -> Vec<Table> {
    let mut scene = Scene::new("Commands", bundle(1)).await;
    contents(&mut scene).await;
    keys(&mut scene).await;
    frames(&mut scene).await;
    let commands = scene.end().await;
    let mut scene = Scene::new("Calling off", bundle(1)).await;
    cancels(&mut scene).await;
    vec![commands, scene.end().await]
}

/// What the signature covers, piece by piece.
async fn contents(scene: &mut Scene) {
    type Forge = fn(&mut Deliver);
    let attempts: [(&str, &str, Forge); 10] = [
        ("no signature", BAD, |it| it.signature = None),
        ("the signature of another command", BAD, |it| it.signature = ControlPlane::honest().command(900).signature),
        ("another payload", BAD, |it| it.payload = json!({ "mode": "ok" })),
        ("another kind, which the node has", BAD, |it| {
            (it.kind, it.kind_digest) = (NOOP.into(), digest(&component(NOOP)));
        }),
        ("another component of the kind", "KIND_UNAVAILABLE", |it| it.kind_digest = digest(&component(NOOP))),
        ("another node's name", "UNSUPPORTED", |it| it.node = other_node()),
        ("another life of the node", "UNSUPPORTED", |it| it.incarnation = 2),
        ("a later end", BAD, |it| it.not_after_ms += 1),
        ("a spec generation that it does not ask for", BAD, |it| it.min_generation = Some(0)),
        ("a batch that it does not belong to", BAD, |it| it.batch = Some(Batch::new(5, false).document.batch_id)),
    ];
    for (attempt, reason, forge) in attempts {
        let seq = scene.next();
        let genuine = scene.honest.command(seq);
        scene.attack(attempt, reason, &genuine, forge).await;
    }
    // Of others, made to look like this node's.
    let made: [(&str, Deliver); 4] = [
        ("another node's command, renamed", Deliver { node: other_node(), ..counted(scene.next()) }),
        ("a command for the node's next life, renamed", Deliver { incarnation: 2, ..counted(scene.next()) }),
        ("a spec generation that it asks for, dropped", Deliver { min_generation: Some(9), ..counted(scene.next()) }),
        (
            "its batch, dropped",
            Deliver { batch: Some(Batch::new(5, false).document.batch_id), ..counted(scene.next()) },
        ),
    ];
    for (attempt, deliver) in made {
        let signed = scene.honest.signed(deliver);
        let forged = Deliver { node: node_id(), incarnation: 1, min_generation: None, batch: None, ..signed };
        let refused_by = scene.denied(attempt, BAD, &forged).await;
        scene.table.row(attempt, &refused_by, NOTHING);
    }
    // It is over, and nobody waits for what the attacker made to look like it could wait.
    let seq = scene.next();
    let forged = Deliver { signature: None, min_generation: Some(9), ..counted(seq) };
    let refused_by = scene.denied("an unsigned command that presupposes a spec", BAD, &forged).await;
    scene.table.row("an unsigned command that presupposes a spec", &refused_by, NOTHING);

    for (attempt, timeout_ms) in [("a shorter timeout", 1), ("a longer timeout", u64::MAX)] {
        let seq = scene.next();
        let deliver = Deliver { timeout_ms, ..scene.honest.command(seq) };
        scene.runs_once(&deliver).await;
        scene.table.row(attempt, "nothing: it runs once. The manifest's timeout counts (for a longer one the flipped frames show it, in memory)", NOTHING);
    }
    let seq = scene.next();
    let fetches = scene.gateway.desk().fetches.len();
    let forged = Deliver { kind_digest: "ab".repeat(32), ..scene.honest.command(seq) };
    let refused_by = scene.denied("a component of the attacker's", "KIND_UNAVAILABLE", &forged).await;
    assert_eq!(scene.gateway.desk().fetches.len(), fetches, "it is not even asked for");
    scene.table.row("a component of the attacker's (it is not asked for)", &refused_by, NOTHING);
}

/// Who signed.
async fn keys(scene: &mut Scene) {
    let hours = |ago: u64| NOW - ago * HOUR;
    let moved = || {
        let mut control_plane = ControlPlane::of(&key(1), hours(30));
        let (not_before_ms, not_after_ms) = (hours(1), hours(1) + 24 * HOUR);
        control_plane.worker = WorkerKey { not_before_ms, not_after_ms, ..control_plane.worker };
        control_plane
    };
    let signers = [
        ("a worker key that the attacker made", ControlPlane::self_made(), NOW),
        ("a worker key of the attacker's own root", ControlPlane::attacker(), NOW),
        ("a worker key of yesterday", ControlPlane::of(&key(1), hours(30)), NOW),
        ("a worker key of yesterday, its day moved", moved(), NOW),
        ("a worker key that is certified for a week", ControlPlane::of_a_week(), NOW),
        ("a worker key from tomorrow", ControlPlane::of(&key(1), NOW + HOUR), NOW),
        ("a signature from the future", ControlPlane::honest(), NOW + HOUR),
    ];
    for (attempt, signer, at_ms) in signers {
        let seq = scene.next();
        let genuine = scene.honest.command(seq);
        let forged = signer.signed_at(counted(seq), at_ms);
        scene.attack(attempt, BAD, &genuine, |it| *it = forged).await;
    }
    // It calls the command off, which the attacker takes for an order.
    let seq = scene.next();
    let genuine = scene.honest.command(seq);
    let forged = scene.honest.cancel(seq);
    let attempt = "the signature that calls it off, as its order";
    scene.attack(attempt, BAD, &genuine, |it| it.signature = Some(forged)).await;
    let seq = scene.next();
    let mut genuine = scene.honest.command(seq);
    let later = genuine.signature.as_mut().expect("it is signed");
    later.issued_at_ms += 1;
    let refused_by = scene.denied("a later time of signing", BAD, &genuine).await;
    scene.table.row("a later time of signing", &refused_by, NOTHING);
}

/// Frames that are none.
async fn frames(scene: &mut Scene) {
    let seq = scene.next();
    let genuine = scene.honest.command(seq);
    let mut cut = v1::Deliver::from(genuine.clone());
    cut.signature.as_mut().expect("it is signed").signature.pop();
    let error = Deliver::try_from(cut.clone()).expect_err("it is cut").to_string();
    scene.send(Frame::Deliver(cut)).await;
    silent(scene, "a signature that is cut short", &error, &genuine).await;

    let seq = scene.next();
    let genuine = scene.honest.command(seq);
    let epoch = scene.epoch + 1;
    scene.link().send_as(epoch, Frame::Deliver(genuine.clone().into())).await;
    silent(scene, "a frame of another session", "frames of another epoch have no effect", &genuine).await;

    let seq = scene.next();
    let genuine = scene.honest.command(seq);
    let again = v1::Welcome { epoch, server_time_ms: NOW - HOUR, settled_below_seq: seq + 1, ..v1::Welcome::default() };
    scene.send(Frame::Welcome(again)).await;
    silent(scene, "a second Welcome", "only the first frame of a session is one", &genuine).await;

    let seq = scene.next();
    let genuine = scene.honest.command(seq);
    let payload = json!({ "mode": "x".repeat(9 << 20) });
    scene.send(Frame::Deliver(Deliver { payload, ..genuine.clone() }.into())).await;
    scene.enter(NOW, 1, Vec::new()).await;
    silent(
        scene,
        "a frame of 9 MiB",
        "frames have 8 MiB at most: the session ends, and another one is opened",
        &genuine,
    )
    .await;

    for _ in 0..3 {
        scene.send(Frame::Drain(v1::Drain { grace_ms: 0 })).await;
        scene.enter(NOW, 1, Vec::new()).await;
    }
    let seq = scene.next();
    let genuine = scene.honest.command(seq);
    silent(scene, "Drain, again and again", "another session is opened each time", &genuine).await;
}

/// Nothing is said of it, and the true command runs once.
async fn silent(scene: &mut Scene, attempt: &str, refused_by: &str, genuine: &Deliver) {
    let before = scene.runs();
    scene.works().await;
    assert_eq!(scene.runs(), before + 1, "IT RAN: {attempt}");
    assert_eq!(told_of(&scene.said, genuine.seq), 0, "{attempt}");
    scene.runs_once(genuine).await;
    scene.table.row(attempt, refused_by, NOTHING);
}

/// Whoever calls off before a command comes keeps it from starting: if that had an effect, the command would not run.
async fn cancels(scene: &mut Scene) {
    let seqs: Vec<u64> = (0..6).map(|_| scene.next()).collect();
    let body = |seq| CancelBody { command: id(seq), node: node_id() };
    let honest = ControlPlane::honest();
    let mut cut = v1::WorkerSignature::from(honest.cancel(seqs[5]));
    cut.signature.pop();
    let forged = [
        ("no signature", None),
        ("the signature for another command", Some(honest.cancel(901).into())),
        ("a worker key of the attacker's own root", Some(ControlPlane::attacker().sign(&body(seqs[2])).into())),
        ("the command's own signature", honest.command(seqs[3]).signature.map(Into::into)),
        ("a spec's signature", honest.spec(node_id(), 1).signature),
        ("a signature that is cut short", Some(cut)),
    ];
    for (seq, (attempt, signature)) in seqs.into_iter().zip(forged) {
        let command_id = id(seq).to_string();
        let read = signature.clone().map(bc_proto::sign::WorkerSignature::try_from).transpose();
        let refused_by = match read {
            Ok(read) => scene.trust.now().cancel(&body(seq), read.as_ref(), NOW).expect_err(attempt).to_string(),
            Err(invalid) => invalid.to_string(),
        };
        scene.send(Frame::Cancel(v1::Cancel { command_id, signature })).await;
        let genuine = scene.honest.command(seq);
        scene.runs_once(&genuine).await;
        scene.table.row(&format!("Cancel: {attempt}"), &refused_by, NOTHING);
    }
    // A true one, under a forged command: the forged one says nothing of it and takes nothing of it away.
    let seq = scene.next();
    let cancel = v1::Cancel { command_id: id(seq).to_string(), signature: Some(scene.honest.cancel(seq).into()) };
    scene.send(Frame::Cancel(cancel)).await;
    let attempt = "a forged command under one that was called off";
    let refused_by = scene.denied(attempt, BAD, &counted(seq)).await;
    let genuine = scene.honest.command(seq);
    let (before, answer) = (scene.runs(), scene.deliver(&genuine).await);
    assert_eq!((answer.report, scene.runs()), (Report::Cancelled, before));
    scene.table.row(attempt, &refused_by, "nothing; the true one stays called off");

    let seq = scene.next();
    let genuine = scene.honest.command(seq);
    let cancel = v1::Cancel { command_id: id(seq).to_string(), signature: Some(scene.honest.cancel(seq).into()) };
    scene.send(Frame::Cancel(cancel)).await;
    let answer = scene.deliver(&genuine).await;
    assert_eq!(answer.report, Report::Cancelled);
    scene.table.row("a true Cancel, brought before its command", "nothing: it is wanted", DROP);
}
