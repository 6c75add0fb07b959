//! `better-compute doctor` and `bcd doctor`: a set-up that works is said to, and what was broken is named.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bc_tests::cluster::Cluster;
use bc_tests::cluster::operator::word;
use bc_tests::programs;
use serde_json::Value;

use crate::admin;

/// The level of a check in the findings, and what it says.
fn finding(said: &programs::Said, check: &str) -> (String, String) {
    let findings: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    let found = findings
        .as_array()
        .expect("a list")
        .iter()
        .find(|it| it["check"].as_str().is_some_and(|it| it.starts_with(check)));
    let found = found.unwrap_or_else(|| panic!("nothing is said of {check}: {said:?}"));
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(text("level") == "ok", text("remedy").is_empty(), "what is not well says what to do: {found}");
    (text("level"), text("found"))
}

fn level(said: &programs::Said, check: &str) -> String {
    finding(said, check).0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_works_is_said_to_and_what_is_broken_is_named() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let operator = admin(&cluster);
    let state = operator.path("state");
    fs::create_dir(&state).expect("a folder");
    for (name, text) in [("authority.key", "k"), ("authority.pem", "c")] {
        fs::write(state.join(name), text).expect("written");
        fs::set_permissions(state.join(name), fs::Permissions::from_mode(0o600)).expect("its owner may");
    }
    let settings = format!(
        "database-url = '{}'\nstate-dir = '{}'\ngateway-host = ['gw']\n",
        cluster.database.url(),
        state.display()
    );
    let config = operator.file("server.toml", settings.as_bytes());
    let doctor = ["doctor", "--json", "--server-config", &config];

    let well = operator.run(&doctor).await;
    assert_eq!(well.code, Some(0), "{well:?}");
    for check in [
        "server settings",
        "certificate authority",
        "database version",
        "database schema",
        "database clock",
        "server",
        "token",
        "clock",
        "nodes",
    ] {
        assert_eq!(level(&well, check), "ok", "{check}: {well:?}");
    }
    let said = operator.say(&["doctor"]).await;
    assert!(said.contains("ok    nodes: 1, all with a session"), "{said}");

    // One thing after the other.
    fs::set_permissions(state.join("authority.key"), fs::Permissions::from_mode(0o644)).expect("its owner may");
    let said = operator.run(&doctor).await;
    assert_eq!((said.code, level(&said, "certificate authority")), (Some(1), "fail".into()));
    fs::write(&config, "database-url = 'postgres:///x'\nstate-dirr = '/x'\n").expect("written");
    let said = operator.run(&doctor).await;
    assert!(said.code == Some(1) && finding(&said, "server settings").1.contains("state-dirr"), "{said:?}");
    cluster.nodes[0].process().kill();
    operator.file("token", b"bct_nobodys");
    let said = operator.run(&["doctor", "--json"]).await;
    assert_eq!((said.code, level(&said, "server"), level(&said, "token")), (Some(1), "ok".into(), "fail".into()));
    cluster.replicas[0].kill();
    let said = operator.run(&["doctor", "--json"]).await;
    assert_eq!((said.code, level(&said, "server")), (Some(1), "fail".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_works_is_said_to_and_what_is_broken_is_named() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let config = cluster.nodes[0].path("bcd.toml");
    let doctor = || {
        let mut bcd = programs::command("bcd");
        bcd.args(["doctor", "--json", "--config"]).arg(&config);
        programs::run(&mut bcd)
    };
    let well = doctor();
    for check in ["configuration", "identity", "certificate", "gateway https", "boot id", "journal's room"] {
        assert_ne!(level(&well, check), "fail", "{check}: {well:?}");
    }
    assert_eq!((level(&well, "identity"), level(&well, "gateway https")), ("ok".into(), "ok".into()), "{well:?}");

    cluster.replicas[0].kill();
    let said = doctor();
    assert_eq!((said.code, level(&said, "gateway https")), (Some(1), "fail".into()));
    let text = fs::read_to_string(&config).expect("it is there");
    fs::write(&config, format!("rolle = 'host'\n{text}")).expect("written");
    let said = doctor();
    assert!(said.code == Some(1) && finding(&said, "configuration").1.contains("rolle"), "{said:?}");
    let nowhere = cluster.folder().join("nowhere");
    fs::write(&config, format!("state-dir = '{}'\n", word(&nowhere))).expect("written");
    let said = doctor();
    assert_eq!(
        (said.code, level(&said, "identity"), level(&said, "state folder")),
        (Some(1), "fail".into(), "fail".into())
    );
}
