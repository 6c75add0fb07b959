//! Certificates that nobody should get, and sessions that nobody should open.
//!
//! **Invariant:** no attempt adds a certificate, a node or a life.

use super::*;

pub(super) async fn play() -> Table {
    let mut table = Table::new("Identities: Join, Renew and the opening of a session");
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let spent = site.token(None, None).await;
    Machine::join(&site.authority, &replica, &spent).await.expect("it may join");
    let lives = Lives::new(&site, &replica).await;
    let token = site.token(None, None).await;
    let [p256, ed25519] =
        [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ED25519].map(|it| KeyPair::generate_for(it).expect("a key"));
    let before = site.rows().await;
    let unknown = join_tokens::text(&uuid().to_string(), &Sha256::digest(site.authority.certificate_der()).into());
    let csr = |key| request("", key).certificate_request;
    let other =
        |request: v1::JoinRequest, bytes: &[u8]| v1::JoinRequest { certificate_request: bytes.into(), ..request };
    for (attempt, join) in [
        ("Join: a P-256 request", request(&token, &p256)),
        ("Join: no request at all", other(request(&token, &ed25519), b"no request")),
        ("Join: a request whose signature was changed", {
            let mut bytes = csr(&ed25519);
            *bytes.last_mut().expect("bytes") ^= 1;
            other(request(&token, &ed25519), &bytes)
        }),
        ("Join: a token that nobody made", request(&unknown, &ed25519)),
        ("Join: a token that was used", request(&spent, &ed25519)),
    ] {
        let refused = replica.client(&site.authority, None).join(join).await.expect_err(attempt);
        assert_eq!(site.rows().await, before, "IT COUNTED: {attempt}");
        table.row(attempt, refused.message(), NOTHING);
    }
    let present = Some(&lives.present);
    for (attempt, machine, certificate_request) in [
        ("Renew: a P-256 request", present, csr(&p256)),
        ("Renew: no request at all", present, b"no request".to_vec()),
        ("Renew: a certificate of the node's earlier life", Some(&lives.earlier), csr(&ed25519)),
        ("Renew: a revoked certificate", Some(&lives.revoked), csr(&ed25519)),
        ("Renew: no certificate", None, csr(&ed25519)),
    ] {
        let mut client = replica.client(&site.authority, machine.map(|it| &it.identity));
        let refused = client.renew(v1::RenewRequest { certificate_request }).await.expect_err(attempt);
        assert_eq!(site.rows().await, before, "IT COUNTED: {attempt}");
        table.row(attempt, refused.message(), NOTHING);
    }
    let named = |incarnation| Machine { peer: Peer { incarnation, ..lives.present.peer }, ..lives.present.clone() };
    for (attempt, machine) in [
        ("a session with a certificate of the node's earlier life", lives.earlier.clone()),
        ("a session with a revoked certificate", lives.revoked.clone()),
        ("a session that says hello as the node's earlier life", named(1)),
        ("a session that says hello as the node's next life", named(3)),
    ] {
        let refused = machine.open(&site.authority, &replica).await.err().expect(attempt);
        assert_eq!(site.rows().await, before, "IT COUNTED: {attempt}");
        table.row(attempt, refused.message(), NOTHING);
    }
    lives.present.open(&site.authority, &replica).await.expect("the true one may enter");
    Machine::join(&site.authority, &replica, &token).await.expect("the token is still good");
    table
}
