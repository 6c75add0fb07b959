//! The TypeScript client, `clients/typescript`, against a control plane and a node.
//!
//! **Invariant:** its programs are those that its README shows; they know of this test no more than where the server is.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use bc_proto::sign::SecretKey;
use bc_tests::cluster::Cluster;
use bc_tests::cluster::operator::word;
use bc_tests::programs::{self, Said};
use better_compute::client::NOT_IDEMPOTENT;
use serde_json::Value;

/// Where the description of the API stands, in the client's folder.
const DOCUMENT: &str = "openapi.json";

/// A script of the client's `package.json`.
#[expect(clippy::disallowed_methods, reason = "this test is about programs")]
fn npm(words: &[&str]) -> Command {
    let folder = programs::repository().join("clients/typescript");
    assert!(folder.join("node_modules").is_dir(), "run `cargo xtask setup`, which installs what it is built with");
    let mut command = Command::new("npm");
    command.arg("run").args(words).current_dir(folder).env("NO_COLOR", "1");
    command
}

fn passes(said: &Said) {
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
}

/// A key in a file that is its owner's alone.
fn pem(folder: &Path, name: &str, key: &SecretKey) -> String {
    let file = folder.join(name);
    fs::write(&file, key.to_pem()).expect("the key is written");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is its owner's alone");
    word(&file)
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_in_typescript_work_as_the_readme_of_the_client_writes_them() {
    let keys = tempfile::tempdir().expect("a temporary folder");
    let root = pem(keys.path(), "root.pem", &SecretKey::from_seed([100; 32]));
    let approver = SecretKey::from_seed([1; 32]);
    let settings = format!(
        "[pki]\ncommand-signing = '{root}'\napprovers = [{{ name = 'ann', key = '{}', groups = ['a'] }}]\n\
         require = [{{ group = 'a', count = 1 }}]\n",
        approver.public()
    );
    let mut cluster = Cluster::start_with(1, 1, |_| settings).await;
    for kind in ["inventory.refresh", "node.reboot", "test.program"] {
        cluster.api.register(bc_tests::inspected(kind).bytes).await;
    }
    let url = cluster.replicas[0].api_url();
    described(&url).await;
    // The client's own tests, which need no server; this builds it as well.
    passes(&programs::run(&mut npm(&["test"])));

    cluster.nodes[0].configure(
        "[grants.'inventory.refresh']\ninventory = {}\n\
         [grants.'test.program']\nprocess = { programs = [{ program = 'sh', argv = ['-c', '*'] }] }",
    );
    cluster.nodes[0].start();
    let mut live = npm(&["test:live"]);
    live.env("BETTER_COMPUTE_URL", &url)
        .env("BETTER_COMPUTE_TOKEN", cluster.api.token())
        .env("BETTER_COMPUTE_CONFIG", keys.path().join("config.toml"))
        .env("TEST_TENANT", cluster.api.tenant())
        .env("TEST_NODE", &cluster.nodes[0].id)
        .env("TEST_PROGRAM", programs::program("better-compute"))
        .env("TEST_APPROVER_KEY", pem(keys.path(), "approver.pem", &approver))
        .env("TEST_NOT_IDEMPOTENT", NOT_IDEMPOTENT.join(" "));
    let mut runs = tokio::task::spawn_blocking(move || programs::run(&mut live));
    let node = &mut cluster.nodes[0];
    let said = tokio::select! {
        said = &mut runs => said,
        () = node.is_to_reboot(1) => {
            node.reboot();
            node.start();
            runs.await
        }
    };
    passes(&said.expect("it runs"));
}

/// The client was generated from what the server says of itself.
async fn described(url: &str) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer = client.get(format!("{url}/v1/openapi.json")).send().await.expect("the replica runs");
    let said: Value = serde_json::from_slice(&answer.bytes().await.expect("it is whole")).expect("it is JSON");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        passes(&programs::run(&mut npm(&["generate", "--", url])));
    }
    let kept = fs::read(programs::repository().join("clients/typescript").join(DOCUMENT)).expect("it is there");
    let kept: Value = serde_json::from_slice(&kept).expect("it is JSON");
    assert!(
        kept == said,
        "clients/typescript/{DOCUMENT} is out of date: run `INSTA_UPDATE=always cargo xtask test typescript`"
    );
}
