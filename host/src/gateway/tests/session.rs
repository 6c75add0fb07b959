//! Sessions of one replica.

use bc_proto::manifest::Lane;
use bc_proto::rules::publishing::KindSignature;
use bc_proto::sign::SecretKey;
use futures_util::StreamExt;

use super::*;
use crate::store::components::Component;

async fn started() -> (Site, Replica, Machine, Digest) {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let kind = site.fleet.kind(Lane::Control, &[]).await;
    (site, replica, machine, kind)
}

async fn call_off(site: &Site, replica: &Replica, node: NodeId, command: CommandId) {
    let mut db = site.fleet.db().await;
    queue::cancel(&mut db, &crate::trust::Signer::none(), site.fleet.tenant, command, site.world().now())
        .await
        .expect("a database");
    replica.bus.tell(Signal::Cancel { node });
}

#[tokio::test]
async fn a_command_is_delivered_acknowledged_run_and_settled() {
    let (site, replica, machine, kind) = started().await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    assert_eq!(link.settled_below, 1);
    let id = site.enqueue(machine.node(), kind).await;
    replica.tell_work(machine.node());
    let delivered = link.delivered().await;
    assert_eq!((delivered.command_id, delivered.seq, delivered.incarnation), (id.to_string(), 1, 1));
    assert_eq!(delivered.payload, r#"{"n":1.5,"text":"é\u0000"}"#);
    link.say(ack(id)).await;
    site.reaches(id, "acked").await;
    link.report(id, v1::Report::Running).await;
    site.reaches(id, "running").await;
    link.report(id, v1::Report::Succeeded).await;
    let acknowledged = link.acknowledged().await;
    assert_eq!((acknowledged.command_ids, acknowledged.settled_below_seq), (vec![id.to_string()], 2));
    assert_eq!(site.state(id).await, "succeeded");

    link.report(id, v1::Report::Failed).await;
    assert_eq!(link.acknowledged().await.command_ids, [id.to_string()], "told again, acknowledged again");
    assert_eq!(site.state(id).await, "succeeded", "and the first one stands");
}

#[tokio::test]
async fn promise_08_a_reconnect_replays_in_seq_order_and_credits_are_what_is_left() {
    let (site, replica, machine, kind) = started().await;
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(site.enqueue(machine.node(), kind).await);
    }
    let mut first = machine.open(&site.authority, &replica).await.expect("it may enter");
    for seq in 1..=8 {
        assert_eq!(first.delivered().await.seq, seq, "by the look at a new session: nobody was told");
    }
    first.report(ids[4], v1::Report::Succeeded).await;
    assert_eq!(first.acknowledged().await.settled_below_seq, 1);
    assert_eq!(first.delivered().await.seq, 9, "one credit, one command");
    drop(first);

    let mut second = machine.open(&site.authority, &replica).await.expect("it may enter");
    for seq in [1, 2, 3, 4, 6, 7, 8, 9] {
        assert_eq!(second.delivered().await.seq, seq);
    }
    for done in [0, 1] {
        second.report(ids[done], v1::Report::Succeeded).await;
        assert_eq!(second.acknowledged().await.settled_below_seq, done as u64 + 2);
        assert_eq!(second.delivered().await.seq, done as u64 + 10);
    }
}

#[tokio::test]
async fn promise_09_of_two_sessions_the_newer_wins_and_frames_of_the_older_have_no_effect() {
    let (site, replica, machine, kind) = started().await;
    let mut old = machine.open(&site.authority, &replica).await.expect("it may enter");
    let id = site.enqueue(machine.node(), kind).await;
    replica.tell_work(machine.node());
    old.delivered().await;
    let mut new = machine.open(&site.authority, &replica).await.expect("it may enter");
    assert_eq!(new.delivered().await.command_id, id.to_string());
    assert_eq!(old.end().await, Code::Aborted);
    assert!(new.epoch > old.epoch);

    new.say_of(old.epoch, update(id, v1::Report::Failed)).await;
    new.say_of(new.epoch + 1, update(id, v1::Report::Failed)).await;
    new.report(id, v1::Report::Running).await;
    site.reaches(id, "running").await;
    new.report(id, v1::Report::Succeeded).await;
    assert_eq!(new.acknowledged().await.command_ids, [id.to_string()]);
    assert_eq!(site.state(id).await, "succeeded");
}

