//! The control plane's API as a client sees it that survives replicas.
//!
//! **Invariant:** a call is repeated only where nothing can happen twice: reads, and runs by their idempotency key.

use std::sync::atomic::{AtomicUsize, Ordering};

use bc_host::api::types::{ApiError, Caller, Code, Command, ErrorBody, JoinToken, Node};
use eventsource_stream::Eventsource;
use futures_util::StreamExt;
use reqwest::{Client, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{PACE, PATIENCE};

/// A client with a token that may do everything.
pub struct Api {
    client: Client,
    urls: Vec<String>,
    /// Which replica is asked first: the one that answered last.
    next: AtomicUsize,
    token: String,
    tenant: String,
}

impl Api {
    pub(super) async fn new(urls: Vec<String>, token: String) -> Self {
        // Every binary of the tree brings the same provider; one that is installed already stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().expect("a client");
        let mut api = Self { client, urls, next: AtomicUsize::new(0), token, tenant: String::new() };
        api.tenant = api.call::<Caller>("tokens.whoami", json!({})).await.tenant_id;
        api
    }

    /// Calls a method, at whichever replica answers. It may be carried out more than once.
    ///
    /// # Panics
    /// When it is refused, or nobody answers in time.
    pub async fn call<T: DeserializeOwned>(&self, method: &str, body: Value) -> T {
        self.ask(method, body).await.unwrap_or_else(|error| panic!("{method}: {error:?}"))
    }

    /// As [`Api::call`]; a refusal is an answer.
    ///
    /// # Panics
    /// When nobody answers in time.
    pub async fn ask<T: DeserializeOwned>(&self, method: &str, mut body: Value) -> Result<T, ApiError> {
        if !self.tenant.is_empty() && method != "tokens.whoami" {
            body["tenantId"] = json!(self.tenant);
        }
        let answered = tokio::time::timeout(PATIENCE, async {
            loop {
                match self.once(method, &body).await {
                    Ok(answer) => return answer,
                    Err(_) => self.wait().await,
                }
            }
        });
        let answer = answered.await.unwrap_or_else(|_| panic!("nobody answers {method}"));
        answer.map(|text| serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{method} answers {error}")))
    }

    /// The answer of one replica; an error where another try may help.
    async fn once(&self, method: &str, body: &Value) -> Result<Result<Vec<u8>, ApiError>, reqwest::Error> {
        let url = format!("{}/v1/{method}", self.url());
        let response = self.client.post(url).bearer_auth(&self.token).json(body).send().await?;
        let status = response.status();
        let text = response.bytes().await?.to_vec();
        if status.is_success() {
            return Ok(Ok(text));
        }
        let refused: ErrorBody = serde_json::from_slice(&text)
            .unwrap_or_else(|_| panic!("{method} answers {status}: {}", String::from_utf8_lossy(&text)));
        if refused.error.code == Code::Unavailable {
            self.wait().await;
            return Box::pin(self.once(method, body)).await;
        }
        Ok(Err(refused.error))
    }

    fn url(&self) -> &str {
        &self.urls[self.next.load(Ordering::Relaxed) % self.urls.len()]
    }

    /// The one that was asked is down: the next try goes to another. A moment passes between, since nobody tells when it is up.
    async fn wait(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PACE).await;
    }

    /// Registers a component, active and exposed.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn register(&self, component: Vec<u8>) {
        let url = format!("{}/v1/kinds.register", self.url());
        let request = self.client.post(url).query(&[("activate", "true"), ("exposed", "true")]);
        let request = request.bearer_auth(&self.token).header("content-type", "application/wasm").body(component);
        let response = request.send().await.expect("a replica runs");
        assert!(response.status().is_success(), "{}", response.text().await.unwrap_or_default());
    }

    /// A join token, for a new node or for the next life of one.
    pub async fn join_token(&self, node: Option<&str>) -> String {
        let body = node.map_or(json!({}), |node| json!({ "nodeId": node }));
        self.call::<JoinToken>("nodes.createJoinToken", body).await.token
    }

    /// A node.
    pub async fn node(&self, node: &str) -> Node {
        self.call("nodes.get", json!({ "nodeId": node })).await
    }

    /// Queues a command. The same key is the same command.
    pub async fn run(&self, node: &str, kind: &str, key: &str, payload: Value) -> Command {
        self.run_for(node, kind, key, payload, 600).await
    }

    /// Queues a command that may wait so long.
    pub async fn run_for(&self, node: &str, kind: &str, key: &str, payload: Value, seconds: u32) -> Command {
        let body = json!({
            "nodeId": node, "kind": kind, "idempotencyKey": key, "payload": payload, "notAfterSeconds": seconds,
        });
        self.call("commands.run", body).await
    }

    /// Where a command stands.
    pub async fn get(&self, command: &Command) -> Command {
        self.call("commands.get", json!({ "nodeId": command.node_id, "commandId": command.id })).await
    }

    /// Calls a command off.
    pub async fn cancel(&self, command: &Command) -> Command {
        self.call("commands.cancel", json!({ "nodeId": command.node_id, "commandId": command.id })).await
    }

    /// Returns a command when it is over. Follows its events, over the deaths of replicas.
    ///
    /// # Panics
    /// When it takes too long.
    pub async fn settled(&self, command: &Command) -> Command {
        let settled = tokio::time::timeout(PATIENCE, async {
            loop {
                let found = self.get(command).await;
                if found.settled_at.is_some() {
                    return found;
                }
                match self.watch(command).await {
                    Ok(events) => is_settled(events).await,
                    Err(_) => self.wait().await,
                }
            }
        });
        let Ok(settled) = settled.await else { panic!("it is not over in time: {:?}", self.get(command).await) };
        settled
    }

    async fn watch(&self, command: &Command) -> reqwest::Result<Response> {
        let url = format!("{}/v1/events.watch", self.url());
        let query = [("tenantId", self.tenant.as_str()), ("commandId", &command.id), ("after", "0")];
        self.client.get(url).query(&query).bearer_auth(&self.token).send().await?.error_for_status()
    }
}

/// Returns when the stream tells of the end, or ends itself.
async fn is_settled(events: Response) {
    let mut events = events.bytes_stream().eventsource();
    while let Some(Ok(event)) = events.next().await {
        if event.event == "command.settled" {
            return;
        }
    }
}
