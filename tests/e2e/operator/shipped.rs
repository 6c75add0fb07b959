//! Shipped kinds by the whole way: queued through the command line, run by a daemon on what its operator granted, settled.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use bc_proto::grants::Policy;
use bc_proto::pattern::Pattern;
use bc_tests::bmc::{Bmc, Quirks};
use bc_tests::cluster::operator::word;
use bc_tests::cluster::{Cluster, PATIENCE};
use bc_tests::{inspected, programs};
use serde_json::{Value, json};

use crate::admin;

/// Who the BMC believes, and the secret that holds it.
const CREDENTIALS: &str = "operator:correct-horse-battery";
const SECRET: &str = "bmc.rack-1";

/// Registers kinds, and grants a node what they declare.
pub(crate) async fn ship(cluster: &mut Cluster, node: usize, kinds: &[&str]) {
    let mut policy = Policy::default();
    for kind in kinds {
        let component = inspected(kind);
        policy.grants.insert(Pattern((*kind).to_owned()), component.manifest.capabilities.clone());
        cluster.api.register(component.bytes).await;
    }
    let node = &mut cluster.nodes[node];
    node.kill();
    node.configure(&toml::to_string(&policy).expect("a policy is TOML"));
    node.start();
}

/// Gives a node another role, and waits until it says so.
async fn becomes(cluster: &mut Cluster, node: usize, role: &str) {
    let file = cluster.nodes[node].path("bcd.toml");
    let config = fs::read_to_string(&file).expect("it was written");
    cluster.nodes[node].kill();
    fs::write(&file, format!("role = '{role}'\n{config}")).expect("it is written");
    cluster.nodes[node].start();
    let says_so = tokio::time::timeout(PATIENCE, async {
        while cluster.api.node(&cluster.nodes[node].id).await.role != role {
            tokio::task::yield_now().await;
        }
    });
    says_so.await.expect("it says hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kinds_of_a_site_reach_a_bmc_with_credentials_that_they_never_have() {
    let mut cluster = Cluster::start(1, 1).await;
    let vault = cluster.replicas[0].secrets_dir().join(cluster.api.tenant());
    fs::create_dir_all(&vault).expect("a folder");
    fs::write(vault.join(SECRET), CREDENTIALS).expect("a file");
    fs::set_permissions(vault.join(SECRET), Permissions::from_mode(0o600)).expect("its owner may");
    let kinds = ["metal.bmc.power", "metal.bmc.sensors", "metal.boot.set", "site.httpProxy"];
    ship(&mut cluster, 0, &kinds).await;
    becomes(&mut cluster, 0, "site").await;
    let bmc = Bmc::start("Off", Quirks { credentials: Some(CREDENTIALS.into()), ..Quirks::default() }).await;
    let operator = admin(&cluster);
    let run = async |kind: &str, mut payload: Value| -> Value {
        payload["secretRefs"] = json!({ "credentials": SECRET });
        let payload = payload.to_string();
        operator.json(&["run", kind, "--node", "node-0", "--payload", &payload]).await
    };

    let set = run("metal.boot.set", json!({ "bmc": bmc.origin(), "target": "Pxe" })).await;
    assert_eq!(set["state"], "succeeded", "{set}");
    let on = run("metal.bmc.power", json!({ "bmc": bmc.origin(), "action": "On" })).await;
    assert_eq!((&on["result"]["after"], bmc.power()), (&json!("On"), "On"), "{on}");
    let sensors = run("metal.bmc.sensors", json!({ "bmc": bmc.origin() })).await;
    assert_eq!(sensors["state"], "succeeded", "{sensors}");
    let url = format!("{}/redfish/v1/Systems/1", bmc.origin());
    let asked = run("site.httpProxy", json!({ "url": url })).await;
    assert_eq!(asked["result"]["status"], 200, "{asked}");
    for answer in [set, on, sensors, asked] {
        assert!(!answer.to_string().contains("correct-horse"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_is_not_reset_on_a_persons_word_alone() {
    let cluster = Cluster::start(1, 1).await;
    let operator = admin(&cluster);
    let file = word(&programs::kind("gpu.reset"));
    operator.refused(&["kind", "push", &file, "--activate", "--expose"], "never accepted by commands.run").await;
    operator.say(&["kind", "push", &file, "--activate"]).await;
    let payload = r#"{"gpus":["GPU-51d00000-0000-4000-8000-000000000000"]}"#;
    operator.refused(&["run", "gpu.reset", "--node", "node-0", "--payload", payload], "UNSUPPORTED").await;
}
