//! An API that says what a test wants, on loopback, and records what it was asked.
//!
//! **Invariant:** it answers at once or not at all; a test decides which.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use better_compute::client::{Client, Patience, Target};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::watch;

/// What became of the stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// It is open and says nothing.
    Silent,
    /// It is refused.
    Refused,
    /// It is cut as soon as it is open.
    Cut,
}

/// A call that was made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) body: Value,
    pub(crate) authorization: String,
}

type Answer = dyn Fn(&str, &Value, usize) -> (u16, Value) + Send + Sync;

struct Inner {
    answer: Box<Answer>,
    stream: Stream,
    calls: Mutex<Vec<Call>>,
    made: watch::Sender<usize>,
}

/// The server. It goes away with this value.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Fake {
    /// Starts it. `answer` gets method, body, and how often that method was called before.
    pub(crate) async fn start(
        stream: Stream,
        answer: impl Fn(&str, &Value, usize) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        let inner = Inner { answer: Box::new(answer), stream, calls: Mutex::default(), made: watch::channel(0).0 };
        let inner = Arc::new(inner);
        let router = Router::new()
            .route("/v1/events.watch", get(events))
            .route("/v1/openapi.json", get(openapi))
            .route("/v1/{method}", post(call))
            .with_state(Arc::clone(&inner));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { address, inner, server }
    }

    /// What was asked, in order; of one method.
    pub(crate) fn calls(&self, method: &str) -> Vec<Call> {
        let calls = self.inner.calls.lock().expect("no panic");
        calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    /// Waits until a method was called.
    pub(crate) async fn called(&self, method: &str) {
        let mut made = self.inner.made.subscribe();
        while self.calls(method).is_empty() {
            made.changed().await.expect("the server is there");
        }
    }

    /// A client of it that gives up at once.
    pub(crate) fn client(&self) -> Arc<Client> {
        self.patient(1)
    }

    /// A client that tries so often.
    pub(crate) fn patient(&self, attempts: u32) -> Arc<Client> {
        let target = Target {
            url: format!("http://{}", self.address),
            token: Some("bct_test".into()),
            tenant: Some("tenant_1".into()),
            ca_file: None,
        };
        Arc::new(Client::new(target, Patience { attempts, ..Patience::default() }).expect("a client"))
    }

    /// The program, pointed at this server and at nothing of this machine's user.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = better_compute(words);
        command.env("BETTER_COMPUTE_URL", format!("http://{}", self.address)).env("BETTER_COMPUTE_TOKEN", "bct_test");
        command
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self, words: &[&str]) -> Said {
        Said::of(self.command(words)).await
    }
}

/// The program without anything of this machine's user.
pub(crate) fn better_compute(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_better-compute"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("BETTER_COMPUTE_")) {
        command.env_remove(variable);
    }
    command.env("BETTER_COMPUTE_CONFIG", "/nonexistent/config.toml").env("COLUMNS", "100").env_remove("RUST_LOG");
    command
}

/// What the program said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) async fn of(mut command: Command) -> Self {
        Self::from(command.output().await.expect("the program starts"))
    }
}

impl From<std::process::Output> for Said {
    fn from(output: std::process::Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

async fn call(
    State(inner): State<Arc<Inner>>,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let authorization = headers.get("authorization").and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    let before = {
        let mut calls = inner.calls.lock().expect("no panic");
        let before = calls.iter().filter(|call| call.method == method).count();
        calls.push(Call { method: method.clone(), body: body.clone(), authorization });
        before
    };
    let (status, answer) = (inner.answer)(&method, &body, before);
    inner.made.send_modify(|made| *made += 1);
    (StatusCode::from_u16(status).expect("a status"), axum::Json(answer)).into_response()
}

async fn events(State(inner): State<Arc<Inner>>) -> Response {
    let open = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
    let body = match inner.stream {
        Stream::Refused => {
            return (StatusCode::FORBIDDEN, axum::Json(refusal("PERMISSION_DENIED", Value::Null))).into_response();
        }
        Stream::Silent => Body::from_stream(open),
        Stream::Cut => Body::from_stream(open.take(0)),
    };
    ([("content-type", "text/event-stream")], body).into_response()
}

async fn openapi(State(inner): State<Arc<Inner>>) -> Response {
    let (status, answer) = (inner.answer)("openapi.json", &Value::Null, 0);
    (StatusCode::from_u16(status).expect("a status"), axum::Json(answer)).into_response()
}

/// An error as the API writes it.
pub(crate) fn refusal(code: &str, details: Value) -> Value {
    let mut document = json!({ "error": { "code": code, "message": "the test says so" } });
    document["error"]["details"] = details;
    document
}

/// The id of the node that tests speak of.
pub(crate) const NODE: &str = "node_00000000000000000000000001";
/// The id of the command that tests speak of.
pub(crate) const COMMAND: &str = "cmd_00000000000000000000000002";

/// A command in a state, with other fields changed.
pub(crate) fn command(state: &str, change: Value) -> Value {
    let change: BTreeMap<String, Value> = serde_json::from_value(change).expect("an object");
    let mut document = json!({
        "id": COMMAND, "tenantId": "tenant_1", "nodeId": NODE, "seq": 7, "kind": "site.fans", "kindDigest": "ab",
        "lane": "control", "state": state, "reason": "", "payload": {}, "idempotencyKey": "api:1", "retrySafe": true,
        "destructive": false, "notAfter": "2026-01-01T00:10:00Z", "createdAt": "2026-01-01T00:00:00Z",
    });
    for (key, value) in change {
        document[key] = value;
    }
    document
}

/// A node.
pub(crate) fn node(id: &str, name: &str) -> Value {
    json!({
        "id": id, "tenantId": "tenant_1", "name": name, "labels": {}, "role": "host", "incarnation": 1, "connected": true,
        "sessionEpoch": 1, "createdAt": "2026-01-01T00:00:00Z",
    })
}

/// Who the token is for.
pub(crate) fn caller() -> Value {
    json!({ "tenantId": "tenant_1", "tenant": "dev", "identity": "admin",
            "grants": [{ "permission": "compute:*", "resource": "*" }] })
}
