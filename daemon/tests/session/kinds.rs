//! Components that a command names and the node does not have.

use std::fs;

use bc_daemon::kinds::HELD;
use bc_daemon::kinds::signature;
use bc_daemon::trust::Trust;
use bc_proto::rules::publishing::KindSignature;
use bc_proto::rules::trust::{Publisher, SignedBundle, TrustBundle};
use bc_proto::sign::SecretKey;
use bc_proto::wire::Report;
use serde_json::json;

use crate::bench::{Bench, HOSTILE, NOOP, component, digest, hostile, noop};
use crate::gateway::deliver;

#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_fetched_by_its_digest_once_and_kept() {
    let bench = Bench::new();
    bench.unplug(NOOP);
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let bytes = component(NOOP);
    gateway.desk().components.insert(hex::decode(digest(&bytes)).expect("hex"), bytes.clone());
    // What was kept of earlier commands.
    let dir = bench.state_dir().join("kinds");
    fs::create_dir(&dir).expect("a folder");
    for other in 0..HELD + 8 {
        fs::write(dir.join(format!("{other:064x}.wasm")), "of an earlier command").expect("a file");
    }
    let daemon = bench.daemon();
    let link = gateway.link().await;
    assert_eq!(link.hello.kinds, []);
    let mut link = link.welcome(1, 1).await;
    for seq in 1..=2 {
        link.deliver(&noop(seq)).await;
        assert_eq!(link.whole_run(seq).await.report, Report::Succeeded);
    }
    assert_eq!(gateway.desk().fetches.len(), 1);
    assert_eq!(fs::read_dir(&dir).expect("it is there").count(), HELD, "what is kept is bounded");
    daemon.stop().await;
    link.over().await;

    let kept = dir.join(digest(&bytes)).with_added_extension("wasm");
    assert_eq!(fs::read(&kept).expect("it is kept"), bytes);
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(2, 1).await;
    // What was not acknowledged comes first.
    let _ = (link.report(1).await, link.report(2).await);
    link.deliver(&noop(3)).await;
    assert_eq!(link.whole_run(3).await.report, Report::Succeeded);
    assert_eq!(gateway.desk().fetches.len(), 1, "it came from the disk");
    daemon.stop().await;
    link.over().await;

    // A file that is damaged is never run: it is fetched anew.
    fs::write(&kept, &bytes[..bytes.len() - 1]).expect("it is written");
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(3, 4).await;
    link.deliver(&noop(4)).await;
    assert_eq!(link.whole_run(4).await.report, Report::Succeeded);
    assert_eq!(gateway.desk().fetches.len(), 2);
    assert_eq!(fs::read(&kept).expect("it is kept"), bytes);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_had_is_refused_and_holds_nobody_up() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let hostile_bytes = component(HOSTILE);
    let (missing, other) = ("00".repeat(32), "11".repeat(32));
    {
        let mut desk = gateway.desk();
        desk.components.insert(hex::decode(&other).expect("hex"), component(NOOP));
        desk.components.insert(hex::decode(digest(&hostile_bytes)).expect("hex"), hostile_bytes);
    }
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    // The gateway has none; it gives other bytes; this node has nothing behind what the kind needs.
    let refused = [
        deliver("test.missing", &missing, 1, json!({})),
        deliver(NOOP, &other, 2, json!({})),
        hostile(3, json!({ "mode": "ok" })),
    ];
    for (seq, command) in (1..).zip(&refused) {
        link.deliver(command).await;
        let answer = link.report(seq).await;
        assert_eq!((answer.report, answer.reason.as_str()), (Report::Rejected, "KIND_UNAVAILABLE"));
    }
    assert!(!bench.state_dir().join("kinds").exists(), "nothing is kept of it");
    // What this node does not admit is not asked for again.
    link.deliver(&hostile(4, json!({ "mode": "ok" }))).await;
    assert_eq!(link.report(4).await.reason, "KIND_UNAVAILABLE");
    assert_eq!(gateway.desk().fetches.len(), 3);
    link.deliver(&noop(5)).await;
    assert_eq!(link.whole_run(5).await.report, Report::Succeeded);
    daemon.stop().await;
}

