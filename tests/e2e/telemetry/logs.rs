//! Logs as JSON.

use bc_tests::cluster::node::Node;
use bc_tests::cluster::{COUNT, Cluster, until};
use bc_tests::programs;
use serde_json::Value;

/// Every line as an object.
fn objects(said: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    said.lines().map(parse).collect()
}

/// The command that a line is about, wherever it says so.
fn command(line: &Value) -> Option<&str> {
    let spans = line["spans"].as_array().into_iter().flatten();
    spans.chain([line, &line["span"]]).find_map(|place| place["command"].as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_is_an_object_and_names_its_command() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.replicas[0].set("BETTER_COMPUTE_LOG_FORMAT", "json");
    cluster.replicas[0].set("RUST_LOG", "info,bc_host=debug");
    cluster.replicas[0].restart().await;
    cluster.nodes[0].start_with(&[("BETTER_COMPUTE_LOG_FORMAT", "json"), ("RUST_LOG", "info,bc_runtime=debug")]);
    let id = cluster.nodes[0].id.clone();
    let run = cluster.api.run(&id, COUNT.name, "one", Node::counted(0, 0)).await;
    let run = cluster.api.settled(&run).await;
    assert_eq!(run.state, "succeeded");
    let command_id = run.id.clone();
    until("the daemon says how the run ended", || cluster.nodes[0].process().said().contains("wall_ms")).await;

    let (of_server, of_node) = (cluster.replicas[0].process().said(), cluster.nodes[0].process().said());
    for (name, said) in [("server", &of_server), ("node", &of_node)] {
        let lines = objects(said);
        for line in &lines {
            assert!(["timestamp", "level", "target"].iter().all(|key| line[key].is_string()), "{line}");
            if line.to_string().contains("cmd_") {
                assert!(command(line).is_some_and(|it| it.starts_with("cmd_")), "{line}");
            }
        }
        assert!(
            lines.iter().any(|line| command(line) == Some(command_id.as_str())),
            "the {name} does not name {command_id}: {said}"
        );
        assert!(!said.contains(cluster.api.token()), "a secret stands in the log of the {name}");
    }
    let host_call = |line: &Value| line["message"] == "answered" && line["spans"].to_string().contains("kind_run");
    assert!(objects(&of_node).iter().any(host_call), "host calls are said within their run: {of_node}");
}

#[test]
fn a_form_of_the_log_that_there_is_not_is_refused_with_those_that_there_are() {
    for (program, arguments) in [("bcd", "run"), ("better-compute", "server")] {
        let mut command = programs::command(program);
        let said = programs::run(command.args([arguments, "--log-format", "yaml"]));
        assert!(said.code != Some(0) && said.err.contains("`text` or `json`, not `yaml`"), "{said:?}");
    }
}
