//! The tables of `docs/metrics.md`, and that dashboard and alerts name what stands in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Who serves a metric, and as what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) section: String,
    pub(crate) kind: String,
    pub(crate) labels: BTreeSet<String>,
}

fn docs(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The tables, by the metrics' names.
pub(crate) fn rows() -> BTreeMap<String, Row> {
    let (mut rows, mut section) = (BTreeMap::new(), String::new());
    for line in docs("metrics.md").lines() {
        if let Some(title) = line.strip_prefix("### ") {
            title.clone_into(&mut section);
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(name) = cells.get(1).and_then(|cell| cell.strip_prefix("`better_compute_")) else { continue };
        let kind = cells[2].split(',').next().expect("a type").to_owned();
        // `method`, `code`: of HTTP. What follows the colon are values.
        let labels = cells[3].split(':').next().into_iter().flat_map(|names| names.split(','));
        let labels =
            labels.map(|name| name.trim_matches(['`', ' ']).to_owned()).filter(|name| !name.is_empty()).collect();
        let row = Row { section: section.clone(), kind, labels };
        let twice = rows.insert(format!("better_compute_{}", name.trim_end_matches('`')), row);
        assert_eq!(twice, None, "{name} stands there twice");
    }
    assert!(rows.len() > 30, "the tables were not read: {rows:?}");
    rows
}

/// The metrics that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ends =
        |word: &str| ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end)).map(str::to_owned);
    words
        .filter(|word| word.starts_with("better_compute_"))
        .map(|word| ends(word).unwrap_or_else(|| word.to_owned()))
        .collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let dashboard: serde_json::Value = serde_json::from_str(&docs("grafana/better-compute.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let queries = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let shown: BTreeSet<String> = queries.flat_map(|query| named(query["expr"].as_str().expect("a query"))).collect();
    assert_eq!(shown, rows().into_keys().collect());
}

#[test]
fn alerts_ask_for_metrics_that_there_are_and_say_what_to_do() {
    let rules = docs("alerts/better-compute.rules.yml");
    let rows = rows();
    let unknown: Vec<String> = named(&rules).into_iter().filter(|name| !rows.contains_key(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let count = |word: &str| rules.matches(word).count();
    assert!(count("- alert:") > 10);
    for part in ["expr:", "summary:", "runbook:", "labels: {severity:"] {
        assert_eq!(count(part), count("- alert:"), "every alert has `{part}`");
    }
}
