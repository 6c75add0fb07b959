//! `bundles.*`, over a real S3 server.

use axum::body::Body;
use axum::http::Request;
use bc_proto::id::{CommandId, NodeId};
use real_s3::{ACCESS_KEY_ID, SECRET_ACCESS_KEY, Server};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::{Api, component, with};
use crate::api::{App, Parts};
use crate::bundles::Store;
use crate::bundles::archive::tests::bundle;
use crate::bundles::tests::{served, settings};
use crate::testing::uuid;
use crate::world::World;

/// An API with a store.
struct Stored {
    api: Api,
    _folder: TempDir,
    server: Server,
}

fn with_store(api: Api, bundles: Option<Store>) -> Api {
    let parts: &Parts = &api.app;
    let app = App::new(Parts {
        pool: parts.pool.clone(),
        bus: parts.bus.clone(),
        registry: parts.registry.clone(),
        authority_sha256: parts.authority_sha256,
        // The store's clock is the real one.
        world: World::real(),
        signer: parts.signer.clone(),
        bundles,
        stop: parts.stop.clone(),
        config: parts.config.clone(),
    });
    Api { app, ..api }
}

/// Registers a kind that uploads.
async fn uploads(api: &Api) {
    let manifest = component::manifest("test.bundle", "1.0.0", "capabilities.upload = { max-bytes = '512KiB' }");
    api.register(component::kind(&manifest), "?activate=true&exposed=true").await.ok();
}

impl Stored {
    async fn new() -> Self {
        let (folder, server, store) = served();
        let api = with_store(Api::new().await, Some(store));
        uploads(&api).await;
        Self { api, _folder: folder, server }
    }

    /// A command that uploads; as a reference, and its object's key.
    async fn queue(&self, node: &NodeId, key: &str) -> (Value, String) {
        let run = self.api.call("commands.run", self.api.ask(node, "test.bundle", key)).await.ok();
        let reference = json!({ "tenantId": self.api.tenant(), "nodeId": node.to_string(), "commandId": run["id"] });
        (reference, run["bundleKey"].as_str().expect("it has a key").to_owned())
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.server.object(key);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    }

    /// Gets a method with a reference and more as its query: status, headers, body.
    async fn get(&self, method: &str, query: &Value, range: Option<&str>) -> (u16, axum::http::HeaderMap, Vec<u8>) {
        get(&self.api, &self.api.token, method, query, range).await
    }
}

async fn get(
    api: &Api,
    token: &str,
    method: &str,
    query: &Value,
    range: Option<&str>,
) -> (u16, axum::http::HeaderMap, Vec<u8>) {
    let fields = query.as_object().expect("fields").iter();
    let query: Vec<_> = fields.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("7"))).collect();
    let mut request = Request::get(format!("/v1/{method}?{}", query.join("&")));
    request = request.header("authorization", format!("Bearer {token}"));
    if let Some(range) = range {
        request = request.header("range", range);
    }
    let request = request.body(Body::empty()).expect("a request");
    let (parts, body) = api.router().oneshot(request).await.expect("a router does not fail").into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("all of it");
    (parts.status.as_u16(), parts.headers, body.to_vec())
}

/// A header as text; empty where it is absent.
fn text<'a>(headers: &'a axum::http::HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().expect("text"))
}

