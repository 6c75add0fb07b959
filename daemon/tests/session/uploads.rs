//! Uploads of commands that a gateway delivers.

use bc_proto::wire::{Deliver, Report, Upload, v1};
use serde_json::{Value, json};

use super::bench::{Bench, component, digest};
use super::gateway::{SERVER_TIME_MS, deliver, id};
use super::store::{Fault, Store};

const LOGS: &str = "logs.collect";
const MINUTE_MS: u64 = 60_000;

/// What the daemon says of itself, with a destination.
fn collect(seq: u64, upload: Option<Upload>) -> Deliver {
    let command = deliver(LOGS, &digest(&component(LOGS)), seq, json!({ "sources": ["daemon"] }));
    Deliver { upload, ..command }
}

fn result(update: &bc_proto::wire::Update) -> Value {
    serde_json::from_slice(&update.result).expect("a result")
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_17_a_command_whose_url_is_over_gets_a_fresh_one_through_its_session() {
    let bench = Bench::new();
    bench.plug(LOGS);
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let store = Store::start(SERVER_TIME_MS, &[]).await;
    gateway.desk().upload = Some(store.upload(SERVER_TIME_MS, SERVER_TIME_MS + 15 * MINUTE_MS));
    let daemon = bench.daemon_on(|node| node.supervisor = Some(env!("CARGO_BIN_EXE_bcd").into()));
    let mut link = gateway.link().await.welcome(1, 1).await;
    let over = store.upload(SERVER_TIME_MS - 20 * MINUTE_MS, SERVER_TIME_MS - 5 * MINUTE_MS);
    link.deliver(&collect(1, Some(over))).await;
    let update = link.whole_run(1).await;
    assert_eq!(update.report, Report::Succeeded, "{}", String::from_utf8_lossy(&update.result));
    let (result, seen) = (result(&update), store.seen());
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((&result["sha256"], &result["bytes"]), (&json!(seen[0].sha256), &json!(seen[0].bytes)));
    assert_eq!(gateway.desk().refreshes, [id(1).to_string()]);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_a_destination_fails_before_anything_is_collected() {
    let bench = Bench::new();
    bench.plug(LOGS);
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon_on(|node| node.supervisor = Some(env!("CARGO_BIN_EXE_bcd").into()));
    let mut link = gateway.link().await.welcome(1, 1).await;
    link.deliver(&collect(1, None)).await;
    let update = link.whole_run(1).await;
    let result = result(&update);
    assert_eq!((update.report, &result["code"]), (Report::Failed, &json!("no-destination")), "{result}");
    assert!(result["message"].to_string().contains("supportBundles"), "{result}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_command_whose_upload_hangs() {
    let bench = Bench::new();
    bench.plug(LOGS);
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let store = Store::start(SERVER_TIME_MS, &[Fault::Deaf]).await;
    let daemon = bench.daemon_on(|node| node.supervisor = Some(env!("CARGO_BIN_EXE_bcd").into()));
    let mut link = gateway.link().await.welcome(1, 1).await;
    link.deliver(&collect(1, Some(store.upload(SERVER_TIME_MS, SERVER_TIME_MS + 15 * MINUTE_MS)))).await;
    link.acked(1).await;
    assert_eq!(link.report(1).await.report, Report::Running);
    store.came(1).await;
    let command_id = id(1).to_string();
    link.send(v1::to_node::Frame::Cancel(v1::Cancel { command_id, signature: None })).await;
    assert_eq!(link.report(1).await.report, Report::Cancelled);
    daemon.stop().await;
}
