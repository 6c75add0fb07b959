//! The node's key and certificate: what it signs, what it refuses by them, and their renewal.

use bc_daemon::identity;
use bc_proto::certificate::NodeCertificate;
use bc_proto::rules::attest;
use bc_proto::sign::PublicKey;
use bc_proto::wire::{Report, Update};
use time::{Duration, OffsetDateTime};

use crate::bench::{Bench, HOSTILE, NOOP, hostile, noop};
use crate::gateway::{Authority, Link};

fn key(link: &Link) -> PublicKey {
    NodeCertificate::read(&link.certificate).expect("a node's").key.expect("an Ed25519 key")
}

fn holds(update: &Update, key: &PublicKey) -> bool {
    let state = attest::end(update.report).expect("an end");
    attest::verify([key], update.command, state, &update.result, &update.node_sig).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_is_signed_by_the_certified_key_and_repeated_with_the_same_signature() {
    let bench = Bench::new();
    let mut gateway = bench.gateway().await;
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    let key = key(&link);
    link.deliver(&noop(1)).await;
    link.acked(1).await;
    assert!(link.report(1).await.node_sig.is_empty(), "nothing has ended");
    let done = link.report(1).await;
    assert!(done.report == Report::Succeeded && holds(&done, &key));
    link.deliver(&noop(1)).await;
    assert_eq!(link.report(1).await, done);
    let mut late = noop(2);
    late.not_after_ms = 1;
    link.deliver(&late).await;
    let refused = link.report(2).await;
    assert!(refused.report == Report::Rejected && holds(&refused, &key));
    daemon.stop().await;

    // The next process tells both again, as they were.
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(2, 1).await;
    assert_eq!([link.report(1).await, link.report(2).await], [done, refused]);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restricted_node_refuses_by_itself_what_its_certificate_does_not_allow() {
    let bench = Bench::new();
    bench.plug(HOSTILE);
    let mut gateway = bench.gateway().await;
    gateway.desk().allowed_kinds = Some(vec![NOOP.to_owned()]);
    bench.join(&[&gateway]).await;
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    link.deliver(&hostile(1, serde_json::json!({ "mode": "echo" }))).await;
    let refused = link.report(1).await;
    assert_eq!((refused.report, refused.reason.as_str()), (Report::Rejected, "UNSUPPORTED"));
    assert!(gateway.desk().fetches.is_empty(), "it is not even fetched");
    link.deliver(&noop(2)).await;
    assert_eq!(link.whole_run(2).await.report, Report::Succeeded);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_when_a_third_is_left_and_the_next_session_uses_it() {
    // Certificates of nodes are verified by this machine's clock, which server time therefore follows here.
    let bench = Bench::of(Authority::at(bc_daemon::node::now_ms()));
    let mut gateway = bench.gateway().await;
    let now =
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(bc_daemon::node::now_ms()) * 1_000_000).expect("a time");
    let day = Duration::days(1);
    gateway.desk().validity = Some((now - 70 * day, now + 30 * day));
    gateway.desk().renews_not = true;
    bench.join(&[&gateway]).await;
    let before = identity::read(&bench.state_dir()).expect("it reads").certificate().clone();
    let daemon = bench.daemon();
    let mut link = gateway.link().await.welcome(1, 1).await;
    let old = key(&link);
    assert_eq!(before.key, Some(old));
    // The first try fails, and the second renews; its certificate is not due.
    gateway.desk().validity = Some((now - day, now + 90 * day));
    let renewed = loop {
        let read = identity::read(&bench.state_dir()).expect("there is always a whole one").certificate().clone();
        if read != before {
            break read;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(gateway.desk().renewals.len(), 2);
    assert_eq!((renewed.node, renewed.incarnation), (before.node, before.incarnation));
    // The session goes on; the key that signs is a certified one all along.
    let mut command = noop(1);
    command.not_after_ms = u64::MAX;
    link.deliver(&command).await;
    let done = link.whole_run(1).await;
    assert!([old, renewed.key.expect("Ed25519")].iter().any(|key| holds(&done, key)));
    drop(link);
    let mut link = gateway.link().await;
    while key(&link) == old {
        // The file is there a moment before the daemon uses it.
        drop(link);
        link = gateway.link().await;
    }
    let mut link = link.welcome(2, 1).await;
    assert_eq!(Some(key(&link)), renewed.key);
    assert!(holds(&link.report(1).await, &key(&link)), "told again, by the new key");
    daemon.stop().await;
    assert_eq!(gateway.desk().renewals.len(), 2, "it is not due again");
}
