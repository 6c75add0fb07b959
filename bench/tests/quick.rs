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

const OF_THE_QUEUE: [&str; 7] = [
    "A1b the same, 32 clients, all to one node",
    "A2 enqueue, 1,000 a statement",
    "A6 enqueue,",
    "A6 settle,",
    "A6 list a page of 100,",
    "A7 a claim under an open snapshot",
    "A8 WAL a settled command",
];

const OF_THE_WHOLE_WAY: [&str; 8] = [
    "B1 idle, commands.run until settled, p50 / p99",
    "B2 commands settled, 2 daemons, 1 replica",
    "B6 the same, 4 replicas against 1",
    "B3 50 idle sessions without a network, resident memory of each",
    "B3 50 idle sessions without a network, CPU of their process",
    "B4 50 hellos, until each has its command again",
    "B5 bcd idle, resident memory",
    "B5 bcd idle, wake-ups of all threads",
];

const OF_KINDS: [&str; 7] = [
    "C1 no-op kind, whole run",
    "C1 JSON kind (100 objects), whole run",
    "C2 no-op kind against fork + exec",
    "C3 one host call (read)",
    "C4 load, cache warm",
    "C4 load in a fresh process, cache warm",
    "C4 load, cache cold",
];

/// What a quick run of a group printed.
struct Table(String);

impl Table {
    #[expect(clippy::disallowed_methods, reason = "the program is what is tested")]
    fn of(group: &str) -> Self {
        let elsewhere = tempfile::tempdir().expect("a temporary directory");
        let output = Command::new(env!("CARGO_BIN_EXE_bc-bench"))
            .args(["--quick", "--filter", group, "--results", "results.md", "--kinds"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins/dist"))
            .current_dir(elsewhere.path())
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!elsewhere.path().join("results.md").exists(), "it keeps nothing");
        Self(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn verdict(&self, figure: &str) -> &str {
        let row = self.0.lines().find(|line| line.contains(figure));
        let row = row.unwrap_or_else(|| panic!("no row `{figure}` in\n{}", self.0));
        row.trim_end_matches([' ', '|']).rsplit('|').next().expect("a row has cells").trim()
    }

    fn judges(&self, figures: &[&str]) {
        for figure in figures {
            assert!(matches!(self.verdict(figure), "met" | "missed"), "{figure}");
        }
    }
}

#[test]
fn a_quick_run_prints_every_figure_of_the_queue() {
    let table = Table::of("A");
    table.judges(&OF_THE_QUEUE);
    for figure in AGAINST_PEERS {
        assert!(matches!(table.verdict(figure), "missed" | "–"), "{figure}");
    }
}

#[test]
fn a_quick_run_prints_every_figure_of_the_whole_way() {
    Table::of("B").judges(&OF_THE_WHOLE_WAY);
}

#[test]
fn a_quick_run_prints_every_figure_of_kinds() {
    let table = Table::of("C");
    table.judges(&OF_KINDS);
    assert_eq!(table.verdict(FOR_INFORMATION), "–");
}
