//! Uploads against a store with faults, over real connections.

mod disk;
mod store;

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bc_daemon::capability::upload::{NotRefreshed, Refresh, Settings, Uploads};
use bc_daemon::server_time::ServerTime;
use bc_proto::id::CommandId;
use bc_proto::wire;
use bc_runtime::capability::upload::Receipt;
use bc_runtime::capability::{Answer, Upload};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::MakeWriter;
use uuid::Uuid;

use self::store::{Fault, Store};

/// Server time: June of 2000, which no machine's clock says.
const NOW_MS: u64 = 960_000_000_000;
const MINUTE_MS: u64 = 60_000;
/// Nothing here takes that long unless it never comes.
const PATIENCE: Duration = Duration::from_mins(1);

/// A control plane that gives these URLs, one after the other.
#[derive(Default)]
struct ControlPlane(Mutex<(Vec<Result<wire::Upload, NotRefreshed>>, usize)>);

impl ControlPlane {
    fn giving(answers: Vec<Result<wire::Upload, NotRefreshed>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new((answers.into_iter().rev().collect(), 0))))
    }

    fn asked(&self) -> usize {
        self.0.lock().expect("no panic").1
    }
}

#[async_trait]
impl Refresh for ControlPlane {
    async fn refresh(&self, _: CommandId) -> Result<wire::Upload, NotRefreshed> {
        let mut desk = self.0.lock().expect("no panic");
        desk.1 += 1;
        desk.0.pop().unwrap_or_else(|| Err(NotRefreshed::Refused("there is no more".into())))
    }
}

struct Bench {
    folder: TempDir,
    control_plane: Arc<ControlPlane>,
    cancel: CancellationToken,
    log: Log,
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn settings(spool_dir: &Path) -> Settings {
    Settings {
        spool_dir: spool_dir.to_owned(),
        ca_file: None,
        keep_free_bytes: 0,
        stall: Duration::from_millis(300),
        wait_scale: 0.01,
    }
}

impl Bench {
    fn new(control_plane: Arc<ControlPlane>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, control_plane, cancel: CancellationToken::new(), log: Log::default() }
    }

    fn upload(&self, destination: wire::Upload, cap: Option<u64>) -> Arc<dyn Upload> {
        let time = ServerTime::unknown(Instant::now());
        time.set(NOW_MS, Instant::now());
        let refresh: Arc<dyn Refresh> = self.control_plane.clone();
        let uploads = Uploads::new(settings(self.folder.path()), refresh, time).expect("TLS can be set up");
        uploads.of(CommandId::from_uuid(Uuid::from_u128(1)), Some(destination), cap, self.cancel.clone())
    }

    /// Uploads this, as a gate's thread would.
    async fn send(&self, destination: wire::Upload, bytes: Vec<u8>) -> Answer<Receipt> {
        let upload = self.upload(destination, None);
        let log = self.log.clone();
        let sent = tokio::task::spawn_blocking(move || {
            let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log).finish();
            let _logging = tracing::subscriber::set_default(subscriber);
            let handle = upload.begin("application/zstd")?;
            for piece in bytes.chunks(1024 * 1024) {
                upload.write(handle, piece)?;
            }
            upload.finish(handle)
        });
        let answer = tokio::time::timeout(PATIENCE, sent).await.expect("it ends").expect("no panic");
        let left = std::fs::read_dir(self.folder.path()).expect("the spool's folder").count();
        assert_eq!(left, 0, "nothing of a spool has a name");
        let log = String::from_utf8_lossy(&self.log.0.lock().expect("no panic")).into_owned();
        assert!(!log.contains("topsecret"), "{log}");
        if let Err(error) = &answer {
            assert!(!error.message.contains("topsecret") && !error.message.contains("until="), "{}", error.message);
        }
        answer
    }
}

