//! Each way to misbehave has its typed outcome.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bc_proto::grants::Grants;
use bc_runtime::{Outcome, Run};
use bc_tests::watcher::Recorder;
use serde_json::json;

use crate::{HOSTILE, mode, report, run};

#[tokio::test]
async fn a_guest_that_behaves_succeeds() {
    let report = report("ok").await;
    assert_eq!(report.outcome, Outcome::Succeeded { result: json!({}) });
    assert_eq!(report.effects, []);
}

#[tokio::test]
async fn a_guests_own_failure_is_told_word_for_word() {
    let Outcome::GuestFailure(failure) = report("fail").await.outcome else { panic!("it says that it failed") };
    assert_eq!(failure.code, "hostile-failure");
    assert_eq!(failure.message, "failed as it was told to");
    assert!(failure.retryable);
    assert_eq!(failure.details, Some(json!(["as", "told"])));
}

#[tokio::test]
async fn a_payload_against_the_schema_runs_nothing() {
    let report = HOSTILE.run(bc_tests::run(&HOSTILE, mode("nice"))).await;
    let Outcome::InvalidPayload { problems } = &report.outcome else { panic!("{}", report.outcome) };
    assert_eq!(problems[0].pointer, "/mode");
    assert_eq!(report.host_calls, 0);
}

#[tokio::test]
async fn an_endless_loop_ends_with_the_cpu_budget() {
    assert_eq!(report("spin").await.outcome, Outcome::Cpu { limit_ms: 1000 });
}

#[tokio::test]
async fn an_endless_loop_ends_with_the_deadline_when_that_comes_first() {
    let report = HOSTILE.run(Run { timeout: Some(Duration::from_millis(50)), ..run("spin") }).await;
    assert_eq!(report.outcome, Outcome::Deadline { during: None });
}

#[tokio::test]
async fn an_endless_loop_ends_with_a_cancel() {
    let spinning = run("spin");
    let cancel = spinning.cancel.clone();
    let (report, ()) = tokio::join!(HOSTILE.run(spinning), async move { cancel.cancel() });
    assert_eq!(report.outcome, Outcome::Cancelled);
}

#[tokio::test]
async fn a_greedy_allocator_ends_with_the_memory_limit() {
    let report = report("allocate").await;
    assert_eq!(report.outcome, Outcome::Memory { limit_bytes: 32 << 20 });
    assert!((16 << 20..=32 << 20).contains(&report.peak_memory_bytes), "{}", report.peak_memory_bytes);
}

#[tokio::test]
async fn a_flood_of_log_lines_costs_the_guest_its_own_budget_and_is_counted() {
    let watcher = Arc::new(Recorder::default());
    let report = HOSTILE.run(Run { watcher: watcher.clone(), ..run("flood-log") }).await;
    assert_eq!(report.outcome, Outcome::Cpu { limit_ms: 1000 });
    let lines = watcher.lines();
    assert_eq!(lines.len(), 2_000, "the log budget");
    assert!(lines.iter().all(|line| line == "hostile guest floods the log"));
    assert!(report.dropped_log_lines > 0);
    assert_eq!(report.host_calls, report.dropped_log_lines + 2_000);
}

#[tokio::test]
async fn a_line_that_is_larger_than_any_host_call_may_be_is_refused_in_words() {
    let watcher = Arc::new(Recorder::default());
    let report = HOSTILE.run(Run { watcher: watcher.clone(), ..run("huge-line") }).await;
    let Outcome::Trap { message, frames } = report.outcome else { panic!("{}", report.outcome) };
    assert!(message.contains("too much data is being copied between the host and the guest"), "{message}");
    assert!(frames.iter().any(|frame| frame.function.contains("log_a_huge_line")), "{frames:?}");
    assert_eq!(watcher.lines(), [""; 0]);
}

#[tokio::test]
async fn a_result_that_is_larger_than_any_host_call_may_be_is_refused_in_words() {
    let Outcome::Trap { message, .. } = report("big-result").await.outcome else { panic!("the ABI's limit is broken") };
    assert!(message.contains("too much data is being copied between the host and the guest"), "{message}");
}

#[tokio::test]
async fn a_result_that_is_not_json_is_the_guests_failure() {
    let Outcome::GuestFailure(failure) = report("garbage").await.outcome else { panic!("the guest is to blame") };
    assert_eq!(failure.code, "invalid-result");
    assert!(failure.message.starts_with("the result is not JSON: "), "{}", failure.message);
}

#[tokio::test]
async fn a_call_that_the_policy_does_not_grant_ends_the_run() {
    let grants = Arc::new(ArcSwap::from_pointee(Grants::default()));
    let report = HOSTILE.run(Run { grants, ..run("nvml") }).await;
    let Outcome::Denied { message } = report.outcome else { panic!("{}", report.outcome) };
    assert!(message.contains("this node's policy does not allow"), "{message}");
}
