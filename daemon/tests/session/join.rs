//! Joining.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bc_daemon::identity::{self, Unusable};
use bc_daemon::join::{Error, join};
use bc_proto::wire::v1;
use tonic::Code;

use crate::bench::{Bench, joining};
use crate::gateway::{Authority, node_id, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_becomes_a_node_once_and_again_only_when_it_is_told_so() {
    let bench = Bench::new();
    let gateway = bench.gateway().await;
    let joined = bench.join(&[&gateway]).await;
    assert_eq!((joined.node, joined.incarnation, joined.name.as_str()), (node_id(), 1, "node-1"));
    let request = gateway.desk().joins[0].clone();
    assert_eq!((request.role(), request.name.as_str()), (v1::Role::Host, "node-1"));
    for file in fs::read_dir(&joined.folder).expect("it is there") {
        let mode = file.expect("a file").metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let first = identity::read(&bench.state_dir()).expect("it reads").card;
    assert_eq!((first.node, first.gateways.as_slice()), (node_id(), [gateway.url()].as_slice()));

    let token = bench.authority.token("first");
    let mut again = joining(&[gateway.url()], &token, &bench.state_dir());
    let refused = soon(join(&again)).await.expect_err("it has joined");
    assert!(matches!(refused, Error::HasJoined { .. }) && refused.to_string().contains("--again"), "{refused}");
    assert_eq!(gateway.desk().joins.len(), 1, "nothing was sent");

    // A gateway that refuses leaves the identity as it was.
    again.again = true;
    again.token = Some(bench.authority.token("used"));
    let refused = soon(join(&again)).await.expect_err("the token is used up");
    assert!(matches!(refused, Error::Refused { code: Code::Unauthenticated, .. }), "{refused}");
    assert_eq!(identity::read(&bench.state_dir()).expect("it reads").card, first);

    let file = bench.path("token");
    fs::write(&file, token + "\n").expect("a file");
    (again.token, again.token_file) = (None, Some(file));
    assert_eq!(soon(join(&again)).await.expect("it joins again").incarnation, 3);
    assert_eq!(identity::read(&bench.state_dir()).expect("it reads").card.incarnation, 3);
    let left: Vec<_> = fs::read_dir(bench.state_dir()).expect("it is there").map(|entry| entry.expect("one")).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_of_another_authority_is_sent_no_token() {
    let bench = Bench::new();
    let gateway = bench.gateway().await;
    let token = Authority::new().token("secret");
    let refused = soon(join(&joining(&[gateway.url()], &token, &bench.state_dir()))).await.expect_err("it is another");
    assert!(matches!(refused, Error::WrongAuthority { .. }), "{refused}");
    assert!(gateway.desk().joins.is_empty());
    assert!(matches!(identity::read(&bench.state_dir()), Err(Unusable::Missing { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_away_is_passed_over_and_what_cannot_be_right_is_not_sent() {
    let bench = Bench::new();
    let gone = bench.gateway().await.url();
    let gateway = bench.gateway().await;
    let token = bench.authority.token("first");
    gateway.desk().token.clone_from(&token);
    let good = joining(&[gone.clone(), gateway.url()], &token, &bench.state_dir());
    for (token, name) in
        [("bcj_x", "node-1"), ("nonsense", "node-1"), (token.as_str(), "not a name"), (token.as_str(), "")]
    {
        let mut bad = good.clone();
        (bad.token, bad.name) = (Some(token.into()), Some(name.into()));
        let refused = soon(join(&bad)).await.expect_err("it is wrong");
        assert!(matches!(refused, Error::BadToken | Error::BadName(_)), "{refused}");
    }
    let nowhere = soon(join(&joining(&[gone], &token, &bench.state_dir()))).await.expect_err("it is gone");
    assert!(matches!(nowhere, Error::Unreachable(_)), "{nowhere}");
    assert!(gateway.desk().joins.is_empty());
    soon(join(&good)).await.expect("the second answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_identity_says_which_file_and_what_to_do() {
    let bench = Bench::new();
    let gateway = bench.gateway().await;
    let folder = bench.join(&[&gateway]).await.folder;
    for file in ["key.pem", "certificate.pem", "authority.pem", "node.json"] {
        let path = folder.join(file);
        let good = fs::read(&path).expect("it is there");
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        for bad in [bad, good[..good.len() - 1].to_vec()] {
            fs::write(&path, bad).expect("it is written");
            let damaged = identity::read(&bench.state_dir()).expect_err("it is damaged").to_string();
            assert!(damaged.contains(file) && damaged.contains("bcd join --again"), "{damaged}");
        }
        fs::write(&path, good).expect("it is written");
    }
    identity::read(&bench.state_dir()).expect("all is well");
    fs::remove_file(folder.join("SHA256SUMS")).expect("it was there");
    assert!(
        identity::read(&bench.state_dir()).expect_err("it is damaged").to_string().contains("SHA256SUMS is damaged")
    );
}
