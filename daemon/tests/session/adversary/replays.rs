//! True commands, at another time or once more.

use bc_proto::wire::v1::to_node::Frame;
use bc_proto::wire::{Deliver, Report, v1};

use super::control_plane::{Batch, HOUR, bundle, counted};
use super::{DELAY, DROP, NOTHING, Scene, Table, words};
use crate::gateway::SERVER_TIME_MS as NOW;

const KNOWN: &str = "the journal knows it, and says its result again";

pub(super) async fn play() -> Vec<Table> {
    vec![again().await, forgotten().await, time().await]
}

/// A command that is over comes once more: its result is told again, whatever goes before.
async fn same(scene: &mut Scene, attempt: &str, deliver: &Deliver, result: &[u8]) {
    let before = scene.runs();
    let answer = scene.deliver(deliver).await;
    assert_eq!((answer.report, answer.result.as_slice()), (Report::Succeeded, result), "{attempt}");
    scene.works().await;
    assert_eq!(scene.runs(), before + 1, "IT RAN: {attempt}");
    scene.table.row(attempt, KNOWN, NOTHING);
}

async fn again() -> Table {
    let mut scene = Scene::new("Replays", bundle(1)).await;
    let seq = scene.next();
    let done = scene.honest.command(seq);
    let result = scene.runs_once(&done).await.result;
    same(&mut scene, "a finished command, on the same session", &done, &result).await;
    let elsewhere = Deliver { seq: 500, ..done.clone() };
    same(&mut scene, "the same in another place of the order", &elsewhere, &result).await;
    let ack = v1::UpdateAck { command_ids: vec![done.command.to_string()], settled_below_seq: 400 };
    scene.send(Frame::UpdateAck(ack)).await;
    // Below that the node takes nothing any more: a drop, which is no news.
    scene.seq = 500;
    same(&mut scene, "the same after the gateway said that it is settled for good", &elsewhere, &result).await;
    scene.link = None;
    scene.enter(NOW, 400, Vec::new()).await;
    same(&mut scene, "the same on the next session", &elsewhere, &result).await;
    scene.link = None;
    scene.enter(NOW - HOUR, 400, Vec::new()).await;
    same(&mut scene, "the same after the clock was turned back", &elsewhere, &result).await;
    scene.restart().await;
    scene.enter(NOW, 400, Vec::new()).await;
    same(&mut scene, "the same after the daemon started anew", &elsewhere, &result).await;
    let (first, second) = (scene.next(), scene.next());
    let [first, second] = [first, second].map(|seq| scene.honest.command(seq));
    scene.runs_once(&second).await;
    scene.runs_once(&first).await;
    scene.table.row("two commands in the other order", "nothing: nobody says which comes first", DELAY);

    let seq = scene.next();
    let dropped = scene.honest.command(seq);
    let answer = scene.deliver(&dropped).await;
    let ack = v1::UpdateAck { command_ids: vec![dropped.command.to_string()], settled_below_seq: 1 };
    scene.send(Frame::UpdateAck(ack)).await;
    scene.link = None;
    scene.enter(NOW, 1, Vec::new()).await;
    let told = scene.deliver(&dropped).await;
    assert_eq!(told, answer, "whoever asks is told");
    let attempt = "UpdateAck for a result that the gateway dropped";
    let kept =
        "the result is not told of itself any more, but to whoever delivers the command again, until its time is over";
    scene.table.row(attempt, kept, "drop: the result is late or lost");
    scene.end().await
}