fn content() -> Vec<u8> {
    (0_u32..500_000).flat_map(u32::to_le_bytes).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_stored_by_one_put_with_its_length_and_is_what_was_written() {
    let store = Store::start(NOW_MS, &[]).await;
    let bench = Bench::new(ControlPlane::giving(vec![]));
    let destination = store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS);
    let receipt = bench.send(destination, content()).await.expect("it is stored");
    let seen = store.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    let head = seen[0].head.to_ascii_lowercase();
    assert!(head.contains("content-length: 2000000\r\n") && !head.contains("transfer-encoding"), "{head}");
    assert!(head.contains("content-type: application/zstd\r\n"), "{head}");
    assert_eq!((seen[0].bytes, &seen[0].sha256), (2_000_000, &sha256(&content())));
    assert_eq!(receipt, Receipt { bytes: 2_000_000, sha256: sha256(&content()), truncated: false });
    assert_eq!(bench.control_plane.asked(), 0);

    let empty = bench.send(store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS), vec![]).await.expect("it is stored");
    assert_eq!((empty.bytes, store.seen()[1].bytes), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_past_the_smaller_cap_is_dropped_and_told() {
    let store = Store::start(NOW_MS, &[]).await;
    let bench = Bench::new(ControlPlane::giving(vec![]));
    let destination = store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS);
    for (max_bytes, cap) in [(10, None), (10, Some(20)), (20, Some(10))] {
        let upload = bench.upload(wire::Upload { max_bytes, ..destination.clone() }, cap);
        let sent = tokio::task::spawn_blocking(move || {
            let handle = upload.begin("text/plain")?;
            assert_eq!(upload.write(handle, b""), Ok(10), "what is free can be asked for");
            assert_eq!(upload.write(handle, b"0123456"), Ok(3));
            assert_eq!(upload.write(handle, b"789abc"), Ok(0));
            assert_eq!(upload.write(handle, b"d"), Ok(0));
            assert_eq!(upload.begin("text/plain").expect_err("one at a time").code, "already-begun");
            assert_eq!(upload.write(handle + 1, b"d").expect_err("no such").code, "not-found");
            let receipt = upload.finish(handle)?;
            assert_eq!(upload.finish(handle).expect_err("it is over").code, "not-found");
            assert_eq!(upload.begin("text/plain").expect_err("one for a command").code, "already-begun");
            Ok::<_, bc_runtime::v1::Error>(receipt)
        });
        let receipt = sent.await.expect("no panic").expect("it is stored");
        assert_eq!((receipt.bytes, receipt.truncated), (10, true));
        assert_eq!(receipt.sha256, sha256(b"0123456789"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_17_an_upload_survives_a_store_in_trouble() {
    let troubles = [
        Fault::Status(500, "InternalError"),
        Fault::Status(503, "SlowDown"),
        Fault::Cut(0),
        Fault::Cut(700_000),
        Fault::Silence,
        Fault::Deaf,
        Fault::Status(400, "RequestTimeout"),
    ];
    let store = Store::start(NOW_MS, &troubles).await;
    let bench = Bench::new(ControlPlane::giving(vec![]));
    let sent = bench.send(store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS), content()).await.expect("it is stored");
    let last = store.seen().pop().expect("it came");
    assert_eq!((last.status, &last.sha256), (200, &sent.sha256), "all of it, from the beginning");
    store.came(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_17_a_url_that_is_over_by_server_time_is_renewed_before_it_is_used() {
    let store = Store::start(NOW_MS, &[]).await;
    let fresh = store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS);
    let later = NotRefreshed::Later("there is no session".into());
    let bench = Bench::new(ControlPlane::giving(vec![Err(later.clone()), Err(later), Ok(fresh)]));
    let over = store.upload(NOW_MS - 20 * MINUTE_MS, NOW_MS - 5 * MINUTE_MS);
    bench.send(over, content()).await.expect("it is stored");
    let seen = store.seen();
    assert_eq!(seen.iter().map(|seen| seen.status).collect::<Vec<_>>(), [200], "the old one was not tried");
    assert_eq!(bench.control_plane.asked(), 3, "it waits for a session");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_17_an_upload_survives_a_store_whose_clock_is_ten_minutes_off() {
    for (store_ms, asked) in [
        // Good for five more minutes by the store's clock.
        (NOW_MS + 10 * MINUTE_MS, 0),
        // Over by the store's clock alone: it says so, and the URL is renewed.
        (NOW_MS + 16 * MINUTE_MS, 1),
        (NOW_MS - 10 * MINUTE_MS, 0),
    ] {
        let store = Store::start(store_ms, &[]).await;
        let fresh = store.upload(NOW_MS, NOW_MS + 30 * MINUTE_MS);
        let bench = Bench::new(ControlPlane::giving(vec![Ok(fresh)]));
        bench.send(store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS), content()).await.expect("it is stored");
        assert_eq!(bench.control_plane.asked(), asked);
        assert_eq!(store.seen().len(), asked + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_17_a_url_that_ends_between_two_attempts_is_renewed() {
    let store = Store::start(NOW_MS, &[Fault::Status(500, ""), Fault::Status(403, "ExpiredToken")]).await;
    let fresh = store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS);
    let bench = Bench::new(ControlPlane::giving(vec![Ok(fresh)]));
    bench.send(store.upload(NOW_MS, NOW_MS + 2 * MINUTE_MS), content()).await.expect("it is stored");
    assert_eq!(store.seen().iter().map(|seen| seen.status).collect::<Vec<_>>(), [500, 403, 200]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_refuses_is_told_with_its_code_and_not_repeated() {
    for (fault, asked, wanted) in [
        (Fault::Status(404, "NoSuchBucket"), 0, "HTTP 404, NoSuchBucket"),
        (Fault::Status(301, "PermanentRedirect"), 0, "HTTP 301, PermanentRedirect"),
        (Fault::Status(501, "NotImplemented"), 0, "HTTP 501, NotImplemented"),
        (Fault::Status(403, "SignatureDoesNotMatch"), 1, "HTTP 403, SignatureDoesNotMatch"),
    ] {
        let store = Store::start(NOW_MS, &[fault, fault]).await;
        let fresh = store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS);
        let bench = Bench::new(ControlPlane::giving(vec![Ok(fresh.clone())]));
        let error = bench.send(fresh, content()).await.expect_err("it is refused");
        assert_eq!(error.code, "refused");
        assert!(error.message.contains(wanted) && error.message.contains("supportBundles"), "{}", error.message);
        assert_eq!((bench.control_plane.asked(), store.seen().len()), (asked, asked + 1), "{wanted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let elsewhere = Store::start(NOW_MS, &[]).await;
    let store = Store::start(NOW_MS, &[Fault::Redirect(elsewhere.address)]).await;
    let bench = Bench::new(ControlPlane::giving(vec![]));
    let error = bench.send(store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS), content()).await.expect_err("it is refused");
    assert!(error.message.contains("HTTP 307"), "{}", error.message);
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_url_of_another_object_is_not_used() {
    let evil = Store::start(NOW_MS, &[]).await;
    let store = Store::start(NOW_MS, &[Fault::Status(403, "AccessDenied")]).await;
    let bench = Bench::new(ControlPlane::giving(vec![Ok(evil.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS))]));
    let error = bench.send(store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS), content()).await.expect_err("it is refused");
    assert!(error.code == "refused" && error.message.contains("another object"), "{}", error.message);
    assert_eq!((evil.seen().len(), store.seen().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_never_comes_back_is_unreachable() {
    let store = Store::start(NOW_MS, &[Fault::Cut(10); 20]).await;
    let bench = Bench::new(ControlPlane::giving(vec![]));
    let error = bench.send(store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS), content()).await.expect_err("it ends");
    assert_eq!(error.code, "unreachable");
    store.came(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_an_upload_that_hangs() {
    let store = Store::start(NOW_MS, &[Fault::Deaf]).await;
    let bench = Bench::new(ControlPlane::giving(vec![]));
    let (sent, ()) = tokio::join!(bench.send(store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS), content()), async {
        store.came(1).await;
        bench.cancel.cancel();
    });
    assert_eq!(sent.expect_err("it was cancelled").code, "cancelled");
    assert_eq!(store.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_a_destination_says_what_to_configure() {
    let bench = Bench::new(ControlPlane::giving(vec![]));
    let time = ServerTime::unknown(Instant::now());
    let refresh: Arc<dyn Refresh> = bench.control_plane.clone();
    let uploads = Uploads::new(settings(bench.folder.path()), refresh, time).expect("TLS can be set up");
    let upload = uploads.of(CommandId::from_uuid(Uuid::nil()), None, None, CancellationToken::new());
    let error = upload.begin("text/plain").expect_err("there is none");
    assert!(error.code == "no-destination" && error.message.contains("supportBundles"), "{}", error.message);
}

/// The most memory that this process has had, bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it is in there");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_grow_with_the_upload() {
    let store = Store::start(NOW_MS, &[]).await;
    let bench = Bench::new(ControlPlane::giving(vec![]));
    let upload = bench.upload(store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS), None);
    let piece = vec![42; 1024 * 1024];
    let before = peak_bytes();
    let sent = tokio::task::spawn_blocking(move || {
        let handle = upload.begin("text/plain")?;
        for _ in 0..512 {
            upload.write(handle, &piece)?;
        }
        upload.finish(handle)
    });
    let receipt = sent.await.expect("no panic").expect("it is stored");
    assert_eq!((receipt.bytes, store.seen()[0].bytes), (512 << 20, 512 << 20));
    let grown = peak_bytes() - before;
    assert!(grown < 64 << 20, "{grown} bytes for 512 MiB");
}
