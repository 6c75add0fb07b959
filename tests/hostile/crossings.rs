//! What the gate does at each crossing: grants, cancel, deadline, the effect journal and plans.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bc_proto::grants::Grants;
use bc_runtime::capability::Error;
use bc_runtime::effect::{Effect, EffectJournal, State, plan_hash};
use bc_runtime::{Mode, Outcome, Report, Run};
use bc_tests::journal::{Journal, Write};
use bc_tests::node::{self, Node};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{HOSTILE, run};

/// The mode `effects` resets a GPU and then reboots. Each effect of a report with what became of it.
fn effects(report: &Report) -> Vec<(&str, &State)> {
    report.effects.iter().map(|effect| (effect.name.as_str(), &effect.state)).collect()
}

#[tokio::test]
async fn effects_are_journaled_before_and_after_in_order() {
    let (node, journal) = (Node::quiet(), Arc::new(Journal::default()));
    let run = Run { capabilities: node.capabilities(), journal: journal.clone(), ..run("effects") };
    let report = HOSTILE.run(run).await;
    assert_eq!(report.outcome, Outcome::Succeeded { result: json!({ "reset": 0 }) });
    assert_eq!(effects(&report), [("gpus.reset", &State::Done), ("system.reboot", &State::Done)]);
    assert_eq!(
        journal.lines(),
        ["intent gpus.reset", "outcome gpus.reset: Done", "intent system.reboot", "outcome system.reboot: Done"]
    );
}

#[tokio::test]
async fn promise_22_a_grant_that_is_taken_away_between_two_calls_is_gone_for_the_second() {
    let grants = Arc::new(ArcSwap::from_pointee(HOSTILE.manifest().capabilities.clone()));
    let taken = Arc::clone(&grants);
    let node = Node::scripted(move |_| {
        taken.store(Arc::new(Grants::default()));
        Ok(())
    });
    let report = HOSTILE.run(Run { grants, capabilities: node.capabilities(), ..run("effects") }).await;
    let Outcome::Denied { message } = &report.outcome else { panic!("{}", report.outcome) };
    assert!(message.contains("this node's policy does not allow"), "{message}");
    assert_eq!(effects(&report), [("gpus.reset", &State::Done)], "what had happened by then is told");
    assert_eq!(node.calls(), ["gpus.reset"]);
}

#[tokio::test]
async fn a_cancel_during_an_effect_lets_it_end_and_then_ends_the_run() {
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let node = Node::scripted(move |_| {
        cancelled.cancel();
        Ok(())
    });
    let report = HOSTILE.run(Run { cancel, capabilities: node.capabilities(), ..run("effects") }).await;
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert_eq!(effects(&report), [("gpus.reset", &State::Done)]);
    assert_eq!(node.calls(), ["gpus.reset"]);
}

#[tokio::test]
async fn a_cancel_before_the_start_starts_nothing() {
    let cancelled = run("ok");
    cancelled.cancel.cancel();
    let report = HOSTILE.run(cancelled).await;
    assert_eq!((report.outcome, report.host_calls), (Outcome::Cancelled, 0));
}

#[tokio::test]
async fn an_effect_at_its_deadline_is_ambiguous_and_named() {
    let (hang, held) = node::hang();
    let (node, journal) = (
        Node::scripted(move |_| {
            hang.block();
            Ok(())
        }),
        Arc::new(Journal::default()),
    );
    let timeout = Some(Duration::from_millis(50));
    let run = Run { timeout, capabilities: node.capabilities(), journal: journal.clone(), ..run("effects") };
    let report = HOSTILE.run(run).await;
    assert_eq!(report.outcome, Outcome::Deadline { during: Some("gpus.reset".into()) });
    assert_eq!(effects(&report), [("gpus.reset", &State::Ambiguous)]);
    assert_eq!(journal.lines(), ["intent gpus.reset"], "an intent without an outcome");
    drop(held);
}

#[tokio::test]
async fn an_effect_whose_intent_is_not_durable_is_not_performed() {
    let (node, journal) = (Node::quiet(), Arc::new(Journal::failing_at(Write::Intent, 0)));
    let run = Run { capabilities: node.capabilities(), journal: journal.clone(), ..run("effects") };
    let report = HOSTILE.run(run).await;
    let message = "the intent of gpus.reset was not journaled: no space left on device".into();
    assert_eq!(report.outcome, Outcome::HostFailure { message });
    assert_eq!(effects(&report), []);
    assert_eq!(node.calls(), [""; 0]);
}

#[tokio::test]
async fn an_outcome_that_is_not_durable_ends_the_run_and_the_report_still_tells_it() {
    let (node, journal) = (Node::quiet(), Arc::new(Journal::failing_at(Write::Outcome, 0)));
    let run = Run { capabilities: node.capabilities(), journal: journal.clone(), ..run("effects") };
    let report = HOSTILE.run(run).await;
    let message = "the outcome of gpus.reset was not journaled: no space left on device".into();
    assert_eq!(report.outcome, Outcome::HostFailure { message });
    assert_eq!(effects(&report), [("gpus.reset", &State::Done)]);
    assert_eq!(node.calls(), ["gpus.reset"], "the second effect is not begun");
}

/// A disk in the D state.
struct StuckDisk;

#[async_trait]
impl EffectJournal for StuckDisk {
    async fn intent(&self, _: &Effect) -> Result<(), String> {
        std::future::pending().await
    }

