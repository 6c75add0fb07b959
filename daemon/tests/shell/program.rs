//! Kinds that run programs: what becomes of the programs' processes.

use std::path::Path;
use std::time::{Duration, Instant};

use bc_proto::rules::daemon::Input;
use bc_proto::wire::Report;
use serde_json::{Value, json};

use super::bench::{Bench, deliver, id};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The id that a script wrote into a file, once it is whole.
async fn pid_in(file: &Path) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < until, "the script writes its id"),
        }
        tokio::task::yield_now().await;
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').expect("a stat").1.trim_start().starts_with('Z'))
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_12_a_cancelled_command_takes_its_programs_whole_tree_before_it_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let mut bench = Bench::new();
    let program = bench.program();
    let mut daemon = bench.daemon().await;
    let hides = format!(
        "setsid sh -c 'trap \"\" TERM HUP INT; (echo $$ > {}; exec sleep 1000) & exec sleep 1000' & wait",
        file.display()
    );
    daemon.deliver(&deliver(&program, 1, json!({ "script": hides }))).await;
    let pid = pid_in(&file).await;
    assert!(is_alive(&pid));
    daemon.input(Input::CancelReceived { epoch: 1, command: id(1), signature: None }).await;
    let cancelled = daemon.report_of(1).await;
    assert!(!is_alive(&pid), "nothing is left when it is reported");
    assert_eq!(cancelled.report, Report::Cancelled);
    let result: Value = serde_json::from_slice(&cancelled.result).expect("JSON");
    assert_eq!(result["effects"][0]["name"], "process.run", "what had happened is said: {result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_s_end_and_output_are_the_result() {
    let mut bench = Bench::new();
    let program = bench.program();
    let mut daemon = bench.daemon().await;
    daemon.deliver(&deliver(&program, 1, json!({ "script": "echo hello; exit 3" }))).await;
    let done = daemon.report_of(1).await;
    let result: Value = serde_json::from_slice(&done.result).expect("JSON");
    assert_eq!(
        (done.report, &result),
        (Report::Succeeded, &json!({ "exit": { "code": 3 }, "stdout": "hello\n", "bytes": 6 }))
    );
}
