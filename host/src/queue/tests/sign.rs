//! What is signed at the queue arrives at the node as it was signed, and nothing else passes there.

use std::collections::BTreeSet;

use bc_proto::id::{BatchId, NodeId};
use bc_proto::manifest::{Lane, Trait};
use bc_proto::rules::trust::TrustBundle;
use bc_proto::sign::body::CancelBody;
use bc_proto::sign::{self, SecretKey};
use bc_proto::wire::{Deliver, v1};
use sqlx::AssertSqlSafe;

use crate::bundles::Destination;
use crate::queue::cancel::Cancellation;
use crate::queue::enqueue::{NewCommand, Outcome};
use crate::queue::{cancel, enqueue, enqueue_many, life, look};
use crate::store::unix_ms;
use crate::testing::{Fleet, at, command, greeting, uuid};
use crate::trust::Signer;
use crate::world::World;

fn signer() -> Signer {
    Signer::new(SecretKey::from_seed([1; 32]), World::real())
}

fn trust() -> TrustBundle {
    TrustBundle { version: 1, roots: vec![SecretKey::from_seed([1; 32]).public()], ..TrustBundle::NONE }
}

/// What the node makes of a delivery, over the wire.
fn judge(deliver: &Deliver, traits: &[Trait]) -> Result<(), String> {
    let came = Deliver::try_from(v1::Deliver::from(deliver.clone())).expect("it is right");
    let traits: BTreeSet<_> = traits.iter().copied().collect();
    trust().signature(&came, &traits, unix_ms(at(0))).map_err(|distrust| distrust.why)
}

async fn change(fleet: &Fleet, sql: String) {
    let changed = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&fleet.pool).await.expect("SQL without a mistake");
    assert!(changed.rows_affected() > 0);
}

#[tokio::test]
async fn a_signed_command_reaches_its_node_by_claim_and_by_replay() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let wipe = fleet.kind(Lane::Control, &["destructive"]).await;
    let look = fleet.kind(Lane::Control, &[]).await;
    let batch = Some(BatchId::from_uuid(uuid()));
    let late = at(0) + time::Duration::microseconds(999_999);
    let upload = |name: &str| Some(Destination { object: format!("https://s3.example/b/{name}"), max_bytes: 5 });
    let with = NewCommand { batch, min_generation: Some(4), upload: upload("one"), ..command(&node, wipe) };
    let one = enqueue(&mut *fleet.db().await, &signer(), with, late).await.expect("a database");
    assert!(matches!(one, Outcome::Queued(_)), "{one:?}");
    let fine = NewCommand { not_after: at(600) + time::Duration::microseconds(123_456), ..command(&node, look) };
    let many = [fine, NewCommand { batch, upload: upload("many"), ..command(&node, wipe) }];
    let outcomes = enqueue_many(&mut *fleet.db().await, &signer(), &many, late).await.expect("a database");
    assert!(outcomes.iter().all(|it| matches!(it, Outcome::Queued(_))), "{outcomes:?}");

    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    let claimed = fleet.claim(&node, epoch, at(1)).await;
    let replayed = fleet.hello(&greeting(&node), at(2)).await.replay;
    for deliveries in [&claimed, &replayed] {
        assert_eq!(deliveries.len(), 3);
        for (delivery, traits) in deliveries.iter().zip([&[Trait::Destructive][..], &[], &[Trait::Destructive]]) {
            assert_eq!(judge(&delivery.deliver, traits), Ok(()));
        }
        let uploads = deliveries.iter().map(|it| it.deliver.upload.as_ref().map(|it| (&*it.object, it.max_bytes)));
        let wanted = [Some(("https://s3.example/b/one", 5)), None, Some(("https://s3.example/b/many", 5))];
        assert_eq!(uploads.collect::<Vec<_>>(), wanted);
        let allowed = deliveries.iter().filter_map(|it| it.deliver.upload.as_ref()).map(|it| it.url.expose());
        assert!(allowed.clone().all(|url| !url.contains('?')) && allowed.count() == 2, "the gateway makes URLs");
        assert_eq!(deliveries.iter().map(|it| it.deliver.batch).collect::<Vec<_>>(), [batch, None, batch]);
    }
    let keys: i64 =
        sqlx::query_scalar("select count(*) from worker_keys").fetch_one(&fleet.pool).await.expect("a count");
    assert_eq!(keys, 2, "each signer's key has one row, however much it signs");
}

