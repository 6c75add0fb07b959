//! Which events, how often, in which order, and by whom.

use std::collections::HashSet;

use super::*;

#[tokio::test]
async fn a_webhook_gets_its_tenants_events_of_its_topics_from_its_making_on() {
    let stage = Stage::new().await;
    stage.event().await;
    let other = TenantId::from_uuid(uuid());
    store::tenants::create(&mut *stage.fleet.db().await, other, "another", at(0)).await.expect("a new tenant");
    let receiver = Receiver::new(Behaviour::Status(200)).await;
    let (wanted, _) = stage.webhook(&receiver.url, "node.command.queued").await;
    let (unwanted, _) = stage.webhook(&receiver.url, "command.settled").await;
    let (foreign, _) = stage.webhook_of(other, &receiver.url, "node.*").await;
    let command = stage.event().await;
    assert_eq!(stage.pass().await, 1);
    assert_eq!(receiver.got()[0].json()["data"]["body"]["commandId"], command);
    assert_eq!(stage.only(wanted).await.state, Standing::Delivered);
    assert!(stage.deliveries(unwanted).await.is_empty() && stage.deliveries(foreign).await.is_empty());
    assert_eq!(stage.pass().await, 0, "once");
}

#[tokio::test]
async fn two_replicas_send_each_event_once_and_in_order() {
    let stage = Stage::new().await;
    let mut receivers = Vec::new();
    for _ in 0..3 {
        let receiver = Receiver::new(Behaviour::Status(200)).await;
        stage.webhook(&receiver.url, "node.*").await;
        receivers.push(receiver);
    }
    let mut commands = Vec::new();
    let (one, two) = (stage.module(), stage.module());
    let mut attempts = 0;
    for _ in 0..4 {
        for _ in 0..5 {
            commands.push(stage.event().await);
        }
        let (here, there) = tokio::join!(one.pass(), two.pass());
        attempts += here.expect("a database") + there.expect("a database");
    }
    // One may have found the outbox read by the other, and nothing due yet.
    attempts += stage.pass().await;
    assert_eq!(attempts, 3 * commands.len());
    for receiver in receivers {
        let got = receiver.got();
        let ids: HashSet<_> = got.iter().map(receiver::Got::id).collect();
        assert_eq!(ids.len(), commands.len());
        let order: Vec<_> =
            got.iter().map(|it| it.json()["data"]["body"]["commandId"].as_str().expect("an id").to_owned()).collect();
        assert_eq!(order, commands);
    }
}

#[tokio::test]
async fn a_replica_that_dies_while_it_sends_leaves_the_event_to_another_under_the_same_id() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Hang).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    let dying = stage.module();
    let task = tokio::spawn(async move { dying.pass().await });
    let first = receiver.wait(1).await.remove(0);
    let delivery = stage.only(id).await;
    assert_eq!((delivery.state, delivery.attempts), (Standing::Pending, 1), "counted before it was sent");
    task.abort();
    assert!(task.await.is_err_and(|error| error.is_cancelled()));
    receiver.behave(Behaviour::Status(200));
    assert_eq!(stage.pass().await, 0, "its claim still holds");
    stage.pass_time(45);
    assert_eq!(stage.pass().await, 1);
    let second = receiver.got().pop().expect("one more");
    assert_eq!((second.id(), &second.body), (first.id(), &first.body));
    assert_eq!(stage.only(id).await.state, Standing::Delivered);
}

#[tokio::test]
async fn a_replica_that_was_overtaken_writes_nothing_more() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Hang).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    let slow = stage.module();
    let task = tokio::spawn(async move { slow.pass().await });
    receiver.wait(1).await;
    stage.pass_time(60);
    receiver.behave(Behaviour::Status(500));
    assert_eq!(stage.pass().await, 1);
    let before = stage.only(id).await;
    assert_eq!((before.state, before.attempts), (Standing::Pending, 2));
    receiver.let_go();
    task.await.expect("it ends").expect("a database");
    assert_eq!(stage.only(id).await, before, "its 200 came too late");
}

#[tokio::test]
async fn a_webhook_that_hangs_delays_no_other() {
    let stage = Stage::new().await;
    let (slow, quick) = (Receiver::new(Behaviour::Hang).await, Receiver::new(Behaviour::Status(200)).await);
    let (slow_id, _) = stage.webhook(&slow.url, "node.*").await;
    stage.webhook(&quick.url, "node.*").await;
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let module = stage.module();
    let bus = module.bus.clone();
    start(module, &stop);
    for count in 1..=10 {
        stage.event().await;
        bus.tell(Signal::Events);
        quick.wait(count).await;
    }
    assert_eq!(slow.got().len(), 1, "one at a time");
    let states: HashSet<_> = stage.deliveries(slow_id).await.iter().map(|it| it.state.to_string()).collect();
    assert_eq!(states, HashSet::from(["pending".to_owned()]));
    for count in 2..=10 {
        slow.let_go();
        slow.wait(count).await;
    }
}

#[tokio::test]
async fn a_receiver_that_never_answers_is_left_in_time() {
    let mut stage = Stage::new().await;
    stage.settings.timeout = Duration::from_millis(200);
    let receiver = Receiver::new(Behaviour::Hang).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    assert_eq!(stage.pass().await, 1);
    let delivery = stage.only(id).await;
    assert_eq!((delivery.state, delivery.last_answer.as_str()), (Standing::Pending, "no answer in time"));
}

#[tokio::test]
async fn what_an_open_transaction_holds_back_is_sent_when_it_ends() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Status(200)).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    // An older transaction that writes its event after a younger one has committed.
    let mut older = stage.fleet.pool.begin().await.expect("a transaction");
    sqlx::query("select pg_current_xact_id()").execute(&mut *older).await.expect("a database");
    stage.fleet.enqueue(&stage.node, stage.kind).await;
    assert_eq!(stage.pass().await, 0);
    sqlx::query("insert into events (tenant_id, topic, body, at) values ($1, 'node.older', '{}', now())")
        .bind(stage.fleet.tenant.uuid())
        .execute(&mut *older)
        .await
        .expect("a database");
    older.commit().await.expect("a commit");
    stage.visible().await;
    assert_eq!(stage.pass().await, 2);
    let topics: Vec<_> = stage.deliveries(id).await.into_iter().map(|it| it.topic).collect();
    assert_eq!(topics, ["node.older", "node.command.queued"]);
}
