//! The store, against a real S3 server.

use real_s3::{ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY, Server};
use reqwest::{Client, Method, StatusCode};
use tempfile::TempDir;

use super::*;

/// The settings of a store on this machine.
pub(crate) fn settings(server: &Server) -> Settings {
    Settings {
        endpoint: server.endpoint(),
        region: "us-east-1".into(),
        bucket: BUCKET.into(),
        path_style: true,
        max_bytes: 1 << 20,
        access_key_id: ACCESS_KEY_ID.into(),
        secret_access_key: SECRET_ACCESS_KEY.into(),
        ca_pem: None,
    }
}

/// A server over a folder, and its store.
pub(crate) fn served() -> (TempDir, Server, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path());
    let store = Store::new(settings(&server)).expect("the settings keep the rules");
    (folder, server, store)
}

/// The status of a request with a body.
pub(crate) async fn send(method: Method, url: &str, body: &'static str) -> StatusCode {
    // Fails only when somebody did it before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().tls_certs_only([]).no_proxy().build().expect("a client");
    client.request(method, url).body(body).send().await.expect("the server answers").status()
}

fn manifest(upload: &str) -> Manifest {
    Manifest::from_toml(&format!(
        "name = 'test.bundle'\nversion = '1.0.0'\nsummary = 'Uploads'\nmodule = 'test'\nlane = 'bulk'\ntimeout = '1m'\n\
         roles = ['host']\nresult = {{}}\n{upload}\n[payload]\ntype = 'object'\n"
    ))
    .expect("the manifest keeps the rules")
}

fn node() -> NodeId {
    "node_00000000000000000000000001".parse().expect("an id")
}

#[test]
fn a_kind_that_declares_an_upload_has_a_destination_and_no_other() {
    let (_folder, server, store) = served();
    let destination = |upload: &str| store.destination(node(), "api:k", &manifest(upload));
    assert_eq!(destination(""), None);
    let object = format!("{}/support/support-bundles/node_00000000000000000000000001/k.bundle", server.endpoint());
    let most = |max_bytes| Some(Destination { object: object.clone(), max_bytes });
    assert_eq!(destination("capabilities.upload = {}"), most(1 << 20), "the operator's cap");
    assert_eq!(destination("capabilities.upload = { max-bytes = '64KiB' }"), most(64 << 10), "the kind's own is less");
    assert_eq!(destination("capabilities.upload = { max-bytes = '1GiB' }"), most(1 << 20));
    let virtual_host = Settings { endpoint: "https://S3.example:443/".into(), path_style: false, ..settings(&server) };
    let store = Store::new(virtual_host).expect("the settings keep the rules");
    let object = store.destination(node(), "api:k", &manifest("capabilities.upload = {}")).expect("it uploads").object;
    assert_eq!(object, "https://support.s3.example/support-bundles/node_00000000000000000000000001/k.bundle");
    let (url, _) = store.presign(&object, OffsetDateTime::UNIX_EPOCH, OffsetDateTime::UNIX_EPOCH).expect("its own");
    assert_eq!(url.object(), object);
}

#[test]
fn a_url_lasts_a_quarter_of_an_hour_past_the_command_and_at_most_a_week() {
    let (_folder, server, store) = served();
    let object = format!("{}/support/support-bundles/n/k.bundle", server.endpoint());
    let now = OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(1_800_000_000_700);
    for (until_not_after_s, lasts_s) in [(600, 1500), (-3600, 900), (0, 900), (30 * 86_400, 7 * 86_400)] {
        let (url, expires_ms) =
            store.presign(&object, now + time::Duration::seconds(until_not_after_s), now).expect("its own");
        let query = url.expose().split_once('?').expect("a query").1.to_owned();
        assert!(query.contains(&format!("X-Amz-Expires={lasts_s}&")), "{query}");
        assert_eq!(expires_ms, 1_800_000_000_000 + lasts_s * 1000, "never later than the signature says");
        assert_eq!(url.object(), object);
    }
    for other in [
        "http://127.0.0.1:1/support/support-bundles/n/k.bundle".to_owned(),
        format!("{}/other/support-bundles/n/k.bundle", server.endpoint()),
        format!("{}/support/support-bundles/../k", server.endpoint()),
        format!("{}/support/a?b", server.endpoint()),
        String::new(),
    ] {
        assert_eq!(store.presign(&other, now, now), None, "{other}");
    }
}

