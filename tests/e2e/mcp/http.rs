//! Streamable HTTP: who may come, and as whom.

use bc_tests::cluster::operator::Operator;
use bc_tests::cluster::process::Process;
use bc_tests::cluster::{COUNT, Cluster, node::Node};
use reqwest::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder};
use serde_json::json;

use crate::admin;
use crate::agent::Agent;

/// Starts the server; answers where it is.
async fn serve(operator: &Operator, more: &[&str]) -> (Process, String) {
    let mut server = operator.start(&[&["mcp", "--http", "127.0.0.1:0"], more].concat());
    server.has_said("serves the Model Context Protocol at ").await;
    let said = server.said();
    let url = said.split_whitespace().find(|word| word.starts_with("http")).expect("it says where").to_owned();
    (server, url)
}

/// A request that any client may begin with.
fn hello(url: &str) -> RequestBuilder {
    let client = Client::builder().no_proxy().build().expect("a client");
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
    });
    client.post(url).header("accept", "application/json, text/event-stream").json(&initialize)
}

async fn status(request: RequestBuilder) -> u16 {
    request.send().await.expect("it answers").status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_over_http_are_made_as_whoever_sends_them() {
    let mut cluster = Cluster::start(1, 1).await;
    cluster.nodes[0].process().has_said("a session is open").await;
    let admin = admin(&cluster);
    let grant = ["--grant", "compute:nodes:read=*"];
    let create = ["token", "create", "--identity", "reader", "--label", "for a test", "-o", "name"];
    let reading = admin.say(&[&create[..], &grant].concat()).await;
    // The person who serves may do everything; it is not shared.
    let (_server, url) = serve(&admin, &[]).await;

    let none = Agent::on_http(&url, None).err().expect("it sends no token");
    assert!(none.contains("401") || none.contains("Unauthorized"), "{none}");
    let answer = hello(&url).send().await.expect("it answers");
    assert_eq!((answer.status().as_u16(), answer.headers()[WWW_AUTHENTICATE].to_str().ok()), (401, Some("Bearer")));
    assert_eq!(status(hello(&url).bearer_auth("bct_wrong")).await, 401);
    assert_eq!(status(hello(&url).header(AUTHORIZATION, "Basic eDp5")).await, 401);
    assert_eq!(status(hello(&url).bearer_auth(&reading)).await, 200);
    // Pages of web browsers, and names that point here from elsewhere.
    let token = cluster.api.token();
    assert_eq!(status(hello(&url).bearer_auth(token).header(ORIGIN, "https://evil.example")).await, 403);
    assert_eq!(status(hello(&url).bearer_auth(token).header(ORIGIN, "null")).await, 403);
    assert_eq!(status(hello(&url).bearer_auth(token).header(HOST, "evil.example")).await, 403);

    let mut reader = Agent::on_http(&url, Some(&reading)).expect("its token is good");
    assert_eq!(reader.tools().as_array().map(Vec::len), Some(8));
    assert!(reader.does("list_nodes", json!({})).text().starts_with("1 node(s), 1 of them connected."));
    let run = json!({ "nodeId": "node-0", "kind": COUNT.name, "payload": Node::counted(0, 200), "waitSeconds": 60 });
    let denied = reader.fails("exec_command", run.clone());
    assert_eq!(denied.word("/error/code"), "PERMISSION_DENIED");
    assert_eq!(denied.word("/error/details/permission"), "compute:nodes:exec");
    let mut runner = Agent::on_http(&url, Some(token)).expect("its token is good");
    runner.tools();
    let (told, remarks) = runner.does_in_view("exec_command", run);
    assert_eq!(told.word("/command/state"), "succeeded");
    assert!(!remarks.is_empty(), "progress comes over HTTP as well");
    assert_eq!(cluster.nodes[0].count(0), 1);

    // A token that is revoked stops working at once, also for whoever is known here.
    let tokens = admin.json(&["token", "list"]).await;
    let found = tokens.as_array().expect("a list").iter().find(|token| token["identity"] == "reader").cloned();
    admin.say(&["token", "revoke", found.expect("it is listed")["id"].as_str().expect("an id")]).await;
    assert_eq!(reader.fails("list_nodes", json!({})).word("/error/code"), "UNAUTHENTICATED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shared_only_when_the_operator_says_so_and_only_on_this_machine() {
    let cluster = Cluster::start(1, 0).await;
    let admin = admin(&cluster);
    let (_server, url) = serve(&admin, &["--share-token", "--allow-origin", "https://chat.example:443"]).await;
    let mut agent = Agent::on_http(&url, None).expect("the token is shared");
    assert!(agent.does("list_nodes", json!({})).text().starts_with("0 node(s)"));
    assert_eq!(status(hello(&url).header(ORIGIN, "https://chat.example")).await, 200);
    assert_eq!(status(hello(&url).header(ORIGIN, "https://evil.example")).await, 403);
    assert_eq!(status(hello(&url).bearer_auth("bct_wrong")).await, 401, "a bad token is not taken for none");

    admin.refused(&["mcp", "--http", "0.0.0.0:0", "--share-token"], "act as you").await;
    admin.refused(&["mcp", "--http", "0.0.0.0:0"], "--tls-cert").await;
    admin.refused(&["mcp", "--share-token"], "--http").await;
    // Elsewhere as well a token is needed, whatever the name that is asked for.
    let mut open = admin.start(&["mcp", "--http", "0.0.0.0:0", "--insecure-http"]);
    open.has_said("serves the Model Context Protocol at ").await;
    let said = open.said();
    let url = said.split_whitespace().find(|word| word.starts_with("http")).expect("it says where");
    let url = url.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(status(hello(&url)).await, 401);
    let named = hello(&url).header(HOST, "mcp.example").bearer_auth(cluster.api.token());
    assert_eq!(status(named).await, 200);
}