fn code(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).expect("JSON");
    let error = &body["error"];
    format!("{} {}", error["code"].as_str().unwrap_or("ok"), error["details"]["reason"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_command_that_uploads_shows_its_key_and_only_where_there_is_a_store() {
    let stored = Stored::new().await;
    let api = &stored.api;
    let node = api.fleet.node().await;
    let ask = api.ask(&node, "test.bundle", "k");
    let run = api.call("commands.run", ask.clone()).await.ok();
    let key = run["idempotencyKey"].as_str().and_then(|key| key.strip_prefix("api:")).expect("the API's own");
    assert_eq!(run["bundleKey"], format!("support-bundles/{node}/{key}.bundle"));
    assert_eq!(run["supportBundle"], true);
    assert_eq!(api.call("commands.run", ask).await.ok(), run, "a retry is the same");
    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "commandId": run["id"] });
    assert_eq!(api.call("commands.get", reference).await.ok(), run);
    let list = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    assert_eq!(api.call("commands.list", list.clone()).await.ok()["items"], json!([run]));
    let id: CommandId = run["id"].as_str().expect("an id").parse().expect("an id");
    let row: (String, i64) = sqlx::query_as("select upload_object, upload_max_bytes from commands where id = $1")
        .bind(id.uuid())
        .fetch_one(&api.fleet.pool)
        .await
        .expect("a row");
    assert_eq!(
        row,
        (format!("{}/support/{}", stored.server.endpoint(), run["bundleKey"].as_str().unwrap_or("")), 512 << 10)
    );

    api.kind("diag.nvml").await;
    let plain = api.call("commands.run", api.ask(&node, "diag.nvml", "plain")).await.ok();
    assert_eq!((plain.get("bundleKey"), plain.get("supportBundle")), (None, None));
    let answers = format!("{run} {}", api.call("bundles.list", list).await.ok());
    for secret in ["X-Amz", ACCESS_KEY_ID, SECRET_ACCESS_KEY] {
        assert!(!answers.contains(secret), "{answers}");
    }

    let without = with_store(Api::new().await, None);
    uploads(&without).await;
    let node = without.fleet.node().await;
    let run = without.call("commands.run", without.ask(&node, "test.bundle", "k")).await.ok();
    assert_eq!((run.get("bundleKey"), run.get("supportBundle")), (None, None), "nothing to upload to");
}

#[tokio::test]
async fn bundles_are_listed_newest_first_with_what_the_store_says_of_them() {
    let stored = Stored::new().await;
    let api = &stored.api;
    let node = api.fleet.node().await;
    api.kind("diag.nvml").await;
    let mut keys = Vec::new();
    for name in ["one", "two", "three"] {
        keys.push(stored.queue(&node, name).await);
        api.call("commands.run", api.ask(&node, "diag.nvml", &format!("not {name}"))).await.ok();
    }
    stored.put(&keys[1].1, b"0123456789");
    let ask = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "limit": 2 });
    let first = api.call("bundles.list", ask.clone()).await.ok();
    let ids = |page: &Value| {
        page["items"].as_array().expect("items").iter().map(|it| it["commandId"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&first), [keys[2].0["commandId"].clone(), keys[1].0["commandId"].clone()]);
    let (missing, found) = (&first["items"][0], &first["items"][1]);
    assert_eq!((&missing["state"], missing.get("bytes"), missing.get("storedAt")), (&json!("missing"), None, None));
    assert_eq!(
        (&found["state"], &found["bytes"], &found["maxBytes"]),
        (&json!("stored"), &json!(10), &json!(512 << 10))
    );
    assert!(found["storedAt"].is_string() && found.get("sha256").is_none(), "{found}");
    assert_eq!((&found["bundleKey"], &found["commandState"]), (&json!(keys[1].1), &json!("pending")));
    let rest = api.call("bundles.list", with(ask.clone(), json!({ "cursor": first["nextCursor"] }))).await.ok();
    assert_eq!(ids(&rest), [keys[0].0["commandId"].clone()]);
    assert_eq!(rest.get("nextCursor"), None);

    let wrong = crate::bundles::Settings { secret_access_key: "wrong".into(), ..settings(&stored.server) };
    let Stored { api, .. } = stored;
    let api = with_store(api, Some(Store::new(wrong).expect("it keeps the rules")));
    let page = api.call("bundles.list", ask.clone()).await.ok();
    assert_eq!(page["items"][1]["state"], "unknown", "what cannot be known is not missing");
    let api = with_store(api, None);
    assert_eq!(api.call("bundles.list", ask).await.ok()["items"][1]["state"], "unknown");
}

