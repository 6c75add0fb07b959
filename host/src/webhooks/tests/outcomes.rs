//! What follows from answers.

use super::*;

#[tokio::test]
async fn what_fails_is_sent_again_at_its_times_and_given_up_after_three_days() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Status(500)).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    let mut attempts = 0;
    let waits = [0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400];
    for wait in waits {
        // Not a moment before, and at the latest a fifth later.
        if wait > 0 {
            stage.pass_time(wait - 1);
            assert_eq!(stage.pass().await, 0, "{wait}");
            stage.pass_time(wait / 5 + 2);
        }
        assert_eq!(stage.pass().await, 1, "{wait}");
        attempts += 1;
        let delivery = stage.only(id).await;
        let expected = if attempts == waits.len() { Standing::Dead } else { Standing::Pending };
        assert_eq!((delivery.state, delivery.last_status), (expected, Some(500)));
        assert_eq!(delivery.attempts as usize, attempts);
        assert_eq!(delivery.last_answer, "said 500\u{fffd}");
    }
    stage.pass_time(1_000_000);
    assert_eq!(stage.pass().await, 0, "it is dead");
    assert!(stage.find(id).await.failing_since.is_some());

    receiver.behave(Behaviour::Status(200));
    stage.redeliver(id, stage.only(id).await.id).await;
    assert_eq!(stage.pass().await, 1);
    let delivery = stage.only(id).await;
    assert_eq!((delivery.state, delivery.attempts), (Standing::Delivered, 1));
    assert_eq!(stage.find(id).await.failing_since, None);
    let got = receiver.got();
    assert_eq!(got.len(), waits.len() + 1);
    assert!(got.iter().all(|it| it.id() == delivery.id.to_string() && it.body == got[0].body));
}

#[tokio::test]
async fn a_receiver_that_asks_for_time_gets_it() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Busy(600)).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    assert_eq!(stage.pass().await, 1);
    assert_eq!(stage.only(id).await.next_attempt_at, Some(at(600)));
}

#[tokio::test]
async fn who_answers_410_is_sent_nothing_more() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Status(410)).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    stage.event().await;
    assert_eq!(stage.pass().await, 1, "the second one is not tried");
    let webhook = stage.find(id).await;
    assert_eq!((webhook.state, webhook.reason.as_str()), (State::Disabled, "gone"));
    let states: Vec<_> = stage.deliveries(id).await.into_iter().map(|it| it.state).collect();
    assert_eq!(states, [Standing::Dead, Standing::Pending]);
    assert!(stage.topics().await.contains(&"webhook.disabled".to_owned()));
    stage.event().await;
    stage.pass_time(100_000);
    assert_eq!(stage.pass().await, 0);
    assert_eq!(stage.deliveries(id).await.len(), 2, "what happens meanwhile is not kept for it");

    receiver.behave(Behaviour::Status(200));
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    stored::lock_position(&mut tx).await.expect("a database");
    let enabled = Webhook { state: State::Enabled, reason: String::new(), failing_since: None, ..webhook };
    stored::update(&mut tx, &enabled, Change::Enabled).await.expect("a database");
    tx.commit().await.expect("a commit");
    stage.event().await;
    assert_eq!(stage.pass().await, 2, "what was pending, and what happened since");
    assert_eq!(stage.deliveries(id).await.len(), 3);
}

#[tokio::test]
async fn who_fails_for_five_days_is_disabled_and_who_recovers_is_not() {
    let stage = Stage::new().await;
    let (dead, flaky) = (Receiver::new(Behaviour::Status(503)).await, Receiver::new(Behaviour::Status(503)).await);
    let (dead_id, _) = stage.webhook(&dead.url, "node.*").await;
    let (flaky_id, _) = stage.webhook(&flaky.url, "node.*").await;
    let day = 24 * 3600;
    for _ in 0..5 {
        stage.event().await;
        stage.pass().await;
        stage.pass_time(day);
    }
    flaky.behave(Behaviour::Status(200));
    stage.pass().await;
    let found = stage.find(dead_id).await;
    assert_eq!((found.state, found.reason.as_str()), (State::Disabled, "failing"));
    assert_eq!(found.failing_since, Some(at(0)));
    let found = stage.find(flaky_id).await;
    assert_eq!((found.state, found.failing_since), (State::Enabled, None));
    let count = stage.topics().await.iter().filter(|it| *it == "webhook.disabled").count();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn what_was_over_for_thirty_days_is_deleted() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Status(200)).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    assert_eq!(stage.pass().await, 1);
    stage.pass_time(30 * 24 * 3600);
    receiver.behave(Behaviour::Status(500));
    stage.event().await;
    stage.pass().await;
    stage.module().prune().await.expect("a database");
    assert_eq!(stage.deliveries(id).await.len(), 2, "to the second");
    stage.pass_time(1);
    stage.module().prune().await.expect("a database");
    assert_eq!(stage.only(id).await.state, Standing::Pending);
}
