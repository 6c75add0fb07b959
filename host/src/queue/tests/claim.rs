//! Claiming, marks and BUSY on a real Postgres.

use bc_proto::manifest::Lane;
use bc_proto::rules::lane::LIMITS;
use bc_proto::rules::state::Event;

use crate::queue::claim::Room;
use crate::queue::mark::{Busy, Mark};
use crate::queue::{claim, enqueue_many, mark, requeue};
use crate::testing::{Fleet, at, command, greeting, room};

#[tokio::test]
async fn every_session_gets_its_lowest_seqs_up_to_its_credits() {
    let fleet = Fleet::new().await;
    let mut rooms = Vec::new();
    let mut commands = Vec::new();
    let mut kinds = Vec::new();
    for lane in Lane::ALL {
        kinds.push((lane, fleet.kind(lane, &[]).await));
    }
    for _ in 0..20 {
        let node = fleet.node().await;
        let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
        for &(lane, kind) in &kinds {
            rooms.push(Room { node, epoch, lane, credits: LIMITS.get(lane), above_seq: 0 });
            commands.extend((0..10).map(|_| command(&node, kind)));
        }
    }
    enqueue_many(&mut *fleet.db().await, &crate::trust::Signer::none(), &commands, at(0)).await.expect("a database");
    for round in 1..=2 {
        let claimed = claim(&mut *fleet.db().await, &rooms, at(1)).await.expect("a database");
        for room in &rooms {
            let seqs: Vec<_> = claimed
                .iter()
                .filter(|it| it.deliver.node == room.node && it.lane == room.lane)
                .map(|it| it.deliver.seq)
                .collect();
            let lane = Lane::ALL.iter().position(|&lane| lane == room.lane).expect("a lane") as u64;
            let credits = u64::from(room.credits);
            let first = lane * 10 + (round - 1) * credits + 1;
            let expected: Vec<_> = (first..first + credits).take_while(|&seq| seq <= lane * 10 + 10).collect();
            assert_eq!(seqs, expected, "round {round}, {:?}", room.lane);
        }
    }
    for room in &mut rooms {
        room.above_seq = 29;
    }
    let claimed = claim(&mut *fleet.db().await, &rooms, at(1)).await.expect("a database");
    assert_eq!(claimed.len(), 20, "only what lies above the cursor: seq 30, in the bulk lane");
    assert!(claimed.iter().all(|it| it.deliver.seq == 30 && it.deliver.payload == commands[0].payload));
}

#[tokio::test]
async fn promise_09_an_older_session_has_no_effect() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let old = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let new = fleet.hello(&greeting(&node), at(0)).await.epoch;
    assert!(new > old);
    assert_eq!(fleet.claim(&node, old, at(1)).await, []);
    assert_eq!(fleet.claim(&node, new, at(1)).await.len(), 1);
    let mut db = fleet.db().await;
    let acked = |epoch| [Mark { node, epoch, command: queued.id, event: Event::Acked }];
    let busy = [Busy { node, epoch: old, command: queued.id }];
    assert_eq!(requeue(&mut db, &busy, at(1), || 0.5).await.expect("a database").len(), 0);
    assert_eq!(mark(&mut db, &acked(old)).await.expect("a database"), 0);
    assert_eq!(fleet.state(&queued.id).await.0, "dispatched");
    assert_eq!(mark(&mut db, &acked(new)).await.expect("a database"), 1);
    assert_eq!(fleet.state(&queued.id).await.0, "acked");
}

#[tokio::test]
async fn a_hello_waits_for_a_claim_under_way_and_replays_what_it_took() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let claimed = claim(&mut tx, &[room(&node, epoch)], at(1)).await.expect("a database");
    assert_eq!(claimed.len(), 1);
    let greeting = greeting(&node);
    let (session, ()) = tokio::join!(fleet.hello(&greeting, at(2)), async {
        tx.commit().await.expect("a commit");
    });
    let replayed: Vec<_> = session.replay.iter().map(|it| it.deliver.command).collect();
    assert_eq!(replayed, [queued.id]);
}

#[tokio::test]
async fn promise_13_a_claim_is_durable_before_it_can_be_sent() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let room = Room { node, epoch, lane: Lane::Control, credits: 8, above_seq: 0 };
    assert_eq!(claim(&mut tx, &[room], at(1)).await.expect("a database").len(), 1);
    let mode: String = sqlx::query_scalar("show synchronous_commit").fetch_one(&mut *tx).await.expect("a setting");
    assert_eq!(mode, "on");
    tx.commit().await.expect("a commit");
}

#[tokio::test]
async fn marks_go_forward_and_commit_asynchronously() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, epoch, at(1)).await;
    let of = |event| Mark { node, epoch, command: queued.id, event };
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let marks = [of(Event::Started), of(Event::Acked), of(Event::ReportedFailed)];
    assert_eq!(mark(&mut tx, &marks).await.expect("a database"), 1);
    let mode: String = sqlx::query_scalar("show synchronous_commit").fetch_one(&mut *tx).await.expect("a setting");
    assert_eq!(mode, "off");
    tx.commit().await.expect("a commit");
    assert_eq!(mark(&mut *fleet.db().await, &[of(Event::Acked)]).await.expect("a database"), 0, "overtaken");
    assert_eq!(fleet.state(&queued.id).await.0, "running");
    let mode: String = sqlx::query_scalar("show synchronous_commit").fetch_one(&fleet.pool).await.expect("a setting");
    assert_eq!(mode, "on", "it is the transaction's setting alone");
    let busy = [Busy { node, epoch, command: queued.id }];
    assert_eq!(requeue(&mut *fleet.db().await, &busy, at(1), || 0.5).await.expect("a database").len(), 0, "it runs");
}

#[tokio::test]
async fn a_busy_node_gets_the_command_again_after_a_growing_wait() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &["destructive"]).await;
    let queued = fleet.enqueue(&node, kind).await;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let mut now = 1;
    for wait in [2, 4, 8, 16, 30, 30] {
        assert_eq!(fleet.claim(&node, epoch, at(now)).await.len(), 1, "at {now}");
        let busy = [Busy { node, epoch, command: queued.id }];
        assert_eq!(requeue(&mut *fleet.db().await, &busy, at(now), || 1.0).await.expect("a database").len(), 1);
        assert_eq!(fleet.state(&queued.id).await.0, "pending");
        assert_eq!(fleet.claim(&node, epoch, at(now + wait - 1)).await, [], "not yet");
        now += wait;
    }
}

#[tokio::test]
async fn what_is_held_or_past_its_time_is_not_claimed() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let mut held = command(&node, kind);
    held.is_held = true;
    enqueue_many(&mut *fleet.db().await, &crate::trust::Signer::none(), &[held, command(&node, kind)], at(0))
        .await
        .expect("a database");
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    assert_eq!(fleet.claim(&node, epoch, at(600)).await, [], "its time is over");
    let seqs: Vec<_> = fleet.claim(&node, epoch, at(599)).await.iter().map(|it| it.deliver.seq).collect();
    assert_eq!(seqs, [2]);
}