#[tokio::test]
async fn a_url_writes_its_object_and_the_server_refuses_all_else() {
    let (_folder, server, store) = served();
    let object = store.destination(node(), "api:k", &manifest("capabilities.upload = {}")).expect("it uploads").object;
    let now = OffsetDateTime::now_utc();
    let (url, _) = store.presign(&object, now, now).expect("its own");
    let url = url.expose();
    let early = now - time::Duration::hours(2);
    let (expired, _) = store.presign(&object, early, early).expect("its own");
    let (_, query) = url.split_once('?').expect("a query");
    let key = support_bundle_key(node(), "api:k");
    for (what, method, url) in [
        ("another method", Method::GET, url.to_owned()),
        ("another method", Method::DELETE, url.to_owned()),
        ("another key", Method::PUT, url.replace("k.bundle", "other.bundle")),
        ("expired", Method::PUT, expired.expose().to_owned()),
        ("another end", Method::PUT, url.replace("X-Amz-Expires=900", "X-Amz-Expires=90000")),
        ("no query", Method::PUT, object.clone()),
        ("another bucket", Method::PUT, format!("{}/other/{key}?{query}", server.endpoint())),
    ] {
        let status = send(method, &url, "stolen").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{what}");
    }
    let key = support_bundle_key(node(), "api:k");
    assert_eq!(store.find(&key, now).await, Err(Failed::Missing));
    assert_eq!(send(Method::PUT, url, "0123456789").await, StatusCode::OK);
    assert_eq!(std::fs::read(server.object(&key)).expect("it is there"), b"0123456789");
    let found = store.find(&key, now).await.expect("it is there");
    assert_eq!(found.bytes, 10);
    let age = OffsetDateTime::now_utc() - found.stored_at.expect("the server says since when");
    assert!(age.whole_seconds().abs() < 60, "{age}");

    let all = store.get(&key, None, now).await.expect("it is there");
    assert_eq!((all.bytes, all.range), (Some(10), None));
    let part = store.get(&key, Some("bytes=7-"), now).await.expect("it is there");
    assert_eq!((part.bytes, part.range.as_deref()), (Some(3), Some("bytes 7-9/10")));
    assert_eq!(part.body.text().await.expect("text"), "789");
    assert_eq!(store.get(&key, Some("bytes=10-"), now).await.expect_err("past its end"), Failed::Range);
}

#[tokio::test]
async fn a_store_that_refuses_and_one_that_is_away_are_told_apart_and_show_no_signature() {
    let (_folder, server, _) = served();
    let wrong = Settings { secret_access_key: "another".into(), ..settings(&server) };
    let wrong = Store::new(wrong).expect("the settings keep the rules");
    let now = OffsetDateTime::now_utc();
    assert_eq!(wrong.find("k", now).await, Err(Failed::Refused(403)));
    let away = Settings { endpoint: "http://127.0.0.1:1".into(), ..settings(&server) };
    let away = Store::new(away).expect("the settings keep the rules");
    let failed = away.find("k", now).await.expect_err("nobody listens there");
    assert!(matches!(&failed, Failed::Away(_)), "{failed:?}");
    let text = format!("{failed} {failed:?} {away:?} {:?}", settings(&server));
    for secret in ["X-Amz", "Signature", SECRET_ACCESS_KEY, ACCESS_KEY_ID] {
        assert!(!text.contains(secret), "{text}");
    }
}
