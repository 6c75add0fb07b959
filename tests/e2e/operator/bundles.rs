//! Support bundles with real processes: a control plane whose store is a real S3 server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bc_tests::cluster::Cluster;
use bc_tests::cluster::operator::word;
use real_s3::{ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY, Server};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::shipped::ship;
use crate::{admin, counted};

/// A kind that may upload.
const KIND: &str = "test.bundle";

/// Settings with the store; its secret lies in a file of the cluster's folder, the key's name in another.
fn settings(server: &Server, folder: &Path) -> String {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, format!("{text}\n")).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its owner may");
        json!(path).to_string()
    };
    format!(
        "[support-bundles]\nendpoint = '{}'\nbucket = '{BUCKET}'\npath-style = true\nmax-bytes = '8MiB'\n\
         access-key-id-file = {}\nsecret-access-key-file = {}\n",
        server.endpoint(),
        file("access-key-id", ACCESS_KEY_ID),
        file("secret-access-key", SECRET_ACCESS_KEY),
    )
}

async fn start(nodes: usize) -> (Cluster, Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path());
    let cluster = Cluster::start_with(1, nodes, |folder| settings(&server, folder)).await;
    cluster
        .register(|manifest| {
            manifest.name = KIND.into();
            manifest.capabilities.upload = Some(bc_proto::grants::Upload { max_bytes: None });
        })
        .await;
    (cluster, server, folder)
}

