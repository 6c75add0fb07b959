use super::*;
use crate::testing::{Fleet, uuid};

async fn heard(receiver: &mut broadcast::Receiver<Signal>, what: &Signal) {
    while receiver.recv().await.expect("a bus") != *what {}
}

/// A bus that listens.
async fn connected(fleet: &Fleet, replica: &str, stop: &CancellationToken) -> (Bus, broadcast::Receiver<Signal>) {
    let bus = Bus::connect(&fleet.pool, replica, stop.clone());
    let mut receiver = bus.subscribe();
    heard(&mut receiver, &Signal::Missed).await;
    (bus, receiver)
}

#[tokio::test]
async fn replicas_hear_each_other_and_not_themselves_twice() {
    let fleet = Fleet::new().await;
    let stop = CancellationToken::new();
    let (one, mut at_one) = connected(&fleet, "one", &stop).await;
    let (two, mut at_two) = connected(&fleet, "two", &stop).await;
    let node = NodeId::from_uuid(uuid());
    one.tell(Signal::Work { node });
    heard(&mut at_two, &Signal::Work { node }).await;
    two.tell(Signal::Cancel { node });
    assert_eq!(at_one.recv().await, Ok(Signal::Work { node }), "its own, at once");
    assert_eq!(at_one.recv().await, Ok(Signal::Cancel { node }), "and no second time from the database");
    stop.cancel();
}

#[tokio::test]
async fn a_listener_that_was_cut_off_says_that_something_may_be_missed() {
    let fleet = Fleet::new().await;
    let stop = CancellationToken::new();
    let (one, _) = connected(&fleet, "one", &stop).await;
    let (_two, mut at_two) = connected(&fleet, "two", &stop).await;
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and query ilike 'listen%'";
    sqlx::query(cut).execute(&fleet.pool).await.expect("a superuser");
    heard(&mut at_two, &Signal::Missed).await;
    let node = NodeId::from_uuid(uuid());
    one.tell(Signal::Work { node });
    heard(&mut at_two, &Signal::Work { node }).await;
    stop.cancel();
}
