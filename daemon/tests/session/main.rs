//! The daemon and a scripted gateway, over real TLS.

mod adversary;
mod bench;
mod credentials;
mod gateway;
mod join;
mod kinds;
mod process;
mod resets;
mod specs;
#[allow(dead_code, reason = "the tests of uploads have more faults")]
#[path = "../upload/store.rs"]
mod store;
mod uploads;

use std::sync::{Mutex, mpsc};
use std::{fs, sync::Arc};

use bc_proto::wire::{Report, v1};
use bc_runtime::capability::{Answer, Gpus, Secrets, System, gpus};
use serde_json::json;

use self::bench::{Bench, HOSTILE, NOOP, component, digest, hostile, noop};
use self::gateway::{SERVER_TIME_MS, id, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_acknowledged_run_and_reported_and_a_duplicate_gets_the_stored_result() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let link = gateway.link().await;
    let hello = &link.hello;
    assert_eq!((hello.boot.as_str(), hello.incarnation, hello.generation), ("boot-1", 1, 0));
    let loaded: Vec<_> = hello.kinds.iter().map(|kind| (kind.name.as_str(), kind.digest.clone())).collect();
    assert_eq!(loaded, [(NOOP, digest(&component(NOOP)))]);
    assert!(!link.certificate.is_empty());

    let mut link = link.welcome(1, 1).await;
    link.deliver(&noop(1)).await;
    let result = link.whole_run(1).await;
    assert_eq!((result.report, result.result.as_slice()), (Report::Succeeded, b"{}".as_slice()));
    assert!((SERVER_TIME_MS..SERVER_TIME_MS + 60_000).contains(&result.at_ms), "server time: {}", result.at_ms);
    link.deliver(&noop(1)).await;
    assert_eq!(link.report(1).await, result);
    link.ack(1, 2).await;

    // Heartbeats come by themselves.
    while !matches!(link.any_frame().await.expect("open"), v1::from_node::Frame::Heartbeat(_)) {}
    daemon.stop().await;
    link.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_19_no_decision_is_by_this_machine_s_clock() {
    // The gateway's certificate and its time are of the year 2000, and so is the command's deadline.
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    let mut late = noop(1);
    late.not_after_ms = SERVER_TIME_MS;
    link.deliver(&late).await;
    let expired = link.report(1).await;
    assert_eq!((expired.report, expired.reason.as_str()), (Report::Rejected, "EXPIRED"));
    link.deliver(&noop(2)).await;
    assert_eq!(link.whole_run(2).await.report, Report::Succeeded);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_09_frames_of_another_epoch_have_no_effect() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let link = gateway.link().await.welcome(5, 1).await;
    // The gateway goes without a word, and an older one answers: its epoch is not newer, so it is left.
    drop(link);
    let old = gateway.link().await.welcome(5, 1).await;
    old.over().await;

    let mut link = gateway.link().await.welcome(6, 1).await;
    for epoch in [0, 5, 7] {
        link.send_as(epoch, v1::to_node::Frame::Deliver(noop(1).into())).await;
    }
    link.deliver(&noop(2)).await;
    assert_eq!(link.whole_run(2).await.report, Report::Succeeded, "nothing is said of the first");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_moves_the_session_while_the_old_one_is_served() {
    let bench = Bench::new();
    let mut gateways = [bench.gateway().await, bench.gateway().await];
    bench.join(&[&gateways[0], &gateways[1]]).await;
    let daemon = bench.daemon();
    // Which one is asked first is left to chance.
    let [a, b] = &mut gateways;
    let (link, next) = tokio::select! {
        link = a.link() => (link, b),
        link = b.link() => (link, a),
    };
    let mut old = link.welcome(1, 1).await;
    old.send(v1::to_node::Frame::Drain(v1::Drain { grace_ms: 50_000 })).await;
    let link = next.link().await;
    old.deliver(&noop(1)).await;
    let result = old.whole_run(1).await;
    assert_eq!(result.report, Report::Succeeded, "the old one is served until the new one is open");
    let mut new = link.welcome(2, 1).await;
    assert_eq!(new.report(1).await, result, "what was not acknowledged is said again");
    old.over().await;
    new.deliver(&noop(2)).await;
    assert_eq!(new.whole_run(2).await.report, Report::Succeeded);
    daemon.stop().await;
}

/// Holds a run until it is let go.
struct Holding {
    go: Mutex<mpsc::Receiver<()>>,
    passed: tokio::sync::mpsc::UnboundedSender<()>,
}

impl Gpus for Holding {
    fn holds(&self) -> Answer<Vec<gpus::Hold>> {
        Ok(Vec::new())
    }
    fn pass_throughs(&self) -> Answer<Vec<gpus::PassThrough>> {
        Ok(Vec::new())
    }
    fn reset(&self, _: &[String]) -> Answer<Vec<gpus::ResetOutcome>> {
        self.go.lock().expect("no panic holds it").recv().expect("the test lets it go");
        Ok(Vec::new())
    }
}

impl System for Holding {
    fn boot_id(&self) -> Answer<String> {
        Ok("boot-1".into())
    }
    fn reboot(&self, _: &str) -> Answer<()> {
        // The last thing that the run does.
        let _ = self.passed.send(());
        Ok(())
    }
}

impl Secrets for Holding {
    fn get(&self, _: &str) -> Answer<String> {
        Ok(String::new())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_03_a_result_that_came_without_a_gateway_is_told_until_it_is_acknowledged() {
    let bench = Bench::new();
    bench.plug(HOSTILE);
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let (let_go, go) = mpsc::channel();
    let (passed, mut has_passed) = tokio::sync::mpsc::unbounded_channel();
    let holding = Arc::new(Holding { go: Mutex::new(go), passed });
    let daemon = bench.daemon_offering(|capabilities| {
        capabilities.gpus = Some(holding.clone());
        capabilities.system = Some(holding.clone());
        capabilities.secrets = Some(holding);
    });
    let mut link = gateway.link().await.welcome(1, 1).await;
    link.deliver(&hostile(1, json!({ "mode": "effects" }))).await;
    link.acked(1).await;
    assert_eq!(link.report(1).await.report, Report::Running);

    let address = gateway.address;
    drop((link, gateway));
    let_go.send(()).expect("it waits");
    soon(has_passed.recv()).await.expect("it went on without a gateway");
    let mut gateway = gateway::Gateway::start_at(&bench.authority, address).await;
    // Lost on the way, twice: by this gateway, and by the daemon's own restart.
    let mut link = gateway.link().await.welcome(2, 1).await;
    let result = link.report(1).await;
    assert_eq!(result.report, Report::Succeeded);
    drop(link);
    let link = gateway.link().await.welcome(3, 1).await;
    daemon.stop().await;
    link.over().await;
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(4, 1).await;
    assert_eq!(link.report(1).await, result);
    link.ack(1, 1).await;
    drop(link);
    // Acknowledged but not settled for good: it is not said of itself any more, and a duplicate still gets it.
    let mut link = gateway.link().await.welcome(5, 1).await;
    link.deliver(&noop(2)).await;
    assert_eq!(link.whole_run(2).await.report, Report::Succeeded);
    link.deliver(&hostile(1, json!({ "mode": "effects" }))).await;
    assert_eq!(link.report(1).await, result);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_07_a_damaged_journal_is_set_aside_and_the_daemon_runs_with_another() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    let first = link.hello.journal;
    link.deliver(&noop(1)).await;
    link.whole_run(1).await;
    daemon.stop().await;
    link.over().await;

    let journal = bench.state_dir().join("journal.sqlite");
    let mut bytes = fs::read(&journal).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[..middle].fill(0x5a);
    fs::write(&journal, &bytes).expect("it is written");
    let daemon = bench.daemon();
    let link = gateway.link().await;
    assert_ne!(link.hello.journal, first);
    let aside = bench.state_dir().join(format!("journal.sqlite.before-{}", link.hello.journal));
    assert_eq!(fs::read(aside).expect("it is kept"), bytes);
    let mut link = link.welcome(2, 1).await;
    link.deliver(&noop(2)).await;
    assert_eq!(link.whole_run(2).await.report, Report::Succeeded);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_called_off_command_does_not_start_although_its_component_was_still_to_come() {
    let bench = Bench::new();
    bench.unplug(NOOP);
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    // Two of one component, of which the second is called off while both wait.
    link.deliver(&noop(1)).await;
    link.deliver(&noop(2)).await;
    let command_id = id(2).to_string();
    link.send(v1::to_node::Frame::Cancel(v1::Cancel { command_id, signature: None })).await;
    let mut said = [link.report(1).await, link.report(2).await];
    said.sort_by_key(|update| update.command);
    assert_eq!(said.map(|update| update.report), [Report::Rejected, Report::Cancelled]);
    daemon.stop().await;
}
