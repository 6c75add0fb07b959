//! The program itself: what it sends, prints and exits with.

use better_compute::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fake::{COMMAND, Fake, NODE, Said, Stream, better_compute, caller, command, node, refusal};

/// Answers as a server would whose command ends in this state.
fn ends_in(state: &'static str, change: Value) -> impl Fn(&str, &Value, usize) -> (u16, Value) + Send + Sync + 'static {
    move |method, _, _| match method {
        "tokens.whoami" => (200, caller()),
        "nodes.list" => (200, json!({ "items": [node("node_x", "gpu-1"), node(NODE, "gpu-17")] })),
        "commands.run" => (200, command("pending", json!({}))),
        "commands.get" => (200, command(state, change.clone())),
        other => (404, refusal("NOT_FOUND", json!({ "method": other }))),
    }
}

#[tokio::test]
async fn promise_10_every_outcome_has_its_exit_code() {
    let cases = [
        ("succeeded", 0, "", json!({ "result": { "greeting": "hello" } })),
        ("failed", 2, "guest-failure", json!({ "result": { "code": "gpu-busy", "message": "GPU 3 is used" } })),
        ("rejected", 3, "NO_SPACE", json!({})),
        ("expired", 5, "not_after", json!({})),
        ("cancelled", 6, "node-deleted", json!({})),
        ("paused", 8, "", json!({})),
    ];
    let mut text = String::new();
    for (state, code, reason, mut change) in cases {
        change["reason"] = json!(reason);
        let fake = Fake::start(Stream::Silent, ends_in(state, change)).await;
        let said = fake.run(&["run", "site.fans", "--node", "gpu-17", "--key", "k"]).await;
        assert_eq!(said.code, Some(code), "{state}: {said:?}");
        text += &format!("{state}\nout: {}\nerr: {}\n\n", said.out, said.err);
    }
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn a_command_is_sent_as_it_was_asked_for_and_its_key_is_told_before() {
    // The server never answers what it is asked to run, so all that is said was said before.
    let fake = Fake::start(Stream::Silent, |method, _, _| match method {
        "commands.run" => {
            (400, refusal("INVALID_INPUT", json!({ "problems": [{ "pointer": "/name", "rule": "is no text" }] })))
        }
        _ => ends_in("pending", json!({}))(method, &Value::Null, 0),
    })
    .await;
    let words =
        ["run", "site.fans", "--node", "gpu-17", "--payload", r#"{"a": 1}"#, "--set", "b.c=x", "--not-after", "2m"];
    let said = fake.run(&words).await;
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    let [call] = &fake.calls("commands.run")[..] else { panic!("sent once") };
    let key = call.body["idempotencyKey"].as_str().expect("a key");
    assert_eq!(said.err.lines().next(), Some(format!("key: {key}").as_str()));
    assert!(said.err.contains("INVALID_INPUT: the test says so\n  /name: is no text"), "{}", said.err);
    assert_eq!(
        call.body,
        json!({ "tenantId": "tenant_1", "nodeId": NODE, "kind": "site.fans", "payload": { "a": 1, "b": { "c": "x" } },
                "idempotencyKey": key, "notAfterSeconds": 120 })
    );
    assert_eq!(call.authorization, "Bearer bct_test");
}

#[tokio::test]
async fn a_send_that_may_have_arrived_is_an_unknown_outcome_with_the_key_to_repeat_it() {
    let fake = Fake::start(Stream::Silent, |method, _, _| match method {
        "commands.run" => (500, refusal("INTERNAL", Value::Null)),
        _ => ends_in("pending", json!({}))(method, &Value::Null, 0),
    })
    .await;
    let said = fake.run(&["run", "site.fans", "--node", NODE, "--key", "mine"]).await;
    assert_eq!(said.code, Some(8), "{said:?}");
    assert!(said.err.contains("repeat this with --key mine"), "{}", said.err);
}

#[tokio::test]
async fn who_does_not_wait_gets_the_queued_command_and_who_repeats_a_key_its_outcome() {
    let fake = Fake::start(Stream::Silent, ends_in("running", json!({}))).await;
    let said = fake.run(&["run", "site.fans", "--node", NODE, "--no-wait", "-o", "name"]).await;
    assert_eq!((said.code, said.out.trim()), (Some(0), COMMAND), "{said:?}");
    assert_eq!(fake.calls("commands.get"), []);

    let over = Fake::start(Stream::Silent, |method, _, _| match method {
        "commands.run" => (200, command("failed", json!({ "reason": "timeout" }))),
        _ => (200, caller()),
    })
    .await;
    let said = over.run(&["run", "site.fans", "--node", NODE, "--no-wait", "--json"]).await;
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((said.code, &document["state"]), (Some(2), &json!("failed")));
}

#[tokio::test]
async fn ctrl_c_tells_how_to_go_on_and_how_to_cancel_and_cancels_nothing() {
    let fake = Fake::start(Stream::Silent, ends_in("running", json!({}))).await;
    let child = fake.command(&["run", "site.fans", "--node", NODE, "--key", "k"]).spawn().expect("it starts");
    fake.called("commands.get").await;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it runs");
    kill_process(id, Signal::INT).expect("it is there");
    let said = Said::from(child.wait_with_output().await.expect("it ends"));
    assert_eq!((said.code, said.out.as_str()), (Some(130), ""), "{said:?}");
    for part in [format!("commands watch {COMMAND} --node {NODE}"), format!("commands cancel {COMMAND} --node {NODE}")]
    {
        assert!(said.err.contains(&part), "{part}: {}", said.err);
    }
    assert_eq!(fake.calls("commands.cancel"), []);
}

#[tokio::test]
async fn a_wait_that_times_out_exits_124() {
    let fake = Fake::start(Stream::Silent, ends_in("running", json!({}))).await;
    let said = fake.run(&["commands", "watch", COMMAND, "--node", NODE, "--wait-timeout", "10ms"]).await;
    assert_eq!(said.code, Some(124), "{said:?}");
}

#[tokio::test]
async fn lists_follow_their_pages() {
    let fake = Fake::start(Stream::Silent, |method, body, _| {
        if method == "tokens.whoami" {
            return (200, caller());
        }
        let page = body["cursor"].as_str().map_or(0, |cursor| cursor.parse::<u32>().expect("our cursor"));
        let items: Vec<_> = (0..3).map(|at| command("succeeded", json!({ "seq": page * 3 + at }))).collect();
        let mut answer = json!({ "items": items });
        if page < 2 {
            answer["nextCursor"] = json!((page + 1).to_string());
        }
        (200, answer)
    })
    .await;
    let list = async |limit: &str| {
        let words = ["commands", "list", "--node", NODE, "--limit", limit, "--state", "succeeded", "-o", "ndjson"];
        fake.run(&words).await.out.lines().count()
    };
    assert_eq!((list("0").await, list("5").await, list("2").await), (9, 5, 2));
    let calls = fake.calls("commands.list");
    let limits: Vec<_> = calls.iter().map(|call| call.body["limit"].as_u64()).collect();
    assert_eq!(limits, [Some(200), Some(200), Some(200), Some(5), Some(2), Some(2)]);
    assert!(calls.iter().all(|call| call.body["state"] == "succeeded"));
}

#[tokio::test]
async fn any_method_can_be_called_with_the_types_of_its_schema() {
    let fake = Fake::start(Stream::Silent, |method, body, _| match method {
        "openapi.json" => {
            let fields = json!({ "tenantId": { "type": "string" }, "notAfterSeconds": { "type": "integer" },
                                 "idempotencyKey": { "type": "string" }, "payload": {} });
            let schema = json!({ "required": ["tenantId"], "properties": fields });
            (
                200,
                json!({ "paths": { "/v1/commands.run": { "post": { "requestBody": { "content":
                { "application/json": { "schema": schema } } } } } } }),
            )
        }
        "tokens.whoami" => (200, caller()),
        _ => (200, json!({ "got": body })),
    })
    .await;
    let words = ["api", "commands.run", "idempotencyKey=0412", "notAfterSeconds=60", "payload:={\"a\":[1]}"];
    let said = fake.run(&words).await;
    let answer: Value = serde_json::from_str(&said.out).expect("JSON");
    let sent =
        json!({ "tenantId": "tenant_1", "idempotencyKey": "0412", "notAfterSeconds": 60, "payload": { "a": [1] } });
    assert_eq!((said.code, &answer["got"]), (Some(0), &sent), "{said:?}");
    assert_eq!(fake.run(&["api", "commands.start"]).await.code, Some(1));
}

#[tokio::test]
async fn completions_name_the_nodes_there_are_and_stay_silent_without_a_server() {
    let fake = Fake::start(Stream::Silent, ends_in("pending", json!({}))).await;
    let words = ["--", "better-compute", "run", "diag.nvml", "--node", "gpu-17"];
    let complete = |mut command: tokio::process::Command| {
        command.env("COMPLETE", "fish");
        Said::of(command)
    };
    let said = complete(fake.command(&words)).await;
    assert!(said.code == Some(0) && said.out.contains("gpu-17"), "{said:?}");
    let alone = complete(better_compute(&words)).await;
    assert_eq!((alone.code, alone.out.as_str(), alone.err.as_str()), (Some(0), "", ""));
}

#[tokio::test]
async fn a_node_that_is_not_there_and_a_server_that_is_not_named_are_said() {
    let fake = Fake::start(Stream::Silent, ends_in("pending", json!({}))).await;
    let said = fake.run(&["commands", "list", "--node", "gpu-99"]).await;
    assert!(said.code == Some(1) && said.err.contains("no node is called \"gpu-99\""), "{said:?}");
    let said = Said::of(better_compute(&["whoami"])).await;
    assert!(said.code == Some(1) && said.err.contains("no server is named"), "{said:?}");
    let said = fake.run(&["whoami"]).await;
    assert!(said.code == Some(0) && said.out.contains("compute:* on *"), "{said:?}");
}

/// Clients are shared between tasks.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Client>();
};
