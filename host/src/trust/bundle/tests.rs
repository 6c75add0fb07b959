//! Versions of the bundle, on a real Postgres.

use bc_proto::sign::SecretKey;

use super::*;
use crate::testing::Fleet;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32])
}

fn settings(signs: u8, besides: &[u8]) -> Settings {
    Settings {
        command_signing: Some(key(signs)),
        command_signing_roots: besides.iter().map(|seed| key(*seed).public()).collect(),
        ..Settings::default()
    }
}

async fn say(fleet: &Fleet, settings: &Settings, replica: &str) -> Published {
    publish(&fleet.pool, &Bus::local(), settings, replica, &World::real()).await.expect("a database")
}

#[tokio::test]
async fn the_version_follows_the_content_and_is_never_below_the_configured_one() {
    let fleet = Fleet::new().await;
    assert_eq!(say(&fleet, &Settings::default(), "a").await, Published::Nothing);
    let one = settings(1, &[]);
    assert_eq!(say(&fleet, &one, "a").await, Published::New(1));
    assert_eq!(say(&fleet, &one, "b").await, Published::Known(1));
    assert_eq!(say(&fleet, &settings(1, &[2]), "a").await, Published::New(2));
    assert_eq!(say(&fleet, &settings(2, &[1]), "a").await, Published::Known(2), "which of them signs is no content");
    assert_eq!(say(&fleet, &settings(2, &[]), "a").await, Published::New(3));
    let high = Settings { trust_version: 40, ..settings(2, &[]) };
    assert_eq!(say(&fleet, &high, "a").await, Published::New(40));
    assert_eq!(say(&fleet, &high, "a").await, Published::Known(40));
    let limits = Settings { unbatched_destructive_per_hour: 1, ..settings(2, &[]) };
    assert_eq!(say(&fleet, &limits, "a").await, Published::New(41));

    // A node that was away is led from the first to the last.
    let mut trusted = TrustBundle::NONE;
    for stored in trust_bundles::above(&mut *fleet.db().await, 0).await.expect("a database") {
        trusted = parse(&stored).expect("JSON").accept(&trusted).expect("it is vouched for").expect("it is new");
    }
    assert_eq!((trusted.version, trusted.roots), (41, vec![key(2).public()]));
}

#[tokio::test]
async fn replicas_that_start_together_say_it_once() {
    let fleet = Fleet::new().await;
    let one = settings(1, &[]);
    let said = tokio::join!(say(&fleet, &one, "a"), say(&fleet, &one, "b"), say(&fleet, &one, "c"));
    let new = [said.0, said.1, said.2].into_iter().filter(|it| *it == Published::New(1)).count();
    assert_eq!(new, 1);
    assert_eq!(trust_bundles::above(&mut *fleet.db().await, 0).await.expect("a database").len(), 1);
}

#[tokio::test]
async fn a_replica_with_other_settings_is_named_and_one_without_a_root_changes_nothing() {
    let fleet = Fleet::new().await;
    let one = settings(1, &[]);
    say(&fleet, &one, "first").await;
    assert_eq!(other(&fleet.pool, &one).await.expect("a database"), None);
    let found = other(&fleet.pool, &settings(2, &[1])).await.expect("a database").expect("it says something else");
    assert_eq!((found.version, found.replica.as_str()), (1, "first"));
    let cannot = Published::CannotSign { version: 1, replica: "first".into() };
    assert_eq!(say(&fleet, &Settings::default(), "second").await, cannot);
    let limits = Settings { unbatched_destructive_per_hour: 1, ..Settings::default() };
    assert_eq!(say(&fleet, &limits, "second").await, cannot);
    // With a worker key alone it signs commands by what was published before, and changes nothing of it.
    let worker = bc_proto::sign::WorkerKey::certify(&key(1), key(7).public(), 0);
    let roots = vec![key(1).public()];
    let by_worker = Settings { worker: Some((worker, key(7))), command_signing_roots: roots, ..Settings::default() };
    assert_eq!(say(&fleet, &by_worker, "third").await, Published::Known(1));
    let changed = Settings { unbatched_destructive_per_hour: 1, ..by_worker };
    assert_eq!(say(&fleet, &changed, "third").await, cannot);
}