#[tokio::test]
async fn a_bundle_is_downloaded_whole_or_from_a_byte_on() {
    let stored = Stored::new().await;
    let node = stored.api.fleet.node().await;
    let (reference, key) = stored.queue(&node, "k").await;
    let content: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    stored.put(&key, &content);
    let (status, headers, body) = stored.get("bundles.download", &reference, None).await;
    assert_eq!((status, body == content), (200, true));
    assert_eq!((text(&headers, "content-length"), text(&headers, "content-type")), ("300000", "application/zstd"));
    assert_eq!((text(&headers, "accept-ranges"), headers.get("repr-digest")), ("bytes", None), "the node told none");
    let name = reference["commandId"].as_str().expect("an id");
    assert_eq!(headers["content-disposition"], format!("attachment; filename=\"{name}.tar.zst\""));
    let (status, headers, body) = stored.get("bundles.download", &reference, Some("bytes=299990-")).await;
    assert_eq!((status, body == content[299_990..]), (206, true));
    assert_eq!(
        (text(&headers, "content-length"), text(&headers, "content-range")),
        ("10", "bytes 299990-299999/300000")
    );
    let (status, _, body) = stored.get("bundles.download", &reference, Some("bytes=300000-")).await;
    assert_eq!((status, code(&body).as_str()), (400, "INVALID_INPUT "));
    let (status, ..) = stored.get("bundles.download", &reference, Some("lines=1-2")).await;
    assert_eq!(status, 200, "what is no range of bytes counts as none");

    // Once the node has told its SHA-256.
    let id: CommandId = name.parse().expect("an id");
    let sha256 = hex::encode(Sha256::digest(&content));
    settle(&stored.api, id, &json!({ "sha256": sha256 })).await;
    let (_, headers, _) = stored.get("bundles.download", &reference, None).await;
    let told = text(&headers, "repr-digest").to_owned();
    assert!(told.starts_with("sha-256=:") && told.ends_with("=:"), "{told}");
    let list = json!({ "tenantId": stored.api.tenant(), "nodeId": node.to_string() });
    assert_eq!(stored.api.call("bundles.list", list).await.ok()["items"][0]["sha256"], sha256);
}

/// Puts a command's end into the database, as the queue does.
async fn settle(api: &Api, command: CommandId, result: &Value) {
    let moved = sqlx::query(
        "with over as (delete from ready r using commands c where c.id = $1 and r.node_id = c.node_id and r.seq = c.seq
                       returning r.node_id, r.seq)
         insert into settled (node_id, seq, state, reason, result, settled_at, reported_at)
         select node_id, seq, 'succeeded', '', $2, now(), now() from over",
    )
    .bind(command.uuid())
    .bind(result.to_string().into_bytes())
    .execute(&api.fleet.pool)
    .await
    .expect("it is pending");
    assert_eq!(moved.rows_affected(), 1);
}

#[tokio::test]
async fn files_of_a_bundle_are_listed_and_read_alone() {
    let stored = Stored::new().await;
    let node = stored.api.fleet.node().await;
    let (reference, key) = stored.queue(&node, "k").await;
    let large: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    stored.put(&key, &bundle(&[("journal/all.log", b"one line\n"), ("large", &large)]));
    let files = stored.api.call("bundles.files", reference.clone()).await.ok();
    let paths: Vec<_> = files["files"].as_array().expect("files").iter().map(|it| it["path"].clone()).collect();
    assert_eq!(paths, [json!("journal/all.log"), json!("large")]);
    assert_eq!(files["skipped"], json!([{ "path": "/var/log/secret", "reason": "denied" }]));
    let of = |path: &str| with(reference.clone(), json!({ "path": path }));
    let (status, headers, body) = stored.get("bundles.read", &of("journal/all.log"), None).await;
    assert_eq!((status, body.as_slice()), (200, &b"one line\n"[..]));
    assert_eq!((text(&headers, "content-length"), text(&headers, "content-type")), ("9", "application/octet-stream"));
    assert_eq!(headers["content-disposition"], "attachment; filename=\"all.log\"");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert!(headers.contains_key("repr-digest"));
    let (status, _, body) = stored.get("bundles.read", &of("large"), None).await;
    assert_eq!((status, body == large), (200, true));
    let (status, _, body) = stored.get("bundles.read", &of("../large"), None).await;
    assert_eq!((status, code(&body).as_str()), (404, "NOT_FOUND "));

    // The store's cap is 1 MiB here, so that 64 MiB is the most that comes out.
    stored.put(&key, &bundle(&[("zeros", &vec![0; 65 << 20]), ("after", b"x")]));
    let (status, _, body) = stored.get("bundles.read", &of("after"), None).await;
    assert_eq!((status, code(&body).as_str()), (409, "INVALID_STATE bundle-too-large"));
    stored.put(&key, b"nothing of the kind");
    let answer = stored.api.call("bundles.files", reference.clone()).await;
    assert_eq!(code(answer.body.to_string().as_bytes()), "INVALID_STATE not-a-bundle");
}