fn publisher(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32])
}

/// A bundle that trusts these publishers.
fn publishers(version: u64, seeds: &[u8]) -> SignedBundle {
    let publishers = seeds.iter().map(|&seed| Publisher { name: seed.to_string(), key: publisher(seed).public() });
    let bundle = TrustBundle { version, publishers: publishers.collect(), ..TrustBundle::NONE };
    SignedBundle { bundle, signatures: Vec::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_28_a_node_takes_no_kind_that_no_publisher_signed() {
    let bench = Bench::new();
    // No parser gets to the end of it.
    fs::write(bench.path("plugins").join("broken.wasm"), b"\0asm\x0d\0\x01\0 junk").expect("it is written");
    let mut gateway = bench.gateway().await;
    gateway.desk().trust_bundle = serde_json::to_vec(&publishers(1, &[1])).expect("JSON");
    bench.join(&[&gateway]).await;
    let bytes = component(NOOP);
    let at = hex::decode(digest(&bytes)).expect("hex");
    gateway.desk().components.insert(at.clone(), bytes.clone());
    let trust = Trust::default();
    let start = || bench.daemon_on(|node| node.trust = trust.clone());
    let daemon = start();
    let link = gateway.link().await;
    assert_eq!(link.hello.kinds, [], "the plugin directory holds none that is signed");
    let mut link = link.welcome(1, 1).await;
    let by = |seed| KindSignature::sign(&digest(&bytes), &publisher(seed));
    let stolen = KindSignature { publisher: publisher(1).public(), ..by(2) };
    let forged = [None, Some(by(2)), Some(stolen)];
    for (seq, signed) in (1..).zip(forged) {
        let pair = signed.map(|it| (it.publisher.as_bytes().to_vec(), it.signature.as_bytes().to_vec()));
        gateway.desk().signatures.insert(at.clone(), pair.unwrap_or_default());
        link.deliver(&noop(seq)).await;
        let answer = link.report(seq).await;
        assert_eq!((answer.report, answer.reason.as_str()), (Report::Rejected, "KIND_UNAVAILABLE"), "{seq}");
    }
    assert!(!bench.state_dir().join("kinds").exists(), "nothing is kept of it");

    let good = by(1);
    let pair = (good.publisher.as_bytes().to_vec(), good.signature.as_bytes().to_vec());
    gateway.desk().signatures.insert(at.clone(), pair);
    link.deliver(&noop(4)).await;
    assert_eq!(link.whole_run(4).await.report, Report::Succeeded);
    daemon.stop().await;
    link.over().await;

    // It was kept with its signature.
    let fetches = gateway.desk().fetches.len();
    let daemon = start();
    let mut link = gateway.link().await.welcome(2, 5).await;
    link.deliver(&noop(5)).await;
    assert_eq!(link.whole_run(5).await.report, Report::Succeeded);
    assert_eq!(gateway.desk().fetches.len(), fetches, "it came from the disk");

    // A publisher who is trusted no more: their kinds take no new commands, although they are loaded.
    assert!(trust.offer(publishers(2, &[2])).expect("it is newer"));
    link.deliver(&noop(6)).await;
    let answer = link.report(6).await;
    assert_eq!((answer.report, answer.reason.as_str()), (Report::Rejected, "KIND_UNAVAILABLE"));
    assert!(trust.offer(publishers(3, &[1])).expect("it is newer"));
    link.deliver(&noop(7)).await;
    assert_eq!(link.whole_run(7).await.report, Report::Succeeded);
    daemon.stop().await;
    link.over().await;

    // The plugin directory takes a signature as a file beside the component.
    let file = bench.path("plugins").join(NOOP).with_added_extension("wasm");
    fs::write(signature::file(&file), serde_json::to_vec(&good).expect("JSON")).expect("it is written");
    let daemon = start();
    assert_eq!(gateway.link().await.hello.kinds.len(), 1);
    daemon.stop().await;
}
