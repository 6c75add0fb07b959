//! The fleet that the browser looks at.
//!
//! **Invariant:** each page has something to show, and each field that a node, a kind or a person sets holds HTML somewhere.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bc_host::api::types::Batch;
use bc_proto::grants::{Policy, Upload};
use bc_proto::pattern::Pattern;
use bc_proto::sign::SecretKey;
use bc_tests::cluster::node::Node;
use bc_tests::cluster::{COUNT, COUNT_DESTRUCTIVE, Cluster};
use bc_tests::inspected;
use real_s3::{ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY, Server};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Would run if it were no text.
const HTML: &str = "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'>";

/// The kinds that are shipped, and the one that runs scripts.
const KINDS: [&str; 3] = ["diag.nvml", "inventory.refresh", "test.program"];

/// A control plane with a node that is there and one that is not, and what happened so far.
pub(crate) struct Fleet {
    pub(crate) cluster: Cluster,
    facts: Vec<(&'static str, String)>,
    store: Server,
    _folder: tempfile::TempDir,
}

fn settings(server: &Server, folder: &Path) -> String {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its owner may");
        json!(path).to_string()
    };
    let key = |number: u8| SecretKey::from_seed([number; 32]);
    let approvers = [("ann", 1, "a"), ("bob", 2, "b")].map(|(name, number, group)| {
        format!("{{ name = '{name}', key = '{}', groups = ['{group}'] }}", key(number).public())
    });
    format!(
        "[support-bundles]\nendpoint = '{}'\nbucket = '{BUCKET}'\npath-style = true\nmax-bytes = '8MiB'\n\
         access-key-id-file = {}\nsecret-access-key-file = {}\n[pki]\ncommand-signing = {}\napprovers = [{}]\n\
         require = [{{ group = 'a', count = 1 }}, {{ group = 'b', count = 1 }}]\n",
        server.endpoint(),
        file("access-key-id", ACCESS_KEY_ID),
        file("secret-access-key", SECRET_ACCESS_KEY),
        file("root.pem", &key(100).to_pem()),
        approvers.join(", "),
    )
}

/// A support bundle of one small log.
fn bundle() -> Vec<u8> {
    let log = b"the disk is full\n".as_slice();
    let digest: String = Sha256::digest(log).iter().map(|byte| format!("{byte:02x}")).collect();
    let listed = json!({ "path": "var/log/app.log", "bytes": log.len(), "sha256": digest, "truncated": false, "source": "files" });
    let manifest = json!({ "version": 1, "files": [listed], "skipped": [], "problems": [] }).to_string();
    let mut builder = tar::Builder::new(zstd::Encoder::new(Vec::new(), 3).expect("an encoder"));
    for (path, bytes) in [("manifest.json", manifest.as_bytes()), ("var/log/app.log", log)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, path, bytes).expect("in memory");
    }
    builder.into_inner().and_then(zstd::Encoder::finish).expect("in memory")
}

impl Fleet {
    /// Starts it.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Server::start(folder.path());
        let mut cluster = Cluster::start_with(1, 2, |folder| settings(&store, folder)).await;
        register(&mut cluster).await;
        cluster.nodes[1].kill();
        let mut fleet = Self { cluster, facts: Vec::new(), store, _folder: folder };
        fleet.happen().await;
        fleet
    }

    /// What the tests in the browser are told, by environment.
    pub(crate) fn facts(&self) -> &[(&'static str, String)] {
        &self.facts
    }

    async fn happen(&mut self) {
        let (cluster, api) = (&self.cluster, &self.cluster.api);
        let (here, away) = (cluster.nodes[0].id.clone(), cluster.nodes[1].id.clone());
        let label = json!({ "nodeId": here, "labels": { "rack": "7", "note": "<b>x</b><img src=x>" } });
        let _: Value = api.call("nodes.label", label).await;
        let inventory = api.run(&here, "inventory.refresh", "i", json!({})).await;
        api.settled(&inventory).await;
        let diagnosis = api.run(&here, "diag.nvml", "d", json!({})).await;
        let settled = api.settled(&diagnosis).await;
        assert_eq!(settled.state, "succeeded", "{settled:?}");
        let script = json!({ "script": format!("printf '%s' \"{HTML}\"") });
        let html = api.run(&here, "test.program", "h", script).await;
        api.settled(&html).await;
        let waits = api.run_for(&away, COUNT.name, "w", Node::counted(0, 0), 3600).await;
        let leaf = json!({ "subject": here, "kind": COUNT_DESTRUCTIVE.name });
        let create = json!({ "reason": format!("rack 7 goes {HTML}"), "scope": [leaf], "idempotencyKey": "b" });
        let batch: Batch = api.call("commandBatches.create", create).await;
        let stored = self.stored(&away).await;
        self.facts = vec![
            ("URL", cluster.replicas[0].api_url()),
            ("TOKEN", cluster.api.token().to_owned()),
            ("TENANT", cluster.api.tenant().to_owned()),
            ("NODE", here),
            ("NODE_AWAY", away),
            ("DIAGNOSIS", diagnosis.id),
            ("INVENTORY", inventory.id),
            ("HTML", HTML.to_owned()),
            ("HTML_COMMAND", html.id),
            ("WAITS", waits.id),
            ("BATCH", batch.batch_id),
            ("BUNDLE", stored),
            ("GO", cluster.folder().join("go").display().to_string()),
        ];
    }

    /// A command that is over, and whose bundle lies in the store.
    async fn stored(&self, node: &str) -> String {
        let api = &self.cluster.api;
        let made = api.run(node, "test.bundle", "s", Node::counted(0, 0)).await;
        api.cancel(&made).await;
        let key = made.bundle_key.expect("it uploads one");
        let object = self.store.object(&key);
        fs::create_dir_all(object.parent().expect("a folder")).expect("a folder");
        fs::write(&object, bundle()).expect("it is stored");
        made.id
    }
}

/// Registers what the pages show, and grants the first node what they need.
async fn register(cluster: &mut Cluster) {
    let mut policy = Policy::default();
    for kind in KINDS {
        let component = inspected(kind);
        policy.grants.insert(Pattern(kind.to_owned()), component.manifest.capabilities.clone());
        cluster.api.register(component.bytes).await;
    }
    let upload = Some(Upload { max_bytes: None });
    cluster
        .register(|manifest| {
            manifest.name = "test.bundle".into();
            manifest.capabilities.upload = upload;
        })
        .await;
    for (version, upload) in [("1.0.0", upload), ("1.1.0", None)] {
        cluster
            .register(|manifest| {
                manifest.name = "test.versions".into();
                manifest.version = version.parse().expect("a version");
                manifest.summary = format!("Counts {HTML}");
                manifest.capabilities.upload = upload;
            })
            .await;
    }
    let node = &mut cluster.nodes[0];
    node.kill();
    node.configure(&toml::to_string(&policy).expect("a policy is TOML"));
    node.start();
}