#[tokio::test]
async fn a_node_speaks_of_its_own_commands_alone() {
    let (site, replica, machine, kind) = started().await;
    let other = site.machine(&replica).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let mut stranger = other.open(&site.authority, &replica).await.expect("it may enter");
    let id = site.enqueue(machine.node(), kind).await;
    let own = site.enqueue(other.node(), kind).await;
    replica.tell_work(machine.node());
    replica.tell_work(other.node());
    link.delivered().await;
    stranger.delivered().await;
    for report in [v1::Report::Running, v1::Report::Busy, v1::Report::Succeeded] {
        stranger.report(id, report).await;
    }
    stranger.say(from_node::Frame::Update(v1::Update::default())).await;
    stranger.say(ack(id)).await;
    stranger.report(own, v1::Report::Succeeded).await;
    assert_eq!(stranger.acknowledged().await.command_ids, [own.to_string()]);
    assert_eq!(site.state(id).await, "dispatched");
}

#[tokio::test]
async fn a_busy_node_gets_the_command_again_by_itself() {
    let (site, replica, machine, kind) = started().await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let id = site.enqueue(machine.node(), kind).await;
    replica.tell_work(machine.node());
    link.delivered().await;
    link.report(id, v1::Report::Busy).await;
    site.reaches(id, "pending").await;
    assert_eq!(link.delivered().await.command_id, id.to_string(), "after a second or two");
    link.report(id, v1::Report::Succeeded).await;
    link.acknowledged().await;
    assert_eq!(site.state(id).await, "succeeded");
}

#[tokio::test]
async fn promise_13_a_cancel_reaches_a_running_command_though_its_lane_is_full() {
    let (site, replica, machine, kind) = started().await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let mut ids = Vec::new();
    for _ in 0..9 {
        ids.push(site.enqueue(machine.node(), kind).await);
    }
    replica.tell_work(machine.node());
    for _ in 0..8 {
        link.delivered().await;
    }
    link.report(ids[7], v1::Report::Running).await;
    site.reaches(ids[7], "running").await;
    call_off(&site, &replica, machine.node(), ids[7]).await;
    let wanted = to_node::Frame::Cancel(v1::Cancel { command_id: ids[7].to_string(), signature: None });
    assert_eq!(link.next().await, wanted);
    replica.gateway.reconcile().await.expect("a database");
    assert_eq!(link.next().await, wanted, "and again, until it is over");
    drop(link);

    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    for _ in 0..8 {
        link.delivered().await;
    }
    assert_eq!(link.next().await, wanted, "after the replay");
    link.report(ids[7], v1::Report::Cancelled).await;
    // The look at the new session asks once more, before or after.
    while !matches!(link.next().await, to_node::Frame::UpdateAck(_)) {}
    assert_eq!(site.state(ids[7]).await, "cancelled");
    call_off(&site, &replica, machine.node(), ids[0]).await;
    let ours = to_node::Frame::Cancel(v1::Cancel { command_id: ids[0].to_string(), signature: None });
    while link.next().await != ours {}
}

