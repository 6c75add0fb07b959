//! The event loop over a real journal file and real kinds; the session's place is taken by a list.

mod bench;
mod program;

use std::sync::{Arc, Mutex};

use bc_daemon::journal::Journal;
use bc_proto::rules::accept::Refusal;
use bc_proto::rules::daemon::{Frame, Input, Record};
use bc_proto::wire::Report;
use bc_runtime::capability::{Answer, Gpus, System, gpus};
use serde_json::{Value, json};

use self::bench::{Bench, Said, deliver, id};

#[tokio::test(flavor = "multi_thread")]
async fn promise_02_a_command_is_on_the_disk_before_it_is_acknowledged() {
    let bench = Bench::new();
    let mut daemon = bench.daemon().await;
    let command = deliver(&bench.noop, 1, json!({}));
    daemon.deliver(&command).await;
    assert_eq!(daemon.frame().await, Frame::Ack(id(1)));
    // What the disk held at that moment.
    let then = bench.disk_at_ack(1).await;
    let entry = then.find(id(1)).expect("it is on the disk");
    assert_eq!((&entry.deliver, entry.attempt, entry.boot.as_str()), (&command, 1, "boot-1"));
    assert_eq!(daemon.report(1).await.report, Report::Running);
    let done = daemon.report(1).await;
    assert_eq!((done.report, done.result.as_slice()), (Report::Succeeded, b"{}".as_slice()));

    daemon.deliver(&command).await;
    assert_eq!(daemon.report(1).await, done, "a duplicate gets the stored result");
    assert_eq!(daemon.journal.read().await.expect("it reads").find(id(1)).expect("kept").update, Some(done));
    daemon.input(Input::UpdateAcked { epoch: 1, commands: vec![id(1)], settled_below_seq: 2 }).await;
    // Refused, so that there is something to wait for.
    daemon.deliver(&deliver(&bench.unknown, 2, json!({}))).await;
    assert_eq!(daemon.report(2).await.reason, Refusal::Unsupported.code());
    let book = daemon.journal.read().await.expect("it reads");
    let first = book.find(id(1)).expect("kept, since its time is not over");
    assert!(first.acknowledged && book.find(id(2)).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_13_a_cancel_overtakes_everything_and_reports_what_happened() {
    let bench = Bench::new();
    let mut daemon = bench.daemon().await;
    let hold = |seq| deliver(&bench.hostile, seq, json!({ "mode": "hold" }));
    for seq in 1..=8 {
        daemon.deliver(&hold(seq)).await;
        assert_eq!(daemon.frame().await, Frame::Ack(id(seq)));
        assert_eq!(daemon.report(seq).await.report, Report::Running);
    }
    // The lane is full: the ninth is sent back, unsaved.
    daemon.deliver(&hold(9)).await;
    assert_eq!(daemon.report(9).await.report, Report::Busy);
    assert!(daemon.journal.read().await.expect("it reads").find(id(9)).is_none());
    daemon.deliver(&hold(1)).await;
    assert_eq!(daemon.report(1).await.report, Report::Running, "it is re-attached to the one that runs");

    daemon.input(Input::CancelReceived { epoch: 1, command: id(1), signature: None }).await;
    let cancelled = daemon.report(1).await;
    assert_eq!((cancelled.report, cancelled.reason.as_str()), (Report::Cancelled, "cancelled"));
    let result: Value = serde_json::from_slice(&cancelled.result).expect("JSON");
    assert_eq!(result["effects"], json!([]));
    daemon.input(Input::CancelReceived { epoch: 1, command: id(1), signature: None }).await;
    assert_eq!(daemon.report(1).await, cancelled, "said again to whoever asks again");
    // Its worker is back.
    daemon.deliver(&deliver(&bench.noop, 10, json!({}))).await;
    assert_eq!(daemon.frame().await, Frame::Ack(id(10)));
    for seq in 2..=8 {
        daemon.input(Input::CancelReceived { epoch: 1, command: id(seq), signature: None }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_02_a_restart_runs_again_only_what_is_retry_safe_over_the_disk_of_the_crash() {
    let bench = Bench::new();
    let mut daemon = bench.daemon().await;
    for command in [deliver(&bench.noop, 1, json!({})), deliver(&bench.hostile, 2, json!({ "mode": "hold" }))] {
        daemon.deliver(&command).await;
    }
    // The last moment that counts: the second was acknowledged and nothing of it is known to have ended.
    while daemon.frame().await != Frame::Ack(id(2)) {}
    let crashed = bench.after_crash_at_ack(2);
    let mut restarted = crashed.daemon().await;
    // The control plane sends again what is not over.
    restarted.deliver(&deliver(&bench.noop, 1, json!({}))).await;
    let [first, second] = restarted.reports_of([1, 2]).await;
    assert_eq!(first.report, Report::Succeeded);
    assert_eq!((second.report, second.reason.as_str()), (Report::Failed, "interrupted"));
    let book = restarted.journal.read().await.expect("it reads");
    assert_eq!(book.find(id(2)).expect("kept").attempt, 1, "it is not started again");
    daemon.input(Input::CancelReceived { epoch: 1, command: id(2), signature: None }).await;
}

/// Looks into the journal at the moment of each effect.
struct Witness {
    journal: Arc<Mutex<Option<Journal>>>,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Witness {
    fn look(&self) {
        let journal = self.journal.lock().expect("no panic holds it").clone().expect("the daemon runs");
        let book = tokio::runtime::Handle::current().block_on(journal.read()).expect("it reads");
        let effects = &book.find(id(1)).expect("it runs").effects;
        self.seen.lock().expect("no panic holds it").push(json!(effects));
    }
}

impl Gpus for Witness {
    fn holds(&self) -> Answer<Vec<gpus::Hold>> {
        Ok(Vec::new())
    }
    fn pass_throughs(&self) -> Answer<Vec<gpus::PassThrough>> {
        Ok(Vec::new())
    }
    fn reset(&self, _: &[String]) -> Answer<Vec<gpus::ResetOutcome>> {
        self.look();
        Ok(Vec::new())
    }
}

impl System for Witness {
    fn boot_id(&self) -> Answer<String> {
        Ok("boot-1".into())
    }
    fn reboot(&self, _: &str) -> Answer<()> {
        self.look();
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_01_an_effect_is_in_the_journal_before_it_is_performed() {
    let (journal, seen) = (Arc::default(), Arc::default());
    let witness = || Witness { journal: Arc::clone(&journal), seen: Arc::clone(&seen) };
    let mut bench = Bench::new();
    bench.offer(|capabilities| {
        capabilities.gpus = Some(Arc::new(witness()));
        capabilities.system = Some(Arc::new(witness()));
    });
    let mut daemon = bench.daemon().await;
    *journal.lock().expect("no panic holds it") = Some(daemon.journal.clone());
    daemon.deliver(&deliver(&bench.hostile, 1, json!({ "mode": "effects" }))).await;
    assert_eq!(daemon.report_of(1).await.report, Report::Succeeded);
    let states = |effects: &Value| {
        let effects = effects.as_array().expect("a list").iter();
        effects.map(|effect| format!("{} {}", effect["name"], effect["state"]["state"])).collect::<Vec<_>>()
    };
    let seen = seen.lock().expect("no panic holds it");
    assert_eq!(states(&seen[0]), [r#""gpus.reset" "ambiguous""#]);
    assert_eq!(states(&seen[1]), [r#""gpus.reset" "done""#, r#""system.reboot" "ambiguous""#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_06_without_room_nothing_is_accepted() {
    let mut bench = Bench::new();
    bench.reserve_bytes = 1 << 60;
    let mut daemon = bench.daemon().await;
    daemon.deliver(&deliver(&bench.noop, 1, json!({}))).await;
    let refused = daemon.report(1).await;
    assert_eq!((refused.report, refused.reason.as_str()), (Report::Rejected, "NO_SPACE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_s_log_goes_to_the_sink_and_a_missing_kind_ends_what_a_restart_would_run() {
    let bench = Bench::new();
    let opened = bench.open_journal().await;
    let gone = deliver(&bench.unknown, 1, json!({}));
    let traits = [bc_proto::manifest::Trait::RetrySafe].into();
    let lane = bc_proto::manifest::Lane::Control;
    let accepted = Record::Accepted { deliver: Box::new(gone.clone()), lane, traits, boot: "boot-1".into(), at_ms: 1 };
    opened.journal.save(&[accepted]).await.expect("saved");
    opened.journal.close().await;
    let mut daemon = bench.daemon().await;
    daemon.deliver(&gone).await;
    assert_eq!(daemon.report_of(1).await.reason, Refusal::KindUnavailable.code());

    daemon.deliver(&deliver(&bench.hostile, 2, json!({ "mode": "flood-log" }))).await;
    loop {
        if let Said::Log(command, message) = daemon.said().await {
            assert_eq!((command, message.as_str()), (id(2), "hostile guest floods the log"));
            break;
        }
    }
    assert_eq!(daemon.report_of(2).await.reason, "cpu");
}
