//! Workflows of machines: replicas that are killed at every move of one, and what a node's word is worth.
//!
//! The wipe and the deploy are stand-ins: the counting kind under their names, with their traits. The diagnostic is the real one.

use std::fs;

use bc_host::api::types::Workflow;
use bc_proto::manifest::{Lane, Trait};
use bc_tests::cluster::node::Node;
use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::{Cluster, PATIENCE};
use serde_json::{Value, json};

/// What the steps of [`ask`] do, in moves: each of three begins and ends, and then the workflow does.
const MOVES: usize = 7;

/// A cluster whose node is a ramdisk that runs the kinds of metal.
async fn cluster(replicas: usize) -> Cluster {
    let mut cluster = Cluster::start(replicas, 1).await;
    for name in ["metal.disk.wipe", "metal.image.deploy"] {
        let change = |manifest: &mut bc_proto::manifest::Manifest| {
            manifest.name = name.into();
            manifest.traits = [Trait::Destructive, Trait::Attested].into();
            manifest.lane = Lane::Provision;
        };
        cluster.register(change).await;
    }
    cluster.api.register(bc_tests::inspected("diag.nvml").bytes).await;
    let node = &mut cluster.nodes[0];
    let file = node.path("bcd.toml");
    let config = fs::read_to_string(&file).expect("it was written");
    let grants = "[grants.'metal.*']\nnvml = {}\n[grants.'diag.*']\nnvml = {}\n";
    fs::write(&file, format!("role = 'ramdisk'\n{config}{grants}")).expect("it is written");
    node.start();
    let ramdisk = tokio::time::timeout(PATIENCE, async {
        while cluster.api.node(&cluster.nodes[0].id).await.role != "ramdisk" {
            tokio::task::yield_now().await;
        }
    });
    ramdisk.await.expect("it says hello");
    cluster
}

/// Wipe, deploy, diagnose.
fn ask(node: &Node, key: &str, hold_ms: u32) -> Value {
    let step = |kind: &str, payload: Value| json!({ "kind": kind, "payload": payload });
    json!({
        "nodeId": node.id, "reason": "back from rent", "idempotencyKey": key,
        "steps": [
            step("metal.disk.wipe", Node::counted(0, hold_ms)),
            step("metal.image.deploy", Node::counted(1, 0)),
            step("diag.nvml", json!({ "expectedGpus": 8 })),
        ],
    })
}

/// Returns a workflow when this holds of it.
async fn until(cluster: &Cluster, id: &str, what: &str, holds: impl Fn(&Workflow) -> bool) -> Workflow {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            let found: Workflow = cluster.api.call("workflows.get", json!({ "workflowId": id })).await;
            if holds(&found) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("it takes too long until {what}"))
}

