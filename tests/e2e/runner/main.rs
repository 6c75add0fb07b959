//! `bcd runner` as real processes over a real Postgres: what it leases, runs, tells, and leaves behind.
//!
//! **Invariant:** no runner here ever polls: whatever it does it was told of.

mod gateway;
mod outages;
mod reporting;

use bc_proto::rules::lease::OUTPUT_KEPT;
use bc_tests::programs;
use serde_json::json;

use self::gateway::{Gateway, is_alive, pid};

fn ending(status: &str, exit_code: Option<i32>, code: &str) -> (String, Option<i32>, String) {
    (status.into(), exit_code, code.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_leased_when_it_is_told_of_and_ends_as_its_program_does() {
    let mut gateway = Gateway::start().await;
    let mut runner = gateway.runner("one", &[]);
    runner.has_said("waiting for commands").await;
    let said = gateway.queue("say", json!({ "b": 1, "a": "é" })).await;
    let over = gateway.over(&said).await;
    assert_eq!(over.ending(), ending("done", Some(0), ""));
    assert_eq!((over.text("stdout"), over.text("stderr")), ("out\n{\"a\":\"é\",\"b\":1}".into(), "err\n".into()));
    assert_eq!((over.settled.state.as_str(), over.settled.kind.as_str()), ("succeeded", "runner.action"));
    assert!(over.text("leased_by").ends_with("bcd-runner one"), "{}", over.text("leased_by"));
    assert_eq!(gateway.output(&said, |_| false).await.matches("out\n").count(), 1, "it can be followed afterwards");

    let failed = gateway.queue("exit", json!({ "code": 3 })).await;
    let over = gateway.over(&failed).await;
    assert_eq!((over.ending(), over.text("stdout")), (ending("failed", Some(3), "exit-code"), "before\n".into()));

    // Queued by the API, it wakes a runner as well.
    let payload = json!({ "action": "exit", "payload": { "code": 0 } });
    let queued = gateway.cluster.api.run(&gateway.node, "runner.action", "by-the-api", payload).await;
    assert_eq!(gateway.over(&queued).await.ending(), ending("done", Some(0), ""));

    let slow = gateway.queue("short", json!({})).await;
    let over = gateway.over(&slow).await;
    assert_eq!((over.ending(), over.text("stdout")), (ending("failed", None, "timeout"), "begun\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_file_does_not_allow_is_failed_in_words_and_nothing_runs() {
    let mut gateway = Gateway::start().await;
    let _runner = gateway.runner("one", &[]);
    for (action, payload, code) in [
        ("reboot", json!({}), "unknown-action"),
        ("exit", json!({}), "missing-value"),
        ("exit", json!({ "code": "--help" }), "becomes-option"),
        ("exit", json!({ "code": [1] }), "not-a-scalar"),
        ("exit", json!({ "code": 0, "more": 1 }), "extra-value"),
        ("exit", json!({ "code": "x".repeat(5_000) }), "too-long"),
    ] {
        let command = gateway.queue(action, payload).await;
        let over = gateway.over(&command).await;
        assert_eq!(over.ending(), ending("failed", None, code), "{}", over.text("error"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_05_of_200_mb_both_ends_are_kept_with_the_true_totals_and_memory_stays_flat() {
    let mut gateway = Gateway::start().await;
    let runner = gateway.runner("one", &[]);
    let first = gateway.queue("say", json!({})).await;
    gateway.over(&first).await;
    let peak_kib = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", runner.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    let before = peak_kib();
    let big = gateway.queue("big", json!({})).await;
    let over = gateway.over(&big).await;
    assert_eq!(over.ending(), ending("done", Some(0), ""));
    assert_eq!((over.number("stdout_bytes"), over.says("stdout_truncated")), (200_000_004, true));
    let expected = {
        use sha2::{Digest as _, Sha256};
        let mut hash = Sha256::new();
        let piece = vec![b'x'; 1_000_000];
        (0..200).for_each(|_| hash.update(&piece));
        hash.update(b"end\n");
        hex::encode(hash.finalize())
    };
    assert_eq!(over.text("stdout_sha256"), expected);
    let shown = over.text("stdout");
    let cut = format!("\n[... cut: 200000004 bytes in all, SHA-256 {expected} ...]\n");
    let (head, tail) = shown.split_once(&cut).expect("the cut says so");
    assert_eq!((head.len(), tail.len()), (OUTPUT_KEPT / 2, OUTPUT_KEPT / 2));
    assert!(tail.ends_with("xend\n"));
    assert!(peak_kib() < before + 64 * 1024, "{before} KiB grew to {} KiB", peak_kib());
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_05_output_that_is_no_text_is_kept_as_text_and_says_so() {
    let mut gateway = Gateway::start().await;
    let _runner = gateway.runner("one", &[]);
    let bytes = gateway.queue("bytes", json!({})).await;
    let over = gateway.over(&bytes).await;
    assert_eq!((over.ending(), over.number("stdout_bytes")), (ending("done", Some(0), ""), 5));
    assert_eq!((over.text("stdout"), over.says("stdout_lossy")), ("a\u{fffd}b\u{fffd}c".into(), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_12_a_cancel_takes_the_whole_tree_and_is_told_at_once() {
    let mut gateway = Gateway::start().await;
    let _runner = gateway.runner("one", &[]);
    let file = gateway.path("hang.pid");
    let hangs = gateway.queue("hang", json!({ "file": gateway.word("hang.pid") })).await;
    gateway.output(&hangs, |text| text.contains("hangs")).await;
    let (program, child) = (pid(&file).expect("its id"), pid(&gateway.path("hang.pid.child")).expect("its child's id"));
    gateway.cluster.api.cancel(&hangs).await;
    let over = gateway.over(&hangs).await;
    assert_eq!((over.settled.state.as_str(), over.text("stdout")), ("cancelled", "hangs\n".into()));
    assert!(!is_alive(&program) && !is_alive(&child), "they were gone before it was told");
    // The runner goes on.
    let next = gateway.queue("exit", json!({ "code": 0 })).await;
    assert_eq!(gateway.over(&next).await.ending(), ending("done", Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_stopped_takes_nothing_new_waits_and_kills_the_rest() {
    let mut gateway = Gateway::start().await;
    let mut runner = gateway.runner("one", &["--stop-grace", "100ms", "--concurrency", "2"]);
    let hangs = gateway.queue("hang", json!({ "file": gateway.word("hang.pid") })).await;
    gateway.output(&hangs, |text| text.contains("hangs")).await;
    let program = pid(&gateway.path("hang.pid")).expect("its id");
    assert!(runner.stop().await.success());
    assert!(!is_alive(&program));
    let over = gateway.over(&hangs).await;
    assert_eq!(over.ending(), ending("failed", None, "runner-stopped"));
    let waits = gateway.queue("exit", json!({ "code": 0 })).await;
    assert_eq!(gateway.cluster.api.get(&waits).await.state, "pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_cannot_work_says_why() {
    let gateway = Gateway::start().await;
    let said = programs::run(&mut gateway.command("one", "munich-9", &[]));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.err.contains("there is no gateway with the slug munich-9") && said.err.contains("runner_logins"),
        "{said:?}"
    );
    for (arguments, words) in [
        (["--command-timeout", "2days"], "a day at most"),
        (["--concurrency", "0"], "0 is not in 1..=32"),
        (["--poll", "0s"], "between 1s and 1day"),
    ] {
        let said = programs::run(&mut gateway.command("one", "berlin-1", &arguments));
        assert!(said.code == Some(1) && said.err.contains(words), "{said:?}");
    }
    let mut command = programs::command("bcd");
    command.args(["runner", "--gateway", "berlin-1", "--config"]).arg(gateway.path("runner.toml"));
    command.env_remove("DATABASE_URL");
    let said = programs::run(&mut command);
    assert!(said.code == Some(1) && said.err.contains("--database-url-file"), "{said:?}");
}