#[tokio::test]
async fn a_row_that_somebody_changed_is_refused_by_the_node() {
    let fleet = Fleet::new().await;
    let other = fleet.kind(Lane::Control, &["retry-safe"]).await;
    for (what, sql) in [
        ("upload", "upload_object = 'https://evil.example/k', upload_max_bytes = 7".to_owned()),
        ("unsigned", "signature = null, worker_key = null".to_owned()),
        ("payload", "payload = '{}'".to_owned()),
        ("kind", "kind = 'test.other'".to_owned()),
        ("digest", format!("kind_digest = '\\x{}'", hex::encode(other))),
        ("deadline", "not_after = not_after + interval '1 hour'".to_owned()),
        ("generation", "min_generation = 1".to_owned()),
        ("batch", "batch_id = gen_random_uuid()".to_owned()),
        ("time", "created_at = created_at - interval '1 second'".to_owned()),
        ("signature", "signature = sha512(signature)".to_owned()),
    ] {
        let node = fleet.node().await;
        let kind = fleet.kind(Lane::Control, &[]).await;
        enqueue(&mut *fleet.db().await, &signer(), command(&node, kind), at(0)).await.expect("a database");
        change(&fleet, format!("update commands set {sql} where node_id = '{}'", node.uuid())).await;
        let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
        let claimed = fleet.claim(&node, epoch, at(1)).await;
        assert_eq!(claimed.len(), 1, "{what}");
        assert!(judge(&claimed[0].deliver, &[]).is_err(), "{what}");
    }
}

#[tokio::test]
async fn a_cancel_is_signed_and_is_relayed_as_it_was_stored() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let new = command(&node, kind);
    let id = new.id;
    enqueue(&mut *fleet.db().await, &signer(), new, at(0)).await.expect("a database");
    let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
    fleet.claim(&node, epoch, at(1)).await;
    let asked = cancel(&mut *fleet.db().await, &signer(), fleet.tenant, id, at(2)).await.expect("a database");
    assert!(matches!(asked, Some(Cancellation::Requested { .. })), "{asked:?}");

    let body = CancelBody { command: id, node };
    let looks = look(&mut *fleet.db().await, &[(node, epoch)], at(3)).await.expect("a database");
    let [cancelled] = looks[0].cancelled[..] else { panic!("one is called off: {looks:?}") };
    assert_eq!(cancelled.command, id);
    let replayed = fleet.hello(&greeting(&node), at(4)).await.replay;
    for signature in [cancelled.signature, replayed[0].cancelled().expect("it is called off").signature] {
        trust().cancel(&body, signature.as_ref(), unix_ms(at(2))).expect("the control plane wants it");
        let elsewhere = CancelBody { node: NodeId::from_uuid(uuid()), ..body.clone() };
        assert!(trust().cancel(&elsewhere, signature.as_ref(), unix_ms(at(2))).is_err());
    }
    assert_eq!(trust().cancel(&body, None, unix_ms(at(2))), Err(sign::Error::Missing));
}

#[tokio::test]
async fn promise_15_a_command_is_signed_for_the_life_that_its_node_has_when_it_is_queued() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let wipe = fleet.kind(Lane::Control, &["destructive"]).await;
    // It reads the node's present life, and then waits to write down its key, while the next life begins.
    let mut tx = fleet.pool.begin().await.expect("a transaction");
    sqlx::raw_sql("lock table worker_keys in exclusive mode").execute(&mut *tx).await.expect("SQL without a mistake");
    life::replace(&mut tx, node, at(1)).await.expect("a database").expect("it is there");
    let (pool, new) = (fleet.pool.clone(), command(&node, wipe));
    let queueing = tokio::spawn(async move {
        let mut db = pool.acquire().await.expect("a connection");
        enqueue(&mut db, &signer(), new, at(2)).await
    });
    let waits =
        "select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&fleet.pool).await.expect("a database") {
        tokio::task::yield_now().await;
    }
    tx.commit().await.expect("a commit");
    let outcome = queueing.await.expect("no panic").expect("a database");
    assert!(matches!(outcome, Outcome::Queued(_)), "{outcome:?}");
    let now = crate::queue::hello::Greeting { incarnation: 2, ..greeting(&node) };
    let epoch = fleet.hello(&now, at(3)).await.epoch;
    let claimed = fleet.claim(&node, epoch, at(4)).await;
    assert_eq!(claimed[0].deliver.incarnation, 2);
    assert_eq!(judge(&claimed[0].deliver, &[Trait::Destructive]), Ok(()));
}

#[tokio::test]
async fn what_cannot_be_signed_is_not_queued_and_says_why() {
    let fleet = Fleet::new().await;
    let node = fleet.node().await;
    let kind = fleet.kind(Lane::Control, &[]).await;
    let new = command(&node, kind);
    let commands = [
        new.clone(),
        command(&NodeId::from_uuid(uuid()), kind),
        command(&node, [9; 32]),
        NewCommand { id: command(&node, kind).id, ..new.clone() },
    ];
    let outcomes = enqueue_many(&mut *fleet.db().await, &signer(), &commands, at(0)).await.expect("a database");
    let Outcome::Queued(queued) = outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(outcomes[1..], [Outcome::UnknownNode, Outcome::UnknownKind, Outcome::Existing(queued)]);
    let unsigned = "select count(*) from commands where signature is null";
    let unsigned: i64 = sqlx::query_scalar(unsigned).fetch_one(&fleet.pool).await.expect("a count");
    assert_eq!(unsigned, 0);
}
