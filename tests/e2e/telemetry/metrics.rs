//! The pages of a replica and of a node that do real work.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::Duration;

use bc_tests::cluster::node::Node;
use bc_tests::cluster::{COUNT, COUNT_BULK, Cluster, PATIENCE};
use serde_json::json;

use crate::table;

/// What this scenario does not bring about: each is on a page from its first time on.
const NOT_HERE: [&str; 2] = ["better_compute_sessions_refused_total", "better_compute_approval_wait_seconds"];

/// A page: types by name, and its samples.
struct Page {
    types: BTreeMap<String, String>,
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Page {
    async fn read(port: u16) -> Self {
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let text = answer.text().await.expect("text");
        let mut page = Self { types: BTreeMap::new(), samples: Vec::new() };
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').expect("a name and a type");
                page.types.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect("a series and a value");
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
                let labels = labels.map(|label| label.split_once("=\"").expect("a label"));
                let labels = labels.map(|(key, value)| (key.to_owned(), value.trim_end_matches('"').to_owned()));
                page.samples.push((name.to_owned(), labels.collect(), value.parse().expect("a number")));
            }
        }
        page
    }

    /// The page as soon as something holds of it. Nothing tells of what is only counted.
    async fn with(port: u16, what: &str, holds: impl Fn(&Self) -> bool) -> Self {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let page = async {
            loop {
                ticks.tick().await;
                let page = Self::read(port).await;
                if holds(&page) {
                    return page;
                }
            }
        };
        tokio::time::timeout(PATIENCE, page).await.unwrap_or_else(|_| panic!("it takes too long until {what}"))
    }

    /// The sum of all samples with this name and label.
    fn value(&self, name: &str, label: (&str, &str)) -> f64 {
        let wanted = |labels: &BTreeMap<String, String>| {
            label.0.is_empty() || labels.get(label.0).is_some_and(|value| value == label.1)
        };
        self.samples.iter().filter(|(it, labels, _)| it == name && wanted(labels)).map(|(.., value)| value).sum()
    }

    /// Compares it with the tables.
    fn agrees(&self, rows: &BTreeMap<String, table::Row>) {
        for (name, kind) in &self.types {
            let row = rows.get(name).unwrap_or_else(|| panic!("{name} is served and not in docs/metrics.md"));
            assert_eq!(&row.kind, kind, "{name}");
            let ours = self.samples.iter().filter(|(it, ..)| {
                it == name || ["_bucket", "_sum", "_count"].iter().any(|end| it.strip_suffix(end) == Some(name))
            });
            for (_, labels, _) in ours {
                let keys: BTreeSet<String> = labels.keys().filter(|key| *key != "le").cloned().collect();
                assert_eq!(keys, row.labels, "the labels of {name}");
            }
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_serves_and_the_tables_agree_in_both_directions() {
    let mut cluster = Cluster::start(1, 1).await;
    let (of_server, of_node) = (free_port(), free_port());
    // What is counted begins with these two processes.
    cluster.nodes[0].kill();
    cluster.replicas[0].set("BETTER_COMPUTE_METRICS", &format!("127.0.0.1:{of_server}"));
    cluster.replicas[0].restart().await;
    let file = cluster.nodes[0].path("bcd.toml");
    let config = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, format!("metrics = '127.0.0.1:{of_node}'\n{config}")).expect("it is written");
    cluster.nodes[0].start();

    let node = cluster.nodes[0].id.clone();
    let done = cluster.api.run(&node, COUNT.name, "done", Node::counted(0, 0)).await;
    assert_eq!(cluster.api.settled(&done).await.state, "succeeded");
    let failed = cluster.api.run(&node, COUNT.name, "failed", json!({ "gpu": "GPU-none", "holdMs": 0 })).await;
    assert_eq!(cluster.api.settled(&failed).await.state, "failed");
    let held = cluster.api.run(&node, COUNT_BULK.name, "held", Node::counted(1, 600_000)).await;
    cluster.nodes[0].has_counted(1, 1).await;

    let all_said = |page: &Page| {
        page.value("better_compute_dispatch_to_ack_seconds_count", ("", "")) >= 3.0
            && page.value("better_compute_ack_to_settled_seconds_count", ("", "")) >= 2.0
    };
    let server = Page::with(of_server, "all updates are counted", all_said).await;
    let daemon = Page::read(of_node).await;
    let rows = table::rows();
    server.agrees(&rows);
    daemon.agrees(&rows);
    for (name, row) in &rows {
        let page = if row.section == "Node" { &daemon } else { &server };
        let is_there = page.types.contains_key(name);
        assert_ne!(is_there, NOT_HERE.contains(&name.as_str()), "{name}, of {}", row.section);
    }
    let unlabelled = ("", "");
    for (page, name, label, value) in [
        (&server, "better_compute_settled_total", ("state", "succeeded"), 1.0),
        (&server, "better_compute_settled_total", ("state", "failed"), 1.0),
        (&server, "better_compute_settled_total", ("kind", COUNT.name), 2.0),
        (&server, "better_compute_sessions", unlabelled, 1.0),
        (&server, "better_compute_sessions_opened_total", unlabelled, 1.0),
        (&server, "better_compute_in_flight", ("lane", "bulk"), 1.0),
        (&server, "better_compute_in_flight", ("lane", "control"), 0.0),
        (&server, "better_compute_pending", unlabelled, 0.0),
        (&server, "better_compute_credits_in_use", ("lane", "bulk"), 1.0),
        (&server, "better_compute_credits", ("lane", "bulk"), 2.0),
        (&server, "better_compute_dispatch_to_ack_seconds_count", unlabelled, 3.0),
        (&server, "better_compute_ack_to_settled_seconds_count", unlabelled, 2.0),
        (&server, "better_compute_bus_listening", unlabelled, 1.0),
        (&server, "better_compute_database_up", unlabelled, 1.0),
        (&server, "better_compute_duplicate_reports_total", unlabelled, 0.0),
        (&server, "better_compute_rejected_total", unlabelled, 0.0),
        (&server, "better_compute_refused_results_total", unlabelled, 0.0),
        (&server, "better_compute_sweep_lag_seconds", unlabelled, 0.0),
        (&daemon, "better_compute_node_session_open", unlabelled, 1.0),
        (&daemon, "better_compute_node_workers_busy", ("lane", "bulk"), 1.0),
        (&daemon, "better_compute_node_workers_busy", ("lane", "control"), 0.0),
        (&daemon, "better_compute_node_workers", ("lane", "control"), 8.0),
        (&daemon, "better_compute_kind_run_seconds_count", ("outcome", "succeeded"), 1.0),
        (&daemon, "better_compute_node_journal_reserve_kept", unlabelled, 1.0),
        (&daemon, "better_compute_node_duplicate_commands_total", unlabelled, 0.0),
    ] {
        assert_eq!(
            page.value(name, label).to_bits(),
            f64::to_bits(value),
            "{name} {label:?}: {}",
            page.value(name, label)
        );
    }
    // Run and host calls are told apart by kind, and a journal was written.
    assert!(daemon.value("better_compute_host_call_seconds_count", ("kind", COUNT.name)) >= 1.0);
    assert!(daemon.value("better_compute_node_journal_save_seconds_count", unlabelled) >= 3.0);
    assert!(daemon.value("better_compute_node_resident_bytes", unlabelled) > f64::from(1 << 20));
    for (name, labels, _) in server.samples.iter().chain(&daemon.samples) {
        let id =
            labels.values().find(|value| value.contains("cmd_") || value.contains("node_") || value.contains("GPU-"));
        assert_eq!(id, None, "{name} has an id as a label");
    }
    // A caller's paths make no labels.
    let strange = format!("{}/v1/anything.at-all", cluster.replicas[0].api_url());
    assert_eq!(reqwest::get(strange).await.expect("an answer").status(), 404);
    let unknown = Page::read(of_server).await.value("better_compute_api_request_seconds_count", ("method", "unknown"));
    assert!(unknown >= 1.0);

    // What was told again is absorbed and counted: the node is given what it has when its session is a new one.
    cluster.replicas[0].restart().await;
    let again = |page: &Page| page.value("better_compute_node_duplicate_commands_total", unlabelled) >= 1.0;
    Page::with(of_node, "the command that runs is delivered again", again).await;
    assert_eq!(cluster.nodes[0].count(1), 1, "and did not run again");
    cluster.api.cancel(&held).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_where_nobody_asks_for_it() {
    let cluster = Cluster::start(1, 0).await;
    let api = reqwest::get(format!("{}/metrics", cluster.replicas[0].api_url())).await.expect("an answer");
    assert_eq!(api.status(), 404, "the API's port never has it");
}
