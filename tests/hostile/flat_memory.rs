//! Promise 24: failing runs leave nothing behind.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bc_proto::quantity::Span;
use bc_runtime::{Kind, Run};

use crate::mode;

/// Runs before the first look: the allocator, the thread pool and wasmtime's stacks reach their working size.
const WARM_UP: usize = 100;
const RUNS: usize = 1_000;

/// What the process may have grown by: 8 KiB a run. An instance that stayed would leave more than that, its fiber's stack and
/// its memory's data alone are several pages each; what the allocator keeps for itself moves by less in all.
const GROWTH_BYTES: u64 = 8 * 1024 * 1024;

/// `test.hostile` with a CPU budget of 10 ms, so that a thousand endless loops take seconds.
static BRIEF: LazyLock<Kind> = LazyLock::new(|| {
    bc_tests::load(&bc_tests::repacked("test.hostile", |manifest| {
        manifest.limits.cpu = Span(Duration::from_millis(10));
    }))
});

/// The ways to fail, in turn.
async fn fail(turn: usize) {
    let modes = ["trap", "panic", "recurse", "fail", "garbage", "allocate", "hold", "nvml", "spin", "flood-log"];
    let name = modes[turn % modes.len()];
    let run = bc_tests::run(&BRIEF, mode(name));
    let run = match name {
        "nvml" => Run { grants: Arc::default(), ..run },
        "hold" => Run { timeout: Some(Duration::from_millis(1)), ..run },
        _ => run,
    };
    let outcome = BRIEF.run(run).await.outcome;
    assert_ne!(outcome.name(), "succeeded", "{name}");
}

#[tokio::test]
async fn promise_24_a_thousand_failing_runs_leave_memory_flat() {
    for turn in 0..WARM_UP {
        fail(turn).await;
    }
    let before = resident_bytes();
    for turn in 0..RUNS {
        fail(turn).await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown <= GROWTH_BYTES, "{grown} bytes more after {RUNS} failing runs, from {before}");
}

/// The process's resident memory, from the second field of `/proc/self/statm`, which counts pages.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("it has the field");
    pages * u64::try_from(rustix::param::page_size()).expect("it is small")
}
