//! Promise 23: each runaway is stopped within its limit and 100 ms.
//!
//! nextest runs these tests alone (`.config/nextest.toml`): the promise is about the runtime, not about what the machine does
//! beside it.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bc_proto::quantity::{Bytes, Span};
use bc_runtime::{Kind, Outcome, Report, Run};
use bc_tests::node::{self, Node};

use crate::mode;

/// What the promise allows between a limit and the stop.
const GRACE: Duration = Duration::from_millis(100);
const CPU: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(1);
const MEMORY: Bytes = Bytes::mib(16);

/// `test.hostile` with small limits.
static SMALL: LazyLock<Kind> = LazyLock::new(|| {
    bc_tests::load(&bc_tests::repacked("test.hostile", |manifest| {
        manifest.limits.cpu = Span(CPU);
        manifest.limits.memory = MEMORY;
        manifest.timeout = Span(TIMEOUT);
    }))
});

/// Runs it, and checks that it stopped within the limit.
async fn check(run: Run, limit: Duration) -> Report {
    let mode = run.payload.to_string();
    let started = Instant::now();
    let report = SMALL.run(run).await;
    let took = started.elapsed();
    assert!(took <= limit + GRACE, "{mode}: {}, after {took:?} where {limit:?} was the limit", report.outcome);
    report
}

fn run(name: &str) -> Run {
    let run = bc_tests::run(&SMALL, mode(name));
    Run { record: false, ..run }
}

#[tokio::test]
async fn promise_23_an_endless_loop_stops_at_its_cpu_budget() {
    let report = check(run("spin"), CPU).await;
    assert_eq!(report.outcome, Outcome::Cpu { limit_ms: 200 });
    assert!(report.cpu >= CPU, "{:?}", report.cpu);
}

#[tokio::test]
async fn promise_23_a_greedy_allocator_stops_at_its_memory_limit() {
    // It is stopped by what it takes, not by time; the CPU budget would be next.
    let report = check(run("allocate"), CPU).await;
    assert_eq!(report.outcome, Outcome::Memory { limit_bytes: MEMORY.0 });
    assert!(report.peak_memory_bytes <= MEMORY.0, "{}", report.peak_memory_bytes);
}

#[tokio::test]
async fn promise_23_an_endless_recursion_stops_at_the_end_of_its_stack() {
    let report = check(run("recurse"), CPU).await;
    let Outcome::Trap { message, .. } = report.outcome else { panic!("{}", report.outcome) };
    assert_eq!(message, "wasm trap: call stack exhausted");
}

#[tokio::test]
async fn promise_23_a_flood_of_log_lines_stops_at_its_cpu_budget() {
    let report = check(run("flood-log"), CPU).await;
    assert_eq!(report.outcome, Outcome::Cpu { limit_ms: 200 });
}

#[tokio::test]
async fn promise_23_a_flood_of_recorded_calls_stops_at_its_cpu_budget() {
    let report = check(Run { record: true, ..run("flood-calls") }, CPU).await;
    assert_eq!(report.outcome, Outcome::Cpu { limit_ms: 200 });
}

#[tokio::test]
async fn promise_23_a_held_host_call_stops_at_its_deadline() {
    let report = check(run("hold"), TIMEOUT).await;
    assert_eq!(report.outcome, Outcome::Deadline { during: Some("clock.sleep".into()) });
    assert!(report.cpu < CPU, "waiting is not the guest's own time: {:?}", report.cpu);
}

#[tokio::test]
async fn promise_23_a_blocking_call_that_never_returns_stops_at_its_deadline() {
    let (hang, held) = node::hang();
    let node = Node::scripted(move |_| {
        hang.block();
        Ok(())
    });
    let report = check(Run { capabilities: node.capabilities(), ..run("nvml") }, TIMEOUT).await;
    assert_eq!(report.outcome, Outcome::Deadline { during: Some("nvml.driver".into()) });
    drop(held);
}

#[tokio::test]
async fn promise_23_what_is_not_granted_stops_at_once() {
    let grants = std::sync::Arc::default();
    let report = check(Run { grants, ..run("nvml") }, Duration::ZERO).await;
    assert!(matches!(report.outcome, Outcome::Denied { .. }), "{}", report.outcome);
}

#[tokio::test]
async fn promise_23_a_trap_and_a_failure_stop_at_once() {
    for name in ["trap", "panic"] {
        let report = check(run(name), Duration::ZERO).await;
        assert!(matches!(report.outcome, Outcome::Trap { .. }), "{}", report.outcome);
    }
    let report = check(run("fail"), Duration::ZERO).await;
    assert!(matches!(report.outcome, Outcome::GuestFailure(_)), "{}", report.outcome);
}

#[tokio::test]
async fn promise_23_four_runaways_on_one_thread_each_stop_at_their_own_budget() {
    // They take turns: the last ends when all have used up theirs.
    let all = tokio::join!(
        check(run("spin"), 4 * CPU),
        check(run("spin"), 4 * CPU),
        check(run("flood-log"), 4 * CPU),
        check(run("hold"), TIMEOUT)
    );
    for report in [all.0, all.1, all.2] {
        assert_eq!(report.outcome, Outcome::Cpu { limit_ms: 200 });
    }
    assert_eq!(all.3.outcome, Outcome::Deadline { during: Some("clock.sleep".into()) });
}
