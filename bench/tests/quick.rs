//! The benchmarks run. How fast anything is depends on the machine and is not tested.

use std::process::Command;

/// Without a goal of its own.
const FOR_INFORMATION: &str = "C4 engine and load in a fresh process";

const FIGURES: [&str; 8] = [
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
    for figure in FIGURES {
        let row = table.lines().find(|line| line.contains(figure));
        let row = row.unwrap_or_else(|| panic!("no row `{figure}` in\n{table}"));
        let judged = row.contains("met") || row.contains("missed");
        assert_eq!(judged, figure != FOR_INFORMATION, "{row}");
    }
    assert!(!elsewhere.path().join("results.md").exists());
}
