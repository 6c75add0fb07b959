//! Tokens that may do something and not all.

use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::{COUNT, Cluster};

use crate::{admin, counted};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_does_what_its_grants_say_and_nothing_after_it_is_revoked() {
    let mut cluster = Cluster::start(1, 2).await;
    for node in &mut cluster.nodes {
        node.process().has_said("a session is open").await;
    }
    let admin = admin(&cluster);
    let on_first = format!("compute-node/{}", cluster.nodes[0].id);
    let made = async |identity: &str, grants: &[String]| {
        let mut words = vec!["token", "create", "--identity", identity, "--label", "for a test", "-o", "name"];
        words.extend(grants.iter().flat_map(|grant| ["--grant", grant.as_str()]));
        Operator::new(&cluster.replicas[0].api_url(), &admin.say(&words).await)
    };
    let reader = made("reader", &["compute:nodes:read=*".into()]).await;
    let grants = [format!("compute:nodes:read={on_first}"), format!("compute:nodes:exec={on_first}")];
    let runner = made("runner", &grants).await;

    assert_eq!(runner.say(&["node", "list", "-o", "name"]).await, "node-0");
    assert_eq!(reader.say(&["node", "list", "-o", "name"]).await, "node-0\nnode-1");
    let payload = counted(0, 0);
    let run = ["run", COUNT.name, "--payload", &payload, "--node"];
    runner.say(&[&run[..], &["node-0"]].concat()).await;
    let hidden = cluster.nodes[1].id.clone();
    // What one may not see is not there; what one may only see is denied, with the grant that is missing.
    runner.refused(&[&run[..], &[&hidden]].concat(), "NOT_FOUND").await;
    reader.refused(&[&run[..], &["node-0"]].concat(), "compute:nodes:exec").await;
    for words in [
        &["node", "label", "a=b", "--node", "node-0"][..],
        &["node", "delete", "node-0"],
        &["node", "create-join-token"],
        &["token", "list"],
        &["token", "create", "--identity", "more", "--label", "l", "--grant", "*=*"],
        &["events", "watch"],
    ] {
        runner.refused(words, "PERMISSION_DENIED").await;
    }
    runner.refused(&["kind", "retire", COUNT.name], "NOT_FOUND").await;
    assert_eq!(runner.say(&["kind", "list"]).await, "none");
    let me = runner.say(&["whoami"]).await;
    assert!(me.contains("runner") && me.contains("compute:nodes:exec on compute-node/"), "{me}");

    let tokens = admin.json(&["token", "list"]).await;
    let tokens = tokens.as_array().expect("a list");
    let found = tokens.iter().find(|token| token["identity"] == "runner").expect("it is listed");
    assert!(!tokens.iter().any(|token| token.to_string().contains("bct_")), "{tokens:?}");
    admin.say(&["token", "revoke", found["id"].as_str().expect("an id")]).await;
    runner.refused(&["whoami"], "UNAUTHENTICATED").await;
    assert!(reader.say(&["whoami"]).await.contains("reader"));
}