/// The gateway lets the node forget a command that has run, and tries to have it sworn that it was refused.
async fn forgotten() -> Table {
    let mut scene = Scene::new("Commands that the node was made to forget", bundle(1)).await;
    let seq = scene.next();
    // One of a batch: outside of them it counts for an hour, and is not forgotten so soon.
    let done = Batch::new(6, false).command(seq);
    scene.runs_once(&done).await;
    scene.link = None;
    // Its time is over, and it is settled for good, the gateway says.
    scene.enter(done.not_after_ms + 1, 400, Vec::new()).await;
    scene.seq = 400;
    let replayed = Deliver { seq: 500, ..done.clone() };
    let attempt = "a command that has run, delivered again after the clock was pushed over its end";
    let refused_by = scene.denied(attempt, "EXPIRED", &replayed).await;
    scene.table.row(attempt, &refused_by, NOTHING);
    let command_id = done.command.to_string();
    let cancel = v1::Cancel { command_id, signature: Some(scene.honest.cancel(seq).into()) };
    scene.send(Frame::Cancel(cancel)).await;
    let attempt = "the same, and a true Cancel of it that came too late";
    let refused_by = scene.denied(attempt, "EXPIRED", &replayed).await;
    scene.table.row(attempt, &refused_by, NOTHING);
    scene.restart().await;
    scene.enter(NOW, 1, Vec::new()).await;
    let attempt = "the same after the daemon started anew, and with the clock turned back";
    let refused_by = scene.denied(attempt, "EXPIRED", &replayed).await;
    scene.table.row(attempt, &refused_by, NOTHING);

    // A forged command of the farthest future is refused, and "forgotten" when that has come.
    let seq = scene.next();
    let forged = Deliver { not_after_ms: NOW + 500 * HOUR, ..counted(seq) };
    scene.denied("forged", "BAD_SIGNATURE", &forged).await;
    scene.link = None;
    scene.enter(NOW + 600 * HOUR, 400, Vec::new()).await;
    scene.restart().await;
    scene.enter(NOW, 1, Vec::new()).await;
    let late = scene.honest.signed(Deliver { not_after_ms: NOW + 2 * HOUR, ..counted(scene.seq + 1) });
    scene.next();
    scene.runs_once(&late).await;
    let attempt = "a forged command with an end far away, to have all that come before it refused as forgotten";
    scene.table.row(attempt, "what nobody ordered is not held, and so not forgotten", NOTHING);
    // The probe's time counts as forgotten: what comes now has a later one.
    let (table, daemon) = (scene.table, scene.daemon.take().expect("it runs"));
    daemon.stop().await;
    table
}

async fn time() -> Table {
    let mut scene = Scene::new("The gateway's clock", bundle(1)).await;
    let seq = scene.next();
    let over = scene.honest.signed(Deliver { not_after_ms: NOW - 1, ..counted(seq) });
    scene.works().await;
    scene.link = None;
    scene.enter(NOW - 2 * HOUR, 1, Vec::new()).await;
    scene.dropped("Welcome an hour back, to revive a command that is over", "EXPIRED", &over).await;
    scene.restart().await;
    scene.enter(NOW - 2 * HOUR, 1, Vec::new()).await;
    let seq = scene.next();
    let over = scene.honest.signed(Deliver { not_after_ms: NOW - 1, ..counted(seq) });
    scene.dropped("the same after the daemon started anew", "EXPIRED", &over).await;

    scene.link = None;
    scene.enter(NOW + 9_000 * HOUR, 1, Vec::new()).await;
    let seq = scene.next();
    let early = scene.honest.command(seq);
    scene.dropped("Welcome a year ahead", "EXPIRED", &early).await;
    // It does not outlive the daemon by more than an hour.
    scene.restart().await;
    scene.enter(NOW, 1, Vec::new()).await;
    let seq = scene.next();
    let welcome = scene.honest.signed(Deliver { not_after_ms: NOW + 2 * HOUR, ..counted(seq) });
    let answer = scene.deliver(&welcome).await;
    assert_eq!(answer.report, Report::Succeeded, "{}", words(&answer));
    let attempt = "the same, and the daemon starts anew with a true gateway";
    let floor = "server time counts as at most an hour past the newest signature";
    scene.table.row(attempt, floor, DROP);
    scene.daemon.take().expect("it runs").stop().await;
    scene.table
}
