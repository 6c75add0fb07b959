//! An API that speaks TLS itself.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use bc_tests::cluster::database::Database;
use bc_tests::cluster::operator::{Operator, word};
use bc_tests::cluster::process::Process;
use bc_tests::programs;
use rcgen::{CertificateParams, KeyPair};

#[tokio::test(flavor = "multi_thread")]
async fn an_api_with_a_certificate_is_reached_by_who_trusts_it() {
    let folder = tempfile::Builder::new().prefix("bc-").permissions(Permissions::from_mode(0o711)).tempdir();
    let folder = folder.expect("a temporary folder");
    let database = Database::start(&folder.path().join("pg"));
    let path = |name: &str| word(&folder.path().join(name));
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name").self_signed(&key);
    std::fs::write(path("api.pem"), certificate.expect("a certificate").pem()).expect("written");
    std::fs::write(path("api.key"), key.serialize_pem()).expect("written");
    let mut init = programs::command("better-compute");
    init.args(["server", "init-admin", "--tenant", "test", "--database-url", &database.url()]);
    let token = programs::run(&mut init).out.trim().to_owned();

    let server = |rest: &[&str]| {
        let mut server = programs::command("better-compute");
        server.args(["server", "--database-url", &database.url(), "--state-dir", &path("state"), "--drain", "1s"]);
        server.args(["--api-listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0", "--gateway-host", "gw.example"]);
        server.args(["--gateway-host", "127.0.0.1"]).args(rest).env("RUST_LOG", "info");
        server
    };
    // Half of a pair, or one that does not fit, serves nothing.
    for (rest, why) in [
        (&["--api-tls-cert", &path("api.pem")][..], "go together"),
        (&["--api-tls-cert", &path("api.pem"), "--api-tls-key", &path("api.pem")], "are of no use"),
    ] {
        let said = programs::run(&mut server(rest));
        assert!(said.code == Some(1) && said.err.contains(why), "{said:?}");
    }
    let mut serving = server(&["--api-tls-cert", &path("api.pem"), "--api-tls-key", &path("api.key")]);
    let mut replica = Process::start("server", &mut serving);
    replica.has_said("the control plane serves").await;
    let said = replica.said();
    let address = said.split_once("api=").and_then(|(_, rest)| rest.split_whitespace().next()).expect("it says where");

    let operator = Operator::new(&format!("https://{address}"), &token);
    let me = operator.say(&["whoami", "--ca-file", &path("api.pem")]).await;
    assert!(me.contains("admin"), "{me}");
    operator.refused(&["whoami"], "certificate").await;
    let plain = operator.path("token");
    let words = ["whoami", "--url", &format!("http://{address}"), "--token-file", &word(&plain)];
    assert_eq!(operator.run(&words).await.code, Some(1));
    // What join tokens name is the first host.
    let made = operator.json(&["node", "create-join-token", "--ca-file", &path("api.pem")]).await;
    assert!(made["gatewayUrl"].as_str().is_some_and(|url| url.starts_with("https://gw.example:")), "{made}");
    assert_eq!(replica.stop().await.code(), Some(0), "{}", replica.said());
}
