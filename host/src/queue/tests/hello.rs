//! Hellos, and the ends of nodes' lives, on a real Postgres.

use bc_proto::id::{JournalId, NodeId};
use bc_proto::manifest::{Lane, Role};
use sqlx::types::Uuid;

use crate::queue::hello::{Greeted, Greeting};
use crate::queue::{enqueue, hello, hello_many, life};
use crate::testing::{Fleet, at, command, greeting};

async fn replace(fleet: &Fleet, node: &NodeId) -> u64 {
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let life = life::replace(&mut tx, *node, at(2)).await.expect("a database").expect("it is there");
    tx.commit().await.expect("a commit");
    life
}

#[tokio::test]
async fn promise_08_a_hello_settles_what_it_proves_and_replays_the_rest_in_seq_order() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let mut ids = Vec::new();
    for traits in [&["retry-safe"][..], &[], &["self-terminating"], &["retry-safe"]] {
        let kind = fleet.kind(Lane::Control, traits).await;
        ids.push(fleet.enqueue(&node, kind).await.id);
    }
    let first = fleet.hello(&greeting(&node), at(0)).await;
    assert_eq!((first.replay.len(), first.settled, first.settled_below_seq), (0, 0, 1));
    assert_eq!(fleet.claim(&node, first.epoch, at(1)).await.len(), 4);

    let same = fleet.hello(&greeting(&node), at(2)).await;
    let seqs: Vec<_> = same.replay.iter().map(|it| it.deliver.seq).collect();
    assert_eq!((seqs, same.settled), (vec![1, 2, 3, 4], 0));

    let after_reboot = Greeting { boot: "boot 2".into(), ..greeting(&node) };
    let session = fleet.hello(&after_reboot, at(3)).await;
    let seqs: Vec<_> = session.replay.iter().map(|it| it.deliver.seq).collect();
    assert_eq!((seqs, session.settled), (vec![1, 2, 4], 1));
    assert_eq!(fleet.state(&ids[2]).await, ("succeeded".into(), String::new()));

    let journal = JournalId::from_uuid(Uuid::from_u128(2));
    let session = fleet.hello(&Greeting { journal, ..after_reboot }, at(4)).await;
    let seqs: Vec<_> = session.replay.iter().map(|it| it.deliver.seq).collect();
    assert_eq!((seqs, session.settled, session.settled_below_seq), (vec![1, 4], 1, 1));
    assert_eq!(fleet.state(&ids[1]).await, ("failed".into(), "journal-lost".into()));
}

#[tokio::test]
async fn promise_15_a_re_enrolled_node_never_gets_its_predecessors_destructive_commands() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let wipe = fleet.kind(Lane::Control, &["destructive", "retry-safe"]).await;
    let look = fleet.kind(Lane::Control, &[]).await;
    let flying = fleet.enqueue(&node, wipe).await.id;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    assert_eq!(fleet.claim(&node, epoch, at(1)).await.len(), 1);
    let pending = fleet.enqueue(&node, wipe).await.id;
    let harmless = fleet.enqueue(&node, look).await.id;

    assert_eq!(replace(&fleet, &node).await, 2);
    assert_eq!(fleet.state(&pending).await, ("expired".into(), "node-replaced".into()));
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    assert_eq!(
        hello(&mut tx, "here", &greeting(&node), at(3)).await.expect("a database"),
        Greeted::Unknown,
        "the old life's certificate"
    );
    drop(tx);
    let reborn = Greeting { incarnation: 2, role: Role::Ramdisk, ..greeting(&node) };
    let session = fleet.hello(&reborn, at(3)).await;
    assert_eq!(session.replay, [], "nothing that may have been sent to the old life");
    assert_eq!(fleet.state(&flying).await, ("failed".into(), "node-replaced".into()));
    let claimed = fleet.claim(&node, session.epoch, at(4)).await;
    let got: Vec<_> = claimed.iter().map(|it| (it.deliver.command, it.deliver.incarnation)).collect();
    assert_eq!(got, [(harmless, 2)], "addressed to the present life");
}

