//! What must be refused, with the API's own code.

use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::{COUNT, Cluster};
use sqlx::{Connection, PgConnection};

use crate::{admin, counted};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_foreign_unknown_or_expired_is_refused_with_its_code() {
    let cluster = Cluster::start(1, 1).await;
    let operator = admin(&cluster);
    let url = cluster.replicas[0].api_url();
    let payload = counted(0, 0);
    let run = ["run", COUNT.name, "--payload", &payload, "--node"];

    let large = format!(r#"{{"gpu":"GPU-{}"}}"#, "x".repeat(1 << 20));
    let large = format!("@{}", operator.file("large.json", large.as_bytes()));
    operator.refused(&["run", COUNT.name, "--node", "node-0", "--payload", &large], "TOO_LARGE").await;

    let unknown = "node_00000000000000000000000001";
    operator.refused(&[&run[..], &[unknown]].concat(), "NOT_FOUND").await;
    operator.refused(&["node", "get", unknown], "NOT_FOUND").await;

    // Neither by its own name for the tenant nor by the right one does another tenant reach this node.
    let stranger = Operator::new(&url, &cluster.another_tenant());
    let node = cluster.nodes[0].id.as_str();
    stranger.refused(&[&run[..], &[node]].concat(), "NOT_FOUND").await;
    stranger.refused(&[&run[..], &[node, "--tenant", cluster.api.tenant()]].concat(), "NOT_FOUND").await;
    assert_eq!(stranger.say(&["node", "list"]).await, "none");

    let token = operator.say(&["token", "create", "--identity", "brief", "--label", "l", "-o", "name"]).await;
    let brief = Operator::new(&url, &token);
    assert!(brief.say(&["whoami"]).await.contains("brief"));
    // A minute is the shortest life of a token, so the test moves its end.
    let mut database = PgConnection::connect(&cluster.database.url()).await.expect("the database runs");
    let changed = sqlx::query(
        "update api_tokens set expires_at = now() - interval '1 s' where identity_id in (select id from identities where name = 'brief')",
    );
    assert_eq!(changed.execute(&mut database).await.expect("SQL").rows_affected(), 1);
    brief.refused(&["whoami"], "UNAUTHENTICATED").await;
    Operator::new(&url, "no token").refused(&["whoami"], "token").await;
    Operator::new(&url, "bct_forged").refused(&["whoami"], "UNAUTHENTICATED").await;

    for (wrong, part) in [("--key=", "idempotencyKey"), ("--not-after=9s", "notAfterSeconds"), ("--batch=x", "batch")] {
        operator.refused(&[&run[..], &["node-0", wrong]].concat(), part).await;
    }
    operator.refused(&["run", COUNT.name, "--node", "node-0", "--payload", r#"{"gpu":7}"#], "/gpu").await;
    operator.refused(&["api", "commands.start"], "has no method").await;
    let queued = operator.json(&["commands", "list", "--node", "node-0"]).await;
    assert_eq!(queued, serde_json::json!([]), "nothing of all this was queued");
}