    async fn outcome(&self, _: &Effect) -> Result<(), String> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_journal_that_hangs_costs_the_run_its_deadline_and_none_of_the_guests_cpu_budget() {
    let node = Node::quiet();
    let timeout = Some(Duration::from_millis(200));
    let run = Run { timeout, capabilities: node.capabilities(), journal: Arc::new(StuckDisk), ..run("effects") };
    let report = HOSTILE.run(run).await;
    assert_eq!(report.outcome, Outcome::Deadline { during: None });
    assert_eq!(effects(&report), [("gpus.reset", &State::Ambiguous)], "its intent may be on the disk");
    assert_eq!(node.calls(), [""; 0]);
    assert!(report.cpu < Duration::from_millis(200), "waiting is not the guest's own time: {:?}", report.cpu);
}

#[tokio::test]
async fn an_effect_that_the_node_could_not_do_is_journaled_as_failed() {
    let busy = |_: &str| Err(Error::new("gpu-busy", "a program holds it"));
    let (node, journal) = (Node::scripted(busy), Arc::new(Journal::default()));
    let run = Run { capabilities: node.capabilities(), journal: journal.clone(), ..run("effects") };
    let report = HOSTILE.run(run).await;
    let Outcome::GuestFailure(failure) = &report.outcome else { panic!("{}", report.outcome) };
    assert_eq!(failure.code, "gpu-busy");
    assert_eq!(effects(&report), [("gpus.reset", &State::Failed("a program holds it (gpu-busy)".into()))]);
    assert_eq!(journal.lines().len(), 2);
}

#[tokio::test]
async fn an_effect_that_panics_in_the_host_is_ambiguous_and_the_hosts_failure() {
    let (node, journal) = (Node::scripted(|_| panic!("a bug in the host")), Arc::new(Journal::default()));
    let run = Run { capabilities: node.capabilities(), journal: journal.clone(), ..run("effects") };
    let report = HOSTILE.run(run).await;
    let Outcome::HostFailure { message } = &report.outcome else { panic!("{}", report.outcome) };
    assert!(message.starts_with("gpus.reset panicked: "), "{message}");
    assert_eq!(effects(&report), [("gpus.reset", &State::Ambiguous)]);
    assert_eq!(journal.lines(), ["intent gpus.reset"]);
}

#[tokio::test]
async fn a_plan_performs_nothing_and_its_hash_is_stable() {
    let (node, journal) = (Node::quiet(), Arc::new(Journal::default()));
    let mut hashes = Vec::new();
    for _ in 0..2 {
        let run =
            Run { mode: Mode::Plan, capabilities: node.capabilities(), journal: journal.clone(), ..run("effects") };
        let report = HOSTILE.run(run).await;
        assert!(matches!(report.outcome, Outcome::Succeeded { .. }), "{}", report.outcome);
        assert_eq!(effects(&report), [("gpus.reset", &State::Planned), ("system.reboot", &State::Planned)]);
        hashes.push(plan_hash(&report.effects));
    }
    assert_eq!(node.calls(), [""; 0]);
    assert_eq!(journal.lines(), [""; 0]);
    assert_eq!(hashes[0], hashes[1]);
    let live = HOSTILE.run(run("effects")).await;
    assert_eq!(plan_hash(&live.effects), hashes[0], "what is planned is what is done");
}

#[tokio::test]
async fn a_flood_of_effects_ends_before_the_host_has_to_keep_them() {
    let node = Node::quiet();
    for mode in [Mode::Plan, Mode::Live] {
        let report = HOSTILE.run(Run { mode, capabilities: node.capabilities(), ..run("flood-effects") }).await;
        let Outcome::Denied { message } = &report.outcome else { panic!("{}", report.outcome) };
        assert!(message.contains("system.reboot") && message.contains("1048576 bytes"), "{message}");
        assert_eq!(report.effects, []);
    }
    assert_eq!(node.calls(), [""; 0]);
}

#[tokio::test]
async fn a_run_whose_call_hangs_ends_while_its_lane_slot_stays_taken() {
    let (hang, held) = node::hang();
    let node = Node::scripted(move |_| {
        hang.block();
        Ok(())
    });
    let slot: Arc<dyn std::any::Any + Send + Sync> = Arc::new(SlotSignal::default());
    let signal = SlotSignal::of(&slot);
    let watched = Arc::downgrade(&slot);
    let timeout = Some(Duration::from_millis(50));
    let run = Run { timeout, slot: Some(slot), capabilities: node.capabilities(), ..run("nvml") };
    let report = HOSTILE.run(run).await;
    assert_eq!(report.outcome, Outcome::Deadline { during: Some("nvml.driver".into()) });
    assert!(watched.upgrade().is_some(), "the thread is still in the driver");
    drop(held);
    signal.notified().await;
    assert!(watched.upgrade().is_none(), "the thread is back");
}

#[tokio::test]
async fn a_run_whose_call_hangs_is_cancelled_at_once() {
    let (hang, held) = node::hang();
    let node = Node::scripted(move |_| {
        hang.block();
        Ok(())
    });
    let run = Run { capabilities: node.capabilities(), ..run("nvml") };
    let cancel = run.cancel.clone();
    let (report, ()) = tokio::join!(HOSTILE.run(run), async {
        held.begun().await;
        cancel.cancel();
    });
    assert_eq!(report.outcome, Outcome::Cancelled);
}

/// Tells when a lane slot is released.
#[derive(Default)]
struct SlotSignal(Arc<tokio::sync::Notify>);

impl SlotSignal {
    fn of(slot: &Arc<dyn std::any::Any + Send + Sync>) -> Arc<tokio::sync::Notify> {
        Arc::clone(&slot.downcast_ref::<Self>().expect("it is one").0)
    }
}

impl Drop for SlotSignal {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