async fn ended(cluster: &Cluster, id: &str) -> Workflow {
    until(cluster, id, "the workflow ends", |it| it.state != "running").await
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_11_a_replica_killed_at_any_move_of_a_workflow_queues_each_step_once() {
    let mut cluster = cluster(1).await;
    let mut points: Vec<String> =
        ["workflow-create.before-write:1", "workflow-create.after-write:1"].map(str::to_owned).to_vec();
    for number in 1..=MOVES {
        points.extend(["before", "after"].map(|when| format!("workflow.{when}-write:{number}")));
    }
    for (round, point) in (1..).zip(points) {
        let Cluster { api, replicas, nodes, .. } = &mut cluster;
        replicas[0].start_to_crash(&point).await;
        // A daemon that has failed to connect waits longer and longer, and a new one does not.
        nodes[0].start();
        let asked = api.call::<Workflow>("workflows.create", ask(&nodes[0], &point, 0));
        let falls = async {
            replicas[0].process().crashed().await;
            replicas[0].restart().await;
        };
        let (workflow, ()) = tokio::join!(asked, falls);
        let ended = ended(&cluster, &workflow.id).await;
        assert_eq!(
            (ended.state.as_str(), ended.why.as_str(), ended.attempt),
            ("succeeded", "", 1),
            "{point}: {ended:?}"
        );
        assert!(ended.steps.iter().all(|step| step.tries == 1), "{point}: {ended:?}");
        let counts = [0, 1].map(|gpu| cluster.nodes[0].count(gpu));
        // The wipe and the deploy count on one of these each, and the diagnostic asks all GPUs for the same.
        assert_eq!(counts, [2 * round, 2 * round], "{point}: each ran once");
        assert_eq!(cluster.api.node(&cluster.nodes[0].id).await.quarantine, None, "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_wipe_stops_the_workflow_and_the_node_stays_set_apart_until_somebody_lets_it_go() {
    let cluster = cluster(1).await;
    let node = cluster.nodes[0].id.clone();
    let mut wrong = ask(&cluster.nodes[0], "wrong", 0);
    wrong["steps"][1]["payload"] = json!({ "holdMs": -1 });
    let refused = cluster.api.ask::<Workflow>("workflows.create", wrong).await.expect_err("no such payload");
    assert_eq!(refused.code.to_string(), "INVALID_INPUT");
    let problem = &refused.details["problems"][0];
    assert_eq!((&problem["step"], &problem["kind"]), (&json!(1), &json!("metal.image.deploy")), "{refused:?}");
    assert_eq!(cluster.api.node(&node).await.quarantine, None, "nothing was done");

    let mut absent = ask(&cluster.nodes[0], "absent", 0);
    absent["steps"][0]["payload"] = json!({ "gpu": "GPU-absent" });
    let workflow: Workflow = cluster.api.call("workflows.create", absent).await;
    let ended = ended(&cluster, &workflow.id).await;
    assert_eq!((ended.state.as_str(), ended.steps[0].state.as_str()), ("failed", "failed"), "{ended:?}");
    assert_eq!(ended.steps[1].command_id, None);
    let apart = cluster.api.node(&node).await.quarantine.expect("it is set apart");
    assert_eq!(apart.workflow_id.as_ref(), Some(&ended.id));
    let run = json!({
        "nodeId": node, "kind": "metal.disk.wipe", "idempotencyKey": "by hand", "payload": Node::counted(0, 0),
    });
    let refused = cluster.api.ask::<Value>("commands.run", run).await.expect_err("it is set apart");
    assert_eq!(refused.details["reason"], "node-quarantined", "{refused:?}");
    let operator = Operator::new(&cluster.replicas[0].api_url(), cluster.api.token());
    let watched = operator.run(&["workflow", "watch", &ended.id]).await;
    assert_eq!(watched.code, Some(2), "{watched:?}");
    let listed = operator.say(&["node", "list"]).await;
    assert!(listed.contains("set apart"), "{listed}");
    operator.say(&["node", "release", "node-0"]).await;
    assert_eq!(cluster.api.node(&node).await.quarantine, None);
    assert_eq!([0, 1].map(|gpu| cluster.nodes[0].count(gpu)), [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_is_called_off_stops_its_command_and_begins_no_other() {
    let cluster = cluster(2).await;
    let operator = Operator::new(&cluster.replicas[1].api_url(), cluster.api.token());
    let workflow: Workflow = cluster.api.call("workflows.create", ask(&cluster.nodes[0], "long", 600_000)).await;
    cluster.nodes[0].has_counted(0, 1).await;
    operator.say(&["workflow", "cancel", &workflow.id]).await;
    let ended = ended(&cluster, &workflow.id).await;
    // The node had begun to wipe: nobody can say how far it was.
    assert_eq!((ended.state.as_str(), ended.steps[0].state.as_str()), ("ambiguous", "ambiguous"), "{ended:?}");
    assert_eq!([0, 1].map(|gpu| cluster.nodes[0].count(gpu)), [1, 0]);
    let watched = operator.run(&["workflow", "watch", &workflow.id]).await;
    assert_eq!(watched.code, Some(8), "{watched:?}");
    let shown = operator.say(&["workflow", "show", &workflow.id]).await;
    assert!(shown.contains("WAITS FOR") && shown.contains("wipe"), "{shown}");
}
