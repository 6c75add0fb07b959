//! The outbox on a real Postgres.

use std::collections::BTreeSet;

use bc_proto::manifest::Lane;
use tokio::task::JoinSet;

use crate::queue::enqueue;
use crate::store::events::{self, Cursor};
use crate::testing::{Fleet, at, command};

#[tokio::test]
async fn an_event_that_commits_late_is_not_missed() {
    let fleet = Fleet::new().await;
    let (slow, quick) = (fleet.node().await, fleet.node().await);
    let kind = fleet.kind(Lane::Control, &[]).await;
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    let late = command(&slow, kind);
    enqueue(&mut tx, &crate::trust::Signer::none(), late.clone(), at(0)).await.expect("a database");
    let early = fleet.enqueue(&quick, kind).await;
    let seen = events::after(&mut *fleet.db().await, Cursor::default(), 10).await.expect("a database");
    assert_eq!(seen, [], "what is older may still come");
    tx.commit().await.expect("a commit");
    let seen: Vec<_> = fleet.events().await.into_iter().map(|(_, command)| command).collect();
    assert_eq!(seen, [late.id.to_string(), early.id.to_string()]);
}

#[tokio::test]
async fn a_watcher_that_resumes_sees_every_event_once_under_concurrent_commits() {
    let fleet = Fleet::new().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (node, pool) = (fleet.node().await, fleet.pool.clone());
        tasks.spawn(async move {
            let mut ids = BTreeSet::new();
            for _ in 0..50 {
                let command = command(&node, kind);
                ids.insert(command.id.to_string());
                let mut tx = pool.begin().await.expect("a transaction");
                enqueue(&mut tx, &crate::trust::Signer::none(), command, at(0)).await.expect("a database");
                tokio::task::yield_now().await;
                tx.commit().await.expect("a commit");
            }
            ids
        });
    }
    let mut seen = Vec::new();
    let mut cursor = Cursor::default();
    while seen.len() < 200 {
        let page = events::after(&mut *fleet.db().await, cursor, 7).await.expect("a database");
        for event in page {
            assert!(event.cursor > cursor, "in order");
            // As a client does: the cursor travels as text.
            cursor = event.cursor.to_string().parse().expect("a cursor");
            seen.push(event.body["commandId"].as_str().expect("an id").to_owned());
        }
    }
    let queued: BTreeSet<String> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(seen.iter().cloned().collect::<BTreeSet<_>>(), queued);
    assert_eq!(seen.len(), 200, "each once");
    assert_eq!(events::after(&mut *fleet.db().await, cursor, 7).await.expect("a database"), []);
}
