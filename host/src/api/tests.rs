//! The API on a real Postgres, through its router.

mod audit;
mod batches;
mod bundles;
pub(crate) mod cancel;
mod commands;
pub(crate) mod component;
mod events;
mod fields;
mod kinds;
mod nodes;
mod openapi;
mod permissions;
mod publishing;
mod remediations;
mod specs;
mod tokens;
mod webhooks;
mod workflows;

use std::sync::LazyLock;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode, header};
use bc_proto::id::NodeId;
use bc_runtime::Engine;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{App, Parts, auth, bootstrap, router};
use crate::bus::Bus;
use crate::registry::Registry;
use crate::server::Config;
use crate::testing::{Fleet, at};
use crate::world::World;

/// The largest payload here, bytes.
pub(crate) const MAX_PAYLOAD: usize = 4096;

/// One engine for all tests of the process: each has a thread of its own.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(&bc_runtime::Config::default()).expect("an engine"));

/// An API over a database of the test's own, at the time `at(100)`.
pub(crate) struct Api {
    pub(crate) fleet: Fleet,
    pub(crate) app: App,
    /// Of the tenant's admin.
    pub(crate) token: String,
}

/// What a call answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// The error's code; `ok` for none.
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("ok")
    }

    /// The error's code and message, as snapshots show them.
    pub(crate) fn words(&self) -> String {
        let message = self.body["error"]["message"].as_str().unwrap_or_default();
        format!("{} {} {message}", self.status.as_u16(), self.code())
    }

    /// What a call that must succeed answered.
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.body);
        self.body
    }
}

/// A world that stands still at a time, and whose randomness is one byte over and over.
fn fixed(byte: u8, seconds: i64) -> World {
    World::new(move || at(seconds), move |bytes| bytes.fill(byte))
}

impl Api {
    pub(crate) async fn new() -> Self {
        Self::trusting(crate::trust::Settings::default()).await
    }

    /// With settings of trust.
    pub(crate) async fn trusting(pki: crate::trust::Settings) -> Self {
        Self::with_settings(pki, None).await
    }

    /// With settings of trust and of webhooks.
    pub(crate) async fn with_settings(
        pki: crate::trust::Settings,
        webhooks: Option<crate::webhooks::Settings>,
    ) -> Self {
        let fleet = Fleet::new().await;
        let (tenant, token) = bootstrap::admin(&fleet.pool, "a tenant", &fixed(1, 0)).await.expect("a database");
        assert_eq!(tenant, fleet.tenant, "the tenant of that name");
        let config = Config {
            replica: "test".into(),
            gateway_url: "https://gateway.invalid:7000".into(),
            gateway_hosts: Vec::new(),
            max_payload_bytes: MAX_PAYLOAD,
            max_component_bytes: 1024 * 1024,
            drain: std::time::Duration::ZERO,
            cache_dir: std::path::PathBuf::new(),
            pki,
            serves_api: true,
            secrets_dir: None,
            bundles: None,
            remediation: None,
            webhooks,
        };
        let app = App::new(Parts {
            pool: fleet.pool.clone(),
            bus: Bus::local(),
            config,
            registry: Registry::new(ENGINE.clone()),
            authority_sha256: [0xab; 32],
            world: World::new(|| at(100), |bytes| getrandom::fill(bytes).expect("the kernel gives random bytes")),
            signer: crate::trust::Signer::none(),
            bundles: None,
            stop: CancellationToken::new(),
        });
        Self { fleet, app, token }
    }

    pub(crate) fn router(&self) -> Router {
        router(self.app.clone())
    }

    pub(crate) fn tenant(&self) -> String {
        self.fleet.tenant.to_string()
    }

    /// Calls a method as the admin.
    pub(crate) async fn call(&self, method: &str, body: Value) -> Answer {
        self.call_as(&self.token, method, body).await
    }

    /// Calls a method as whoever has a token.
    pub(crate) async fn call_as(&self, token: &str, method: &str, body: Value) -> Answer {
        self.send(post(&format!("/v1/{method}"), token, "application/json", body.to_string())).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        read(self.router().oneshot(request).await.expect("a router does not fail")).await
    }

    pub(crate) async fn register(&self, component: Vec<u8>, query: &str) -> Answer {
        let path = format!("/v1/kinds.register{query}");
        self.send(post(&path, &self.token, "application/wasm", component)).await
    }

    /// Registers a hand-made kind, active and exposed unless it is never.
    pub(crate) async fn kind(&self, name: &str) -> Value {
        let component = component::kind(&component::manifest(name, "1.0.0", ""));
        self.register(component, "?activate=true").await.ok();
        let exposed = format!("?activate=true&exposed={}", name != "gpu.reset");
        self.register(component::kind(&component::manifest(name, "1.0.0", "")), &exposed).await.ok()
    }

    /// Makes a token that may do so much.
    pub(crate) async fn token_with(&self, identity: &str, grants: &[(&str, &str)]) -> String {
        let grants: Vec<_> = grants.iter().map(|(p, r)| json!({ "permission": p, "resource": r })).collect();
        let ask = json!({ "tenantId": self.tenant(), "identity": identity, "label": "test", "grants": grants });
        let made = self.call("tokens.create", ask).await.ok();
        made["token"].as_str().expect("a token").to_owned()
    }

    /// The least that `commands.run` needs.
    pub(crate) fn ask(&self, node: &NodeId, kind: &str, key: &str) -> Value {
        json!({ "tenantId": self.tenant(), "nodeId": node.to_string(), "kind": kind, "idempotencyKey": key })
    }
}

pub(crate) fn post(path: &str, token: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path).header(header::CONTENT_TYPE, content_type);
    request.header(header::AUTHORIZATION, format!("Bearer {token}")).body(body.into()).expect("a request")
}

pub(crate) async fn read(response: Response<Body>) -> Answer {
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.expect("a whole body");
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("not JSON: {bytes:?}"));
    Answer { status, body }
}

/// With a change to some of its fields; `null` takes one away.
pub(crate) fn with(mut value: Value, change: Value) -> Value {
    let fields = value.as_object_mut().expect("an object");
    let Value::Object(change) = change else { panic!("a change is an object") };
    for (name, value) in change {
        if value.is_null() {
            fields.remove(&name)
        } else {
            fields.insert(name, value)
        };
    }
    value
}
