//! Joining, and who gets in.

use super::*;
use crate::queue::life;

async fn refusal(site: &Site, replica: &Replica, change: impl FnOnce(&mut v1::JoinRequest)) -> (Code, String) {
    let token = site.token(None, None).await;
    let mut request = request(&token, &KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key"));
    change(&mut request);
    let status = replica.client(&site.authority, None).join(request).await.expect_err("a refusal");
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn a_machine_joins_with_a_token_once_and_is_the_node_that_its_certificate_names() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let token = site.token(None, None).await;
    let machine = Machine::join(&site.authority, &replica, &token).await.expect("it may join");
    let again = Machine::join(&site.authority, &replica, &token).await.err().expect("a refusal");
    assert_eq!(
        (again.code(), again.message()),
        (Code::Unauthenticated, "this token was used already; each is good for one join")
    );

    let before = site.find(machine.node()).await;
    assert_eq!((before.name.as_str(), before.incarnation, before.connected), ("machine", 1, false));
    let link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let open = site.find(machine.node()).await;
    assert_eq!((open.connected, open.session_epoch, open.bcd_version.as_deref()), (true, link.epoch, Some("1.2.3")));
    assert_eq!(open.kinds[0].name, "test");
    drop(link);
    while site.find(machine.node()).await.connected {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_refused_says_why_and_spends_no_token() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let mut said = String::new();
    let mut note = |what: &str, (code, message): (Code, String)| said += &format!("{what}: {code:?}: {message}\n");
    let other = Authority::create([2; 16], OffsetDateTime::now_utc()).expect("an authority").0;
    let other = join_tokens::text("secret", &Sha256::digest(other.certificate_der()).into());
    let here = Sha256::digest(site.authority.certificate_der()).into();
    note("no token", refusal(&site, &replica, |it| it.token = "hunter2".into()).await);
    note("unknown", refusal(&site, &replica, |it| it.token = join_tokens::text("secret", &here)).await);
    note("of another control plane", refusal(&site, &replica, |it| it.token = other).await);
    note("no role", refusal(&site, &replica, |it| it.role = 0).await);
    note("no name", refusal(&site, &replica, |it| it.name = String::new()).await);
    note("a name with a space", refusal(&site, &replica, |it| it.name = "a b".into()).await);
    insta::assert_snapshot!(said);

    let token = site.token(None, None).await;
    let mut damaged = request(&token, &KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key"));
    damaged.certificate_request.truncate(40);
    let status = replica.client(&site.authority, None).join(damaged).await.expect_err("a refusal");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    Machine::join(&site.authority, &replica, &token).await.expect("the token is still good");

    let token = site.token(None, None).await;
    site.ahead.store(3_601, Ordering::Relaxed);
    let status = Machine::join(&site.authority, &replica, &token).await.err().expect("a refusal");
    assert_eq!(status.message(), "this token has expired; ask for a new one");
}

#[tokio::test]
async fn a_name_that_is_taken_gets_an_end_of_its_own() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let first = site.machine(&replica).await;
    let second = site.machine(&replica).await;
    assert_eq!(site.find(first.node()).await.name, "machine");
    let name = site.find(second.node()).await.name;
    let id = second.node().to_string();
    assert_eq!(name, format!("machine-{}", &id[id.len() - 6..]));
}

#[tokio::test]
async fn without_a_certificate_of_this_authority_there_is_no_session() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let csr = request("", &key).certificate_request;
    let now = OffsetDateTime::now_utc();

    let mut nobody = replica.client(&site.authority, None);
    let status = nobody.fetch_kind(v1::FetchKindRequest { digest: vec![7; 32] }).await.expect_err("a refusal");
    assert_eq!(status.code(), Code::Unauthenticated);
    let (_says, said) = mpsc::channel(1);
    let status = nobody.session(ReceiverStream::new(said)).await.expect_err("a refusal");
    assert_eq!(status.code(), Code::Unauthenticated);

    let forger = Authority::create([2; 16], now).expect("an authority").0;
    let certificate = forger.issue_node(&csr, machine.peer, None, [3; 16], now).expect("it signs anything").der;
    let status = Machine::with(machine.peer, &certificate, &key).open(&site.authority, &replica).await.err();
    assert!(status.is_some_and(|status| status.code() != Code::Ok), "the handshake fails");

    let unknown = site.authority.issue_node(&csr, machine.peer, None, [3; 16], now).expect("issued").der;
    let status = Machine::with(machine.peer, &unknown, &key).open(&site.authority, &replica).await.err();
    assert_eq!(status.expect("a refusal").code(), Code::Unauthenticated, "signed, but never recorded");

    let mut liar = machine.clone();
    liar.peer.incarnation = 2;
    let status = liar.open(&site.authority, &replica).await.err().expect("a refusal");
    assert_eq!(status.message(), "Hello.incarnation is not the one that the certificate was issued for");
    assert_eq!(site.find(machine.node()).await.session_epoch, 0, "none of them opened anything");
    machine.open(&site.authority, &replica).await.expect("the node itself gets in");
}

#[tokio::test]
async fn promise_15_a_machine_that_joins_again_ends_the_session_and_certificate_of_its_earlier_life() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let wipe = site.fleet.kind(bc_proto::manifest::Lane::Control, &["destructive"]).await;
    let queued = site.hold(machine.node(), wipe).await;

    let token = site.token(Some(machine.node()), None).await;
    let reborn = Machine::join(&site.authority, &replica, &token).await.expect("it may join");
    assert_eq!(reborn.peer, Peer { node: machine.node(), incarnation: 2 });
    assert_eq!(link.end().await, Code::Aborted);
    let status = machine.open(&site.authority, &replica).await.err().expect("a refusal");
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(site.fleet.state(&queued).await, ("expired".into(), "node-replaced".into()));
    reborn.open(&site.authority, &replica).await.expect("the new life gets in");
}

#[tokio::test]
async fn a_node_that_is_deleted_loses_its_session() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let mut tx = site.fleet.pool.begin().await.expect("a transaction");
    assert!(life::delete(&mut tx, machine.node(), site.world().now()).await.expect("a database"));
    tx.commit().await.expect("a commit");
    replica.bus.tell(Signal::Cancel { node: machine.node() });
    assert_eq!(link.end().await, Code::Aborted);
    let status = machine.open(&site.authority, &replica).await.err().expect("a refusal");
    assert_eq!(status.code(), Code::Unauthenticated);
}