#[tokio::test]
async fn promise_15_a_command_queued_while_the_node_is_replaced_does_not_slip_through() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let wipe = fleet.kind(Lane::Control, &["destructive"]).await;
    let wanted = command(&node, wipe);
    let id = wanted.id;
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    enqueue(&mut tx, &crate::trust::Signer::none(), wanted, at(0)).await.expect("a database");
    replace(&fleet, &node).await;
    tx.commit().await.expect("a commit");
    let reborn = Greeting { incarnation: 2, ..greeting(&node) };
    let epoch = fleet.hello(&reborn, at(3)).await.epoch;
    assert_eq!(fleet.claim(&node, epoch, at(4)).await, []);
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    crate::queue::sweep(&mut tx, at(600), 10).await.expect("a database");
    tx.commit().await.expect("a commit");
    assert_eq!(fleet.state(&id).await, ("expired".into(), "node-replaced".into()));
}

#[tokio::test]
async fn deleting_a_node_cancels_what_waits_and_fences_its_session_off() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let flying = fleet.enqueue(&node, kind).await.id;
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, epoch, at(1)).await;
    let pending = fleet.enqueue(&node, kind).await.id;
    for expected in [true, false] {
        let mut tx = fleet.pool.begin().await.expect("a transaction");
        assert_eq!(life::delete(&mut tx, node, at(2)).await.expect("a database"), expected);
        tx.commit().await.expect("a commit");
    }
    assert_eq!(fleet.state(&pending).await, ("cancelled".into(), "node-deleted".into()));
    assert_eq!(fleet.state(&flying).await.0, "dispatched", "it ends by its deadline");
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    assert_eq!(hello(&mut tx, "here", &greeting(&node), at(3)).await.expect("a database"), Greeted::Unknown);
}

#[tokio::test]
async fn promise_08_many_hellos_in_one_transaction_are_each_as_if_alone() {
    let fleet = Fleet::new().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let mut greetings = Vec::new();
    let mut queued = Vec::new();
    for n in 0..20 {
        let node = fleet.node().await;
        let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
        let ids = [fleet.enqueue(&node, kind).await.id, fleet.enqueue(&node, kind).await.id];
        assert_eq!(fleet.claim(&node, epoch, at(1)).await.len(), 2);
        let again = Greeting { last_epoch: epoch, ..greeting(&node) };
        greetings.push(match n % 4 {
            0 => Greeting { journal: JournalId::from_uuid(Uuid::from_u128(2)), ..again },
            1 => Greeting { incarnation: 9, ..again },
            _ => again,
        });
        queued.push(ids);
    }
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let sessions = hello_many(&mut tx, "there", &greetings, at(2)).await.expect("a database");
    tx.commit().await.expect("a commit");
    for (n, (greeted, ids)) in sessions.into_iter().zip(queued).enumerate() {
        let opened = |settled, settled_below_seq, replay| Some((2, settled, settled_below_seq, replay));
        let (expected, got) = match greeted {
            Greeted::Open(it) => {
                let replayed: Vec<_> = it.replay.iter().map(|it| it.deliver.command).collect();
                let expected = if n % 4 == 0 { opened(2, 3, vec![]) } else { opened(0, 1, ids.to_vec()) };
                (expected, Some((it.epoch, it.settled, it.settled_below_seq, replayed)))
            }
            other => {
                assert_eq!((other, n % 4), (Greeted::Unknown, 1), "node {n}");
                (None, None)
            }
        };
        assert_eq!(got, expected, "node {n}");
    }
}

/// A gateway that stands still between reading a hello and writing it, while the node reboots and goes on elsewhere.
#[tokio::test]
async fn promise_02_a_hello_that_was_overtaken_on_its_way_proves_nothing() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let reboot = fleet.kind(Lane::Control, &["self-terminating"]).await;
    let held_up = Greeting { boot: "boot 0".into(), ..greeting(&node) };
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let id = fleet.enqueue(&node, reboot).await.id;
    fleet.claim(&node, epoch, at(1)).await;
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let greeted = hello(&mut tx, "elsewhere", &held_up, at(2)).await.expect("a database");
    tx.commit().await.expect("a commit");
    assert_eq!(greeted, Greeted::Overtaken(epoch));
    assert_eq!(fleet.state(&id).await.0, "dispatched", "its boot is over, and no reboot");
    assert_eq!(fleet.hello(&greeting(&node), at(3)).await.epoch, epoch + 1, "and opened no session");
}