#[tokio::test]
async fn a_wake_up_that_was_lost_is_found_by_the_reconcile() {
    let (site, replica, machine, kind) = started().await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let first = site.enqueue(machine.node(), kind).await;
    replica.tell_work(machine.node());
    link.delivered().await;
    let second = site.enqueue(machine.node(), kind).await;
    replica.gateway.reconcile().await.expect("a database");
    assert_eq!(link.delivered().await.command_id, second.to_string());
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_silent_session_is_closed_after_three_heartbeats() {
    let (site, replica, machine, _) = started().await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    while replica.gateway.sessions() == 0 {
        tokio::task::yield_now().await;
    }
    let inner = &replica.gateway.inner;
    let heard = Duration::from_millis(inner.sessions.all()[0].heard_ms());
    inner.close_silent(heard + 3 * HEARTBEAT);
    assert!(!inner.sessions.all()[0].is_closed(), "not yet");
    inner.close_silent(heard + 3 * HEARTBEAT + Duration::from_millis(1));
    assert_eq!(link.end().await, Code::DeadlineExceeded);
    while site.find(machine.node()).await.connected {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_gateway_that_drains_asks_its_nodes_to_go_and_notes_their_ends() {
    let (site, replica, machine, kind) = started().await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let id = site.enqueue(machine.node(), kind).await;
    replica.tell_work(machine.node());
    link.delivered().await;
    let grace = Duration::from_millis(300);
    let draining = replica.gateway.drain(grace);
    let node = async {
        let wanted = to_node::Frame::Drain(v1::Drain { grace_ms: 300 });
        assert_eq!(link.next().await, wanted);
        link.report(id, v1::Report::Succeeded).await;
        link.acknowledged().await;
        let late = machine.open(&site.authority, &replica).await.err().expect("a refusal");
        assert_eq!(late.code(), Code::Unavailable);
        link.end().await
    };
    let ((), end) = tokio::join!(draining, node);
    assert_eq!(end, Code::Unavailable);
    assert!(!site.find(machine.node()).await.connected);
    assert_eq!(site.state(id).await, "succeeded", "what was reported meanwhile counts");
}

#[tokio::test]
async fn a_restricted_identity_gets_no_other_kinds() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let token = site.token(None, Some(vec!["test.bulk".into()])).await;
    let machine = Machine::join(&site.authority, &replica, &token).await.expect("it may join");
    let [other, allowed] = [site.fleet.kind(Lane::Control, &[]).await, site.fleet.kind(Lane::Bulk, &[]).await];
    let refused = site.enqueue(machine.node(), other).await;
    let accepted = site.enqueue(machine.node(), allowed).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    assert_eq!(link.delivered().await.command_id, accepted.to_string());
    site.reaches(refused, "rejected").await;
    assert_eq!(site.fleet.state(&refused).await.1, "UNSUPPORTED");
}

#[tokio::test]
async fn a_component_is_fetched_by_its_digest() {
    let (site, replica, machine, kind) = started().await;
    let mut client = replica.client(&site.authority, Some(&machine.identity));
    let mut pieces =
        client.fetch_kind(v1::FetchKindRequest { digest: kind.to_vec() }).await.expect("it is there").into_inner();
    assert_eq!(pieces.message().await.expect("a piece").expect("a piece").bytes, b"\0asm");
    assert_eq!(pieces.message().await.expect("the end"), None);
    for (digest, code) in [(vec![9; 32], Code::NotFound), (vec![9], Code::InvalidArgument)] {
        let status = client.fetch_kind(v1::FetchKindRequest { digest }).await.expect_err("a refusal");
        assert_eq!(status.code(), code);
    }
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let publisher = SecretKey::from_seed([1; 32]);
    let signature = KindSignature::sign(&bc_proto::canonical::sha256_hex(&bytes), &publisher);
    let long = Arc::new(Component { bytes: bytes.clone(), signature: Some(signature.clone()) });
    let sent: Vec<_> = fetch::pieces(long).map(|piece| piece.expect("a piece")).collect().await;
    assert!(sent.iter().all(|piece| piece.bytes.len() <= 64 * 1_024));
    assert_eq!(sent[0].publisher, publisher.public().as_bytes());
    assert_eq!(sent[0].publisher_sig, signature.signature.as_bytes());
    assert!(sent[1..].iter().all(|piece| piece.publisher.is_empty() && piece.publisher_sig.is_empty()));
    assert_eq!(sent.into_iter().flat_map(|piece| piece.bytes).collect::<Vec<_>>(), bytes);
}

#[tokio::test]
async fn progress_is_passed_on_twice_a_second_at_most() {
    let (site, replica, machine, kind) = started().await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let id = site.enqueue(machine.node(), kind).await;
    replica.tell_work(machine.node());
    link.delivered().await;
    let mut signals = replica.bus.subscribe();
    for done in 0..50 {
        let (command_id, message) = (id.to_string(), "é".repeat(1_000));
        link.say(from_node::Frame::Progress(v1::Progress { command_id, done, message, ..v1::Progress::default() }))
            .await;
    }
    link.report(id, v1::Report::Succeeded).await;
    link.acknowledged().await;
    let mut told = Vec::new();
    while let Ok(signal) = signals.try_recv() {
        if let Signal::Progress(progress) = signal {
            told.push(progress);
        }
    }
    assert!((1..10).contains(&told.len()), "{} of 50", told.len());
    assert_eq!((told[0].done, told[0].message.as_str()), (0, "é".repeat(128).as_str()));
}

#[tokio::test]
async fn a_node_that_does_not_read_is_closed() {
    let (site, replica, machine, kind) = started().await;
    let caller = Caller { fingerprint: machine.fingerprint, peer: machine.peer };
    let (says, said) = mpsc::channel(4);
    let mut outbox = replica.gateway.session(caller, ReceiverStream::new(said).map(Ok));
    says.send(machine.hello(site.find(machine.node()).await.session_epoch)).await.expect("room");
    let welcome = outbox.next().await.expect("a frame").expect("a welcome");
    let id = site.enqueue(machine.node(), kind).await;
    replica.tell_work(machine.node());
    site.reaches(id, "dispatched").await;
    call_off(&site, &replica, machine.node(), id).await;
    for _ in 0..2 * sessions::BACKLOG {
        replica.gateway.reconcile().await.expect("a database");
    }
    let mut frames = 0;
    let end = loop {
        match outbox.next().await.expect("an end") {
            Ok(frame) => assert_eq!(frame.epoch, welcome.epoch),
            Err(status) => break status.code(),
        }
        frames += 1;
    };
    assert_eq!(end, Code::Unavailable);
    assert!(frames <= sessions::BACKLOG, "{frames}");
}
