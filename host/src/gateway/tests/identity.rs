//! Certificates after the join: renewal, revocation, restriction and their end.

use bc_proto::certificate::NodeCertificate;
use bc_proto::manifest::Lane;

use super::*;
use crate::store::node_certificates;

async fn revoke(site: &Site, node: NodeId, fingerprint: Option<Fingerprint>) {
    let mut tx = site.fleet.pool.begin().await.expect("a transaction");
    node_certificates::revoke(&mut tx, node, fingerprint, site.world().now()).await.expect("a database");
    tx.commit().await.expect("a commit");
}

#[tokio::test]
async fn a_renewed_certificate_is_for_the_same_node_life_and_kinds_and_the_old_one_counts_still() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let token = site.token(None, Some(vec!["test.bulk".into()])).await;
    let machine = Machine::join(&site.authority, &replica, &token).await.expect("it may join");
    let renewed = machine.renew(&site.authority, &replica).await.expect("it is renewed");
    let [old, new] = [&machine, &renewed].map(|it| NodeCertificate::read(&it.der).expect("a node's"));
    assert_eq!((new.node, new.incarnation, &new.allowed_kinds), (old.node, old.incarnation, &old.allowed_kinds));
    assert_eq!(new.allowed_kinds.as_deref(), Some(&["test.bulk".to_owned()][..]));
    assert_ne!(new.key, old.key);
    machine.open(&site.authority, &replica).await.expect("the old one may enter");
    let mut link = renewed.open(&site.authority, &replica).await.expect("the new one may enter");
    // The renewed identity is as restricted as the first.
    let [other, allowed] = [site.fleet.kind(Lane::Control, &[]).await, site.fleet.kind(Lane::Bulk, &[]).await];
    let refused = site.enqueue(machine.node(), other).await;
    let accepted = site.enqueue(machine.node(), allowed).await;
    replica.tell_work(machine.node());
    assert_eq!(link.delivered().await.command_id, accepted.to_string());
    site.reaches(refused, "rejected").await;

    let listed = node_certificates::list(&mut *site.fleet.db().await, machine.node()).await.expect("a database");
    let fingerprints: Vec<_> = listed.iter().map(|it| it.fingerprint).collect();
    assert_eq!(fingerprints, [renewed.fingerprint, machine.fingerprint]);
    assert!(listed.iter().all(|it| it.revoked_at.is_none() && it.key.is_some()));
}

#[tokio::test]
async fn what_may_not_be_renewed_or_joined_says_why() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let p256 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
    let token = site.token(None, None).await;
    let refused = replica.client(&site.authority, None).join(request(&token, &p256)).await.expect_err("a refusal");
    let words = "JoinRequest.certificate_request: must be for an Ed25519 key";
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, words));
    Machine::join(&site.authority, &replica, &token).await.expect("the token is still good");

    let renew = async |machine: Option<&Machine>, certificate_request: Vec<u8>| {
        let mut client = replica.client(&site.authority, machine.map(|it| &it.identity));
        let refused = client.renew(v1::RenewRequest { certificate_request }).await.expect_err("a refusal");
        (refused.code(), refused.message().to_owned())
    };
    let (code, words) = renew(Some(&machine), request("", &p256).certificate_request).await;
    assert_eq!(code, Code::InvalidArgument);
    assert_eq!(words, "RenewRequest.certificate_request: must be for an Ed25519 key");
    assert_eq!(renew(Some(&machine), b"no request".to_vec()).await.0, Code::InvalidArgument);
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let good = request("", &key).certificate_request;
    assert_eq!(renew(None, good.clone()).await.0, Code::Unauthenticated, "nobody");

    // The life before the present one, and a revoked certificate.
    let token = site.token(Some(machine.node()), None).await;
    let reborn = Machine::join(&site.authority, &replica, &token).await.expect("it may join");
    let (code, words) = renew(Some(&machine), good.clone()).await;
    assert!(code == Code::Unauthenticated && words.ends_with("join again"), "{words}");
    revoke(&site, machine.node(), Some(reborn.fingerprint)).await;
    assert_eq!(renew(Some(&reborn), good).await.0, Code::Unauthenticated);
    let listed = node_certificates::list(&mut *site.fleet.db().await, machine.node()).await.expect("a database");
    assert!(listed.len() == 2 && listed.iter().all(|it| it.revoked_at.is_some()), "{listed:?}");
}

#[tokio::test]
async fn a_revocation_closes_the_session_on_whichever_replica_it_is_and_none_opens_again() {
    let site = Site::new().await;
    let (here, there) = (site.replica("one").await, site.replica("two").await);
    let machine = site.machine(&here).await;
    let bystander = site.machine(&there).await;
    let mut link = machine.open(&site.authority, &there).await.expect("it may enter");
    let mut other = bystander.open(&site.authority, &there).await.expect("it may enter");
    let kind = site.fleet.kind(Lane::Control, &[]).await;
    let id = site.enqueue(machine.node(), kind).await;
    there.tell_work(machine.node());
    link.delivered().await;
    revoke(&site, machine.node(), None).await;
    // Nobody was told yet, and what it says has no effect already.
    link.report(id, v1::Report::Succeeded).await;
    assert_eq!(link.end().await, Code::Aborted, "a report that has no effect has its session looked at");
    assert_eq!(site.state(id).await, "dispatched");
    assert!(!site.find(machine.node()).await.connected);
    for replica in [&here, &there] {
        let refused = machine.open(&site.authority, replica).await.err().expect("a refusal");
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert!(refused.message().contains("revoked") && refused.message().ends_with("join again"), "{refused}");
    }
    let token = site.token(Some(machine.node()), None).await;
    let reborn = Machine::join(&site.authority, &here, &token).await.expect("joining again helps");
    let mut link = reborn.open(&site.authority, &there).await.expect("it may enter");
    link.delivered().await;

    // Told by another replica.
    revoke(&site, machine.node(), Some(reborn.fingerprint)).await;
    here.bus.tell(Signal::Cancel { node: machine.node() });
    assert_eq!(link.end().await, Code::Aborted);
    let kept = site.enqueue(bystander.node(), kind).await;
    there.tell_work(bystander.node());
    assert_eq!(other.delivered().await.command_id, kept.to_string(), "others are not disturbed");
}

#[tokio::test]
async fn a_certificate_that_is_over_gets_no_further_than_tls() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let long_ago = OffsetDateTime::now_utc() - 2 * crate::pki::NODE_VALIDITY;
    let csr = request("", &key).certificate_request;
    let issued = site.authority.issue_node(&csr, machine.peer, None, [3; 16], long_ago).expect("issued");
    let over = Machine::with(machine.peer, &issued.der, &key);
    let refused = over.open(&site.authority, &replica).await.err().expect("a refusal");
    let words = format!("{refused:?}");
    assert!(words.contains("CertificateExpired"), "{words}");
}