/// A bundle with one file that is small, and one that does not shrink.
fn bundle(noise: &[u8]) -> Vec<u8> {
    let log = b"the disk is full\n".as_slice();
    let listed = [("var/log/app.log", log), ("noise", noise)].map(|(path, bytes)| {
        json!({ "path": path, "bytes": bytes.len(), "sha256": hex(&Sha256::digest(bytes)), "truncated": path == "noise", "source": "files" })
    });
    let skipped = [json!({ "path": "/var/log/btmp", "reason": "denied" })];
    let manifest = json!({ "version": 1, "files": listed, "skipped": skipped, "problems": [] }).to_string();
    let mut builder = tar::Builder::new(zstd::Encoder::new(Vec::new(), 3).expect("an encoder"));
    for (path, bytes) in [("manifest.json", manifest.as_bytes()), ("var/log/app.log", log), ("noise", noise)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, path, bytes).expect("in memory");
    }
    builder.into_inner().and_then(zstd::Encoder::finish).expect("in memory")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_lists_downloads_and_reads_what_a_node_stored() {
    // The daemon is of no matter here: what it stores, the test does.
    let (mut cluster, server, _folder) = start(1).await;
    cluster.nodes[0].kill();
    let operator = admin(&cluster);
    let run = ["run", KIND, "--node", "node-0", "--payload", &counted(0, 0), "--no-wait"];
    let made = operator.json(&run).await;
    assert_eq!(made["supportBundle"], true, "{made}");
    let (id, key) = (made["id"].as_str().expect("an id"), made["bundleKey"].as_str().expect("a key"));

    let list = ["bundle", "list", "--node", "node-0"];
    let listed = operator.json(&list).await;
    assert_eq!((&listed[0]["commandId"], &listed[0]["state"]), (&made["id"], &json!("missing")));
    operator.refused(&["bundle", "download", id, "--node", "node-0"], "is not in the store").await;
    operator.refused(&["bundle", "files", id, "--node", "node-0"], "is not in the store").await;

    let mut noise = vec![0; 3 << 20];
    fastrand::Rng::with_seed(7).fill(&mut noise);
    let bundle = bundle(&noise);
    let object = server.object(key);
    fs::create_dir_all(object.parent().expect("a folder")).expect("a folder");
    fs::write(&object, &bundle).expect("it is stored");
    let listed = operator.json(&list).await;
    assert_eq!((&listed[0]["state"], &listed[0]["bytes"]), (&json!("stored"), &json!(bundle.len())));
    let table = operator.say(&list).await;
    assert!(table.contains("stored") && table.contains("3.0 MiB"), "{table}");
    assert_eq!(operator.say(&[&list[..], &["-o", "name"]].concat()).await, id);

    // All of it, and then what is missing of it.
    let file = operator.path("one.tar.zst");
    let download = ["bundle", "download", id, "--node", "node-0", "--json", "-o", &word(&file)];
    let told: Value = serde_json::from_str(&operator.say(&download).await).expect("JSON");
    assert_eq!((&told["bytes"], &told["verified"]), (&json!(bundle.len()), &json!(false)));
    assert_eq!(told["sha256"], hex(&Sha256::digest(&bundle)));
    assert!(fs::read(&file).expect("it is there") == bundle);
    let part = operator.path("two.tar.zst.part");
    fs::write(&part, &bundle[..bundle.len() / 2]).expect("a part");
    let file = operator.path("two.tar.zst");
    operator.say(&["bundle", "download", id, "--node", "node-0", "-o", &word(&file)]).await;
    assert!(fs::read(&file).expect("it is there") == bundle && !part.exists());
    // A part of something longer is no beginning of this.
    fs::write(&part, [&bundle[..], b"more"].concat()).expect("a part");
    let said = operator.run(&["bundle", "download", id, "--node", "node-0", "-o", &word(&file)]).await;
    assert!(said.code == Some(0) && said.err.contains("it is fetched anew"), "{said:?}");
    assert!(fs::read(&file).expect("it is there") == bundle && !part.exists());

    let files = operator.json(&["bundle", "files", id, "--node", "node-0"]).await;
    assert_eq!(files["files"][0]["path"], "var/log/app.log");
    let said = operator.run(&["bundle", "files", id, "--node", "node-0"]).await;
    assert!(said.out.contains("noise") && said.out.contains("yes, its oldest part"), "{said:?}");
    assert!(said.err.contains("not in it: /var/log/btmp: denied"), "{said:?}");
    let read = ["bundle", "read", id, "var/log/app.log", "--node", "node-0"];
    assert_eq!(operator.say(&read).await, "the disk is full");
    let file = operator.path("noise");
    let said = operator.run(&["bundle", "read", id, "noise", "--node", "node-0", "-o", &word(&file)]).await;
    assert!(said.code == Some(0) && said.err.contains("its SHA-256 is what the node told"), "{said:?}");
    assert!(fs::read(&file).expect("it is there") == noise);
    operator.refused(&["bundle", "read", id, "../noise", "--node", "node-0"], "NOT_FOUND").await;
    operator.refused(&["bundle", "files", "cmd_x", "--node", "node-0"], "commandId: ").await;

    // What is stored is damaged afterwards: the file does not get its name.
    let mut damaged = bundle.clone();
    let near_its_end = damaged.len() - 100;
    damaged[near_its_end] ^= 1;
    fs::write(&object, &damaged).expect("it is stored");
    let file = operator.path("damaged");
    let said = operator.run(&["bundle", "read", id, "noise", "--node", "node-0", "-o", &word(&file)]).await;
    assert!(said.code != Some(0) && !file.exists(), "{said:?}");

    // Other settings, without a store.
    cluster.resettle("").await;
    operator.refused(&["bundle", "download", id, "--node", "node-0"], "no store of support bundles").await;
    let plain = operator.json(&["run", KIND, "--node", "node-0", "--payload", &counted(0, 1), "--no-wait"]).await;
    assert_eq!(plain.get("supportBundle"), None, "{plain}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_allows_to_write_is_in_no_log_no_row_and_no_answer() {
    let (mut cluster, _server, _folder) = start(1).await;
    let node = cluster.nodes[0].id.clone();
    let payload = bc_tests::cluster::node::Node::counted(0, 0);
    let command = cluster.api.run(&node, KIND, "k", payload).await;
    let settled = serde_json::to_value(cluster.api.settled(&command).await).expect("JSON");
    assert!(settled["dispatchedAt"].is_string(), "the node was sent it, and a URL with it: {settled}");
    let listed: Value = cluster.api.call("commands.list", json!({ "nodeId": node })).await;
    let bundles: Value = cluster.api.call("bundles.list", json!({ "nodeId": node })).await;
    let answers = format!("{settled} {listed} {bundles}");
    let key = settled["bundleKey"].as_str().expect("a key");

    let mut places = vec![("an answer of the API".to_owned(), answers)];
    places.push(("a replica's log".to_owned(), cluster.replicas[0].process().said()));
    places.push(("a daemon's log".to_owned(), cluster.nodes[0].process().said()));
    let mut db = PgConnection::connect(&cluster.database.url()).await.expect("a database");
    let names = "select tablename::text from pg_tables where schemaname = 'public'";
    let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&mut db).await.expect("a catalogue");
    for name in names {
        let rows = format!("select coalesce(string_agg(row_to_json(t)::text, ' '), '') from {name} t");
        let rows: String = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(&mut db).await.expect("rows");
        places.push((format!("table {name}"), rows));
    }
    for (place, text) in &places {
        for secret in ["X-Amz-Signature", "X-Amz-Credential", ACCESS_KEY_ID, SECRET_ACCESS_KEY] {
            assert!(!text.contains(secret), "{secret} is in {place}: {text}");
        }
    }
    let holding: Vec<_> = places.iter().filter(|(_, text)| text.contains(key)).map(|(place, _)| place).collect();
    assert!(holding.iter().any(|place| place.as_str() == "table commands"), "what is no secret is found: {holding:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_17_the_logs_of_a_node_are_in_the_store_when_its_command_has_succeeded() {
    let (mut cluster, _server, _folder) = start(1).await;
    ship(&mut cluster, 0, &["logs.collect"]).await;
    let logs = cluster.nodes[0].path("var/log");
    fs::create_dir_all(&logs).expect("a folder");
    fs::write(logs.join("app.log"), "the disk is full\n").expect("a log");
    let operator = admin(&cluster);
    let payload = r#"{"sources":["files"]}"#;
    let done = operator.json(&["run", "logs.collect", "--node", "node-0", "--payload", payload]).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    let id = done["id"].as_str().expect("an id");
    let listed = operator.json(&["bundle", "list", "--node", "node-0"]).await;
    assert_eq!((&listed[0]["state"], &listed[0]["bytes"]), (&json!("stored"), &done["result"]["bytes"]), "{listed}");
    let file = operator.path("bundle.tar.zst");
    let download = ["bundle", "download", id, "--node", "node-0", "--json", "-o", &word(&file)];
    let told: Value = serde_json::from_str(&operator.say(&download).await).expect("JSON");
    assert_eq!((&told["sha256"], &told["verified"]), (&done["result"]["sha256"], &json!(true)), "{told}");
    let read = ["bundle", "read", id, "files/var/log/app.log", "--node", "node-0"];
    assert_eq!(operator.say(&read).await, "the disk is full");
    assert!(!done.to_string().contains("X-Amz-Signature"), "the URL is nobody's: {done}");
}
