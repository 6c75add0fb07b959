//! The benchmarks run. How fast anything is depends on the machine and is not tested.

use std::process::Command;

/// Without a goal of its own.
const FOR_INFORMATION: &str = "C4 engine and load in a fresh process";

/// Compared with other queues too, which a quick run leaves out: these can be missed, but not met.
const AGAINST_PEERS: [&str; 4] = [
    "A1 enqueue one by one, 8 clients",
    "A3 drain of 20,000",
    "A4 enqueue, run and settle, 8 clients",
    "A5 idle, enqueue until handed over, p50 / p99",
];

const FIGURES: [&str; 15] = [
    "A1b the same, 32 clients, all to one node",
    "A2 enqueue, 1,000 a statement",
    "A6 enqueue,",
    "A6 settle,",
    "A6 list a page of 100,",
    "A7 a claim under an open snapshot",
    "A8 WAL a settled command",
    "C1 no-op kind, whole run",
    "C1 JSON kind (100 objects), whole run",
    "C2 no-op kind against fork + exec",
    "C3 one host call (read)",
    "C4 load, cache warm",
    "C4 load in a fresh process, cache warm",
    FOR_INFORMATION,
    "C4 load, cache cold",
];

#[test]
#[expect(clippy::disallowed_methods, reason = "the program is what is tested")]
fn a_quick_run_prints_every_figure_and_keeps_none() {
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_bc-bench"))
        .args(["--quick", "--results", "results.md", "--kinds"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins/dist"))
        .current_dir(elsewhere.path())
        .output()
        .expect("it starts");
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let verdict = |figure: &str| {
        let row = table.lines().find(|line| line.contains(figure));
        let row = row.unwrap_or_else(|| panic!("no row `{figure}` in\n{table}"));
        row.trim_end_matches([' ', '|']).rsplit('|').next().expect("a row has cells").trim().to_owned()
    };
    for figure in FIGURES {
        let is_judged = matches!(verdict(figure).as_str(), "met" | "missed");
        assert_eq!(is_judged, figure != FOR_INFORMATION, "{figure}");
    }
    for figure in AGAINST_PEERS {
        assert!(matches!(verdict(figure).as_str(), "missed" | "–"), "{figure}");
    }
    assert!(!elsewhere.path().join("results.md").exists());
}