#[tokio::test]
async fn what_may_not_be_read_or_is_not_there_says_so() {
    let stored = Stored::new().await;
    let api = &stored.api;
    let node = api.fleet.node().await;
    let (reference, _) = stored.queue(&node, "k").await;
    api.kind("diag.nvml").await;
    let plain = api.call("commands.run", api.ask(&node, "diag.nvml", "plain")).await.ok();
    let of_command = |id: &Value| with(reference.clone(), json!({ "commandId": id }));
    let other_node = json!(api.fleet.node().await.to_string());
    let stranger = api.token_with("stranger", &[("compute:nodes:exec", "compute-node/*")]).await;
    let unknown = CommandId::from_uuid(uuid()).to_string();
    let (other_tenant, foreign) =
        crate::api::bootstrap::admin(&api.fleet.pool, "another tenant", &World::real()).await.expect("a database");
    let elsewhere = with(reference.clone(), json!({ "tenantId": other_tenant.to_string() }));
    let mut table = String::new();
    for (what, token, query) in [
        ("not stored", &api.token, reference.clone()),
        ("a command that uploads nothing", &api.token, of_command(&plain["id"])),
        ("no such command", &api.token, of_command(&json!(unknown))),
        ("another node's", &api.token, with(reference.clone(), json!({ "nodeId": other_node }))),
        ("may not read", &stranger, reference.clone()),
        ("another tenant, its own token", &foreign, elsewhere.clone()),
        ("another tenant's", &api.token, elsewhere),
        ("theirs", &foreign, reference.clone()),
        ("no id", &api.token, of_command(&json!("x"))),
        ("no node", &api.token, with(reference.clone(), json!({ "nodeId": "node_x" }))),
        ("a field too many", &api.token, with(reference.clone(), json!({ "more": "1" }))),
    ] {
        table += &format!("{what}\n");
        let (status, _, body) = get(api, token, "bundles.download", &query, None).await;
        table += &format!("    bundles.download: {status} {}\n", code(&body));
        let with_path = with(query.clone(), json!({ "path": "a" }));
        let (status, _, body) = get(api, token, "bundles.read", &with_path, None).await;
        table += &format!("    bundles.read: {status} {}\n", code(&body));
        let answer = api.call_as(token, "bundles.files", query.clone()).await;
        table +=
            &format!("    bundles.files: {} {}\n", answer.status.as_u16(), code(answer.body.to_string().as_bytes()));
        let mut list = query;
        list.as_object_mut().expect("fields").remove("commandId");
        let answer = api.call_as(token, "bundles.list", list).await;
        table +=
            &format!("    bundles.list: {} {}\n", answer.status.as_u16(), code(answer.body.to_string().as_bytes()));
    }
    let (_, _, body) = stored.get("bundles.read", &with(reference.clone(), json!({ "path": "" })), None).await;
    let (_, _, long) =
        stored.get("bundles.read", &with(reference.clone(), json!({ "path": "x".repeat(4097) })), None).await;
    for body in [body, long] {
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        table += &format!("{}\n", body["error"]["message"].as_str().unwrap_or_default());
    }
    let limits = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "limit": 51, "cursor": "x" });
    table += &format!("{}\n", api.call("bundles.list", limits).await.words());
    insta::assert_snapshot!(table);

    let Stored { api, .. } = stored;
    let api = with_store(api, None);
    let (status, _, body) = get(&api, &api.token, "bundles.download", &reference, None).await;
    assert_eq!((status, code(&body).as_str()), (409, "INVALID_STATE no-support-bundles"));
}
