//! Queueing on a real Postgres.

use serde_json::json;
use tokio::task::JoinSet;

use crate::postgres::PrivatePostgres;
use crate::queue::enqueue::{NewCommand, Outcome};
use crate::queue::{enqueue, enqueue_many, life};
use crate::store::{commands, kinds};
use crate::testing::{Fleet, at, command};
use bc_proto::id::{CommandId, NodeId};
use bc_proto::manifest::Lane;

#[tokio::test]
async fn the_same_key_is_the_same_command_and_another_command_under_it_a_conflict() {
    let fleet = Fleet::new().await;
    let (node, other_node) = (fleet.node().await, fleet.node().await);
    let kind = fleet.kind(Lane::Control, &[]).await;
    let other_kind = fleet.kind(Lane::Bulk, &[]).await;
    let mut db = fleet.db().await;

    let first = NewCommand { idempotency_key: "k".into(), ..command(&node, kind) };
    let Outcome::Queued(queued) =
        enqueue(&mut db, &crate::trust::Signer::none(), first.clone(), at(0)).await.expect("a database")
    else {
        panic!("a new key is queued")
    };
    let again = |change: NewCommand| NewCommand { id: command(&node, kind).id, ..change };
    for (command, expected) in [
        (again(first.clone()), Outcome::Existing(queued)),
        (again(NewCommand { payload: json!({}), ..first.clone() }), Outcome::Conflict(queued)),
        (again(NewCommand { kind_digest: other_kind, ..first.clone() }), Outcome::Conflict(queued)),
    ] {
        assert_eq!(
            enqueue(&mut db, &crate::trust::Signer::none(), command, at(0)).await.expect("a database"),
            expected
        );
    }
    let elsewhere = again(NewCommand { node: other_node, ..first });
    let outcome = enqueue(&mut db, &crate::trust::Signer::none(), elsewhere, at(0)).await.expect("a database");
    assert!(matches!(outcome, Outcome::Queued(_)), "keys are per node: {outcome:?}");
    assert_eq!(fleet.events().await.len(), 2, "a command is announced once");
}

#[tokio::test]
async fn what_cannot_be_queued_says_why_and_the_rest_is_queued() {
    let fleet = Fleet::new().await;
    let (node, deleted) = (fleet.node().await, fleet.node().await);
    let kind = fleet.kind(Lane::Control, &[]).await;
    let gone = fleet.kind(Lane::Bulk, &[]).await;
    kinds::withdraw(&mut *fleet.db().await, "test.bulk").await.expect("a database");
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    assert!(life::delete(&mut tx, deleted, at(0)).await.expect("a database"));
    tx.commit().await.expect("a commit");

    let twice = command(&node, kind);
    let batch = [
        twice.clone(),
        command(&deleted, kind),
        command(&node, gone),
        command(&node, [9; 32]),
        NewCommand { id: command(&node, kind).id, ..twice.clone() },
        command(&node, kind),
    ];
    let outcomes =
        enqueue_many(&mut *fleet.db().await, &crate::trust::Signer::none(), &batch, at(0)).await.expect("a database");
    let seqs: Vec<_> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Queued(queued) => format!("queued {}", queued.seq),
            Outcome::Existing(queued) => format!("existing {}", queued.seq),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(seqs, ["queued 1", "UnknownNode", "UnknownKind", "UnknownKind", "existing 1", "queued 2"]);
    let found = commands::find(&mut *fleet.db().await, fleet.tenant, twice.id).await.expect("a database");
    assert_eq!(found.expect("it is there").payload, twice.payload, "a payload comes back as it was");
}

#[tokio::test]
async fn concurrent_enqueues_of_one_key_make_one_command_and_of_many_keys_one_order() {
    let fleet = Fleet::new().await;
    let nodes = [fleet.node().await, fleet.node().await];
    let kind = fleet.kind(Lane::Control, &[]).await;
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let pool = fleet.pool.clone();
        tasks.spawn(async move {
            let mut queued = Vec::new();
            for key in 0..10 {
                let mut batch: Vec<_> = nodes.iter().map(|node| command(node, kind)).collect();
                batch.push(NewCommand { idempotency_key: format!("shared {key}"), ..command(&nodes[0], kind) });
                // The order in which they are given must not matter.
                batch.rotate_left(task % 3);
                let mut tx = pool.begin().await.expect("a transaction");
                queued.extend(
                    enqueue_many(&mut tx, &crate::trust::Signer::none(), &batch, at(0)).await.expect("no deadlock"),
                );
                tx.commit().await.expect("a commit");
            }
            queued
        });
    }
    let outcomes = tasks.join_all().await.concat();
    let new = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Queued(_))).count();
    assert_eq!(new, 8 * 10 * 2 + 10);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Queued(_) | Outcome::Existing(_))));
    assert_eq!(seqs_of(&fleet, &nodes[1]).await, (1..=80).collect::<Vec<_>>(), "in order and without gaps");
}

async fn seqs_of(fleet: &Fleet, node: &NodeId) -> Vec<i64> {
    let query = "select seq from commands where node_id = $1 order by seq";
    sqlx::query_scalar(query).bind(node.uuid()).fetch_all(&fleet.pool).await.expect("a database")
}

#[tokio::test]
async fn a_killed_database_loses_no_command_whose_enqueue_returned() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = PrivatePostgres::start(folder.path()).expect("it starts");
    let fleet = Fleet::on(&server).await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let (sender, mut returned) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (pool, node, sender) = (fleet.pool.clone(), node, sender.clone());
        tasks.spawn(async move {
            let mut db = pool.acquire().await.expect("a connection");
            loop {
                let command = command(&node, kind);
                let id = command.id;
                if enqueue(&mut db, &crate::trust::Signer::none(), command, at(0)).await.is_err()
                    || sender.send(id).is_err()
                {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut safe: Vec<CommandId> = Vec::new();
    while let Some(id) = returned.recv().await {
        safe.push(id);
        if safe.len() == 100 {
            crate::postgres::kill_postmaster(&server);
        }
    }
    tasks.join_all().await;
    fleet.pool.close().await;
    server.keep_running();

    let server = PrivatePostgres::start(folder.path()).expect("it starts again");
    let pool = sqlx::PgPool::connect_with(server.connect_options("postgres")).await.expect("it accepts connections");
    let stored: Vec<sqlx::types::Uuid> =
        sqlx::query_scalar("select c.id from commands c join ready r using (node_id, seq)")
            .fetch_all(&pool)
            .await
            .expect("a database");
    assert!(safe.len() >= 100 && safe.iter().all(|id| stored.contains(&id.uuid())));
}
