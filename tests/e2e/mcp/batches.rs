//! Destructive commands: an agent proposes, people approve.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bc_proto::sign::SecretKey;
use bc_tests::cluster::node::Node;
use bc_tests::cluster::{COUNT_DESTRUCTIVE, Cluster};
use serde_json::{Value, json};

use crate::admin;
use crate::agent::Agent;

/// Commands are signed, and a batch takes one approval.
fn settings(folder: &Path) -> String {
    let root = folder.join("root.pem");
    fs::write(&root, SecretKey::from_seed([100; 32]).to_pem()).expect("the root's key is written");
    fs::set_permissions(&root, Permissions::from_mode(0o600)).expect("it is its owner's alone");
    let root = toml::Value::from(root.to_str().expect("paths of tests are text"));
    let ann = SecretKey::from_seed([1; 32]).public();
    format!(
        "[pki]\ncommand-signing = {root}\napprovers = [{{ name = 'ann', key = '{ann}' }}]\nrequire = [{{ count = 1 }}]\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_proposes_a_batch_and_runs_in_it_but_only_people_approve() {
    let mut cluster = Cluster::start_with(1, 1, settings).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let operator = admin(&cluster);
    let mut agent = Agent::on_stdio(&operator);
    agent.tools();
    let node = cluster.nodes[0].id.clone();
    let run = |batch: Option<&str>, wait: u32| {
        let mut run = json!({
            "nodeId": node, "kind": COUNT_DESTRUCTIVE.name, "payload": Node::counted(0, 0), "idempotencyKey": "k", "waitSeconds": wait,
        });
        if let Some(batch) = batch {
            run["batchId"] = json!(batch);
        }
        run
    };
    let refused = agent.fails("exec_command", run(None, 0));
    assert_eq!(refused.word("/error/details/reason"), "batch-required");
    let scope = json!([{ "kind": COUNT_DESTRUCTIVE.name, "subject": node }]);
    let remedy = refused.word("/error/remedy");
    assert!(remedy.contains(&format!("propose_command_batch with scope {scope}")), "{remedy}");

    let leaf = json!({ "subject": "node-0", "kind": COUNT_DESTRUCTIVE.name, "payload": Node::counted(0, 0) });
    let propose = json!({ "reason": "GPU 0 hangs", "scope": [leaf], "idempotencyKey": "b" });
    let batch = agent.does("propose_command_batch", propose.clone());
    let id = batch.word("/batchId");
    assert_eq!((batch.word("/state").as_str(), &batch.document()["missing"]), ("open", &json!(1)));
    assert!(batch.text().contains("No tool here approves"), "{}", batch.text());
    assert_eq!(agent.does("propose_command_batch", propose).word("/batchId"), id, "the same key is the same batch");

    let held = agent.does("exec_command", run(Some(&id), 60));
    assert_eq!(held.document()["wait"], "awaits-approval");
    assert!(held.text().contains("held until people approve"), "{}", held.text());
    let command = json!({ "nodeId": node, "commandId": held.word("/command/id") });
    let why = agent.does("explain_command", command.clone());
    assert!(why.text().contains(&format!("held until {id} has its approvals")), "{}", why.text());

    // Whatever the API can do besides has no tool, by any name that an agent may try.
    let url = format!("{}/v1/openapi.json", cluster.replicas[0].api_url());
    let document: Value = reqwest::get(url).await.expect("it answers").json().await.expect("JSON");
    let methods: Vec<_> =
        document["paths"].as_object().expect("paths").keys().filter_map(|it| it.strip_prefix("/v1/")).collect();
    assert!(methods.contains(&"commandBatches.approve") && methods.len() > 40, "{methods:?}");
    let others =
        ["approve_command_batch", "command_batches_approve", "reject_command_batch", "register_kind", "create_token"];
    let approval = json!({ "batchId": id, "tenantId": cluster.api.tenant() });
    for name in methods.iter().copied().chain(others) {
        for name in [name.to_owned(), name.replace('.', "_"), snake(name)] {
            if ["list_nodes", "list_commands", "get_command", "cancel_command"].contains(&name.as_str()) {
                continue;
            }
            let error = agent.call(&name, approval.clone()).expect_err(&name);
            assert!(error.contains("no tool is called"), "{name}: {error}");
        }
    }
    assert_eq!(agent.does("get_command", command.clone()).document()["awaitingApproval"], true);
    assert_eq!(cluster.nodes[0].count(0), 0);

    let key = operator.file("ann.pem", SecretKey::from_seed([1; 32]).to_pem().as_bytes());
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is there");
    operator.say(&["batch", "approve", "--batch", &id, "--key", &key, "--yes"]).await;
    let done = agent.does("exec_command", run(Some(&id), 60));
    assert_eq!((done.word("/command/state").as_str(), done.document()["wait"].as_str()), ("succeeded", Some("over")));
    assert_eq!(cluster.nodes[0].count(0), 1, "it ran once");

    // What people turn down stays down.
    let leaf = json!({ "subject": node, "kind": COUNT_DESTRUCTIVE.name });
    let other = agent.does("propose_command_batch", json!({ "reason": "once more", "scope": [leaf] })).word("/batchId");
    operator.say(&["batch", "reject", &other, "--reason", "no"]).await;
    let mut again = run(Some(&other), 0);
    again["idempotencyKey"] = json!("l");
    let refused = agent.fails("exec_command", again);
    assert_eq!(refused.word("/error/details/reason"), "batch-rejected");
    let bad = json!({ "subject": "nowhere", "kind": COUNT_DESTRUCTIVE.name });
    let bad = agent.fails("propose_command_batch", json!({ "reason": "r", "scope": [leaf_of(&node), bad] }));
    assert_eq!(bad.word("/error/details/problems/0/field"), "scope[1].subject");
}

fn leaf_of(node: &str) -> Value {
    json!({ "subject": node, "kind": COUNT_DESTRUCTIVE.name })
}

/// `commandBatches.approve` as `approve_command_batch` might be made of it: verb first, words with `_` between.
fn snake(method: &str) -> String {
    let (noun, verb) = method.split_once('.').unwrap_or((method, "do"));
    let noun: String = noun
        .chars()
        .flat_map(|letter| {
            let gap = letter.is_uppercase().then_some('_');
            gap.into_iter().chain([letter.to_ascii_lowercase()])
        })
        .collect();
    let noun = noun.strip_suffix("es").filter(|it| it.ends_with("ch")).or(noun.strip_suffix('s')).unwrap_or(&noun);
    format!("{}_{noun}", verb.to_lowercase())
}
