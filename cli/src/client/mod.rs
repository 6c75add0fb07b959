//! The client of the HTTP API.
//!
//! **Invariant:** a call is repeated only where repeating it changes nothing: its method is idempotent, or the request never
//! left this machine.

mod error;
pub mod events;
mod target;

use std::fs;
use std::time::Duration;

use anyhow::Context;
use bc_host::api::types::{Caller, ErrorBody, Kind, Page, PushRelease, RegisterKind, Release};
use bc_proto::rules::backoff::Backoff;
use reqwest::{RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use error::{CallError, Refusal};
pub use target::{Connect, TOKEN_VARIABLE, Target};

use crate::shell;

/// Between attempts: 0.2 to 5 s.
const BACKOFF: Backoff = Backoff { min: Duration::from_millis(200), max: Duration::from_secs(5) };

/// How long one call may take before it counts as lost.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for sending a component, which can be large.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(5);

/// Most items that the API gives in one page.
const PAGE: u32 = 200;

/// Methods that make something new each time. All others can be repeated: `commands.run` by its key, the rest by nature.
pub const NOT_IDEMPOTENT: [&str; 7] = [
    "tokens.create",
    "nodes.createJoinToken",
    "nodes.delete",
    "webhooks.create",
    "webhooks.rotateSecret",
    "webhooks.test",
    "webhooks.delete",
];

/// How hard it is tried.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Attempts in all, at least 1.
    pub attempts: u32,
    /// How long one may take.
    pub timeout: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { attempts: 6, timeout: CALL_TIMEOUT }
    }
}

/// A connection to one API, as one caller.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    target: Target,
    tenant: OnceCell<String>,
    patience: Patience,
}

impl Client {
    /// Makes a client; nothing is sent yet.
    pub fn new(target: Target, patience: Patience) -> anyhow::Result<Self> {
        // Fails only when somebody did it before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("better-compute/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(5))
            .tcp_keepalive(Duration::from_secs(30))
            // A token must not follow a redirect to elsewhere, and the API has none.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(file) = &target.ca_file {
            let pem = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .with_context(|| format!("{} holds no certificates in PEM", file.display()))?;
            http = http.tls_certs_only(certificates);
        } else if target.url.starts_with("http://") {
            // Without TLS a machine needs no certificates of authorities.
            http = http.tls_certs_only([]);
        }
        let http = http.build().context("the HTTP client cannot be made")?;
        let tenant = OnceCell::new_with(target.tenant.clone());
        Ok(Self { http, target, tenant, patience })
    }

    /// The base URL.
    pub fn url(&self) -> &str {
        &self.target.url
    }

    /// The tenant: the one that was named, else the caller's own.
    pub async fn tenant(&self) -> Result<String, CallError> {
        self.tenant.get_or_try_init(async || Ok(self.whoami().await?.tenant_id)).await.cloned()
    }

    /// Who the token is for.
    pub async fn whoami(&self) -> Result<Caller, CallError> {
        self.call("tokens.whoami", &json!({})).await
    }

    /// Calls a method, `commands.get` for example.
    pub async fn call<R: DeserializeOwned>(
        &self,
        method: &str,
        body: &(impl Serialize + ?Sized),
    ) -> Result<R, CallError> {
        let url = format!("{}/v1/{method}", self.target.url);
        let request = || self.http.post(&url).timeout(self.patience.timeout).json(body);
        self.send(!NOT_IDEMPOTENT.contains(&method), request).await
    }

    /// All items of a list, or the first `limit` (0 for all). `body` is the request less `limit` and `cursor`.
    pub async fn pages<T: DeserializeOwned>(&self, method: &str, body: Value, limit: u32) -> Result<Vec<T>, CallError> {
        let wanted = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let mut body = body;
        let mut items: Vec<T> = Vec::new();
        loop {
            let rest = u32::try_from(wanted - items.len()).unwrap_or(u32::MAX);
            body["limit"] = json!(rest.min(PAGE));
            let page: Page<T> = self.call(method, &body).await?;
            items.extend(page.items);
            items.truncate(wanted);
            match page.next_cursor {
                Some(cursor) if items.len() < wanted => body["cursor"] = json!(cursor),
                _ => return Ok(items),
            }
        }
    }

    /// Registers a component.
    pub async fn register(&self, query: &RegisterKind, component: Vec<u8>) -> Result<Kind, CallError> {
        let url = format!("{}/v1/kinds.register", self.target.url);
        let request = || {
            let request = self.http.post(&url).timeout(UPLOAD_TIMEOUT).query(query);
            request.header(reqwest::header::CONTENT_TYPE, "application/wasm").body(component.clone())
        };
        self.send(true, request).await
    }

    /// Pushes a binary of the daemon.
    pub async fn push_release(&self, query: &PushRelease, file: Vec<u8>) -> Result<Release, CallError> {
        let url = format!("{}/v1/releases.push", self.target.url);
        let request = || {
            let request = self.http.post(&url).timeout(UPLOAD_TIMEOUT).query(query);
            request.header(reqwest::header::CONTENT_TYPE, "application/octet-stream").body(file.clone())
        };
        self.send(true, request).await
    }

    /// What a method answers as bytes, from its beginning or from a byte on; the answer to read, once. Any other attempt is the
    /// caller's: it knows how far it got.
    pub async fn open(
        &self,
        method: &str,
        query: &(impl Serialize + ?Sized),
        from: u64,
    ) -> Result<reqwest::Response, CallError> {
        let mut request = self.authorized(self.http.get(format!("{}/v1/{method}", self.target.url)).query(query));
        if from > 0 {
            request = request.header(reqwest::header::RANGE, format!("bytes={from}-"));
        }
        let answer = request.send().await.map_err(|source| self.unreachable(source))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.bytes().await.map_err(|source| self.unreachable(source))?;
        Err(self.refused(status, &body))
    }

    /// The server's time, milliseconds since the Unix epoch, to the second; `None` where it does not say.
    pub async fn server_time_ms(&self) -> Result<Option<u64>, CallError> {
        let request = self.http.get(format!("{}/healthz", self.target.url)).timeout(self.patience.timeout);
        let answer = request.send().await.map_err(|source| self.unreachable(source))?;
        let date = answer.headers().get(reqwest::header::DATE).and_then(|it| it.to_str().ok());
        let at = date.and_then(|it| httpdate::parse_http_date(it).ok());
        let since = at.and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
        Ok(since.and_then(|it| u64::try_from(it.as_millis()).ok()))
    }

    /// The API's own description.
    pub async fn openapi(&self) -> Result<Value, CallError> {
        let url = format!("{}/v1/openapi.json", self.target.url);
        self.send(true, || self.http.get(&url).timeout(self.patience.timeout)).await
    }

    /// A request for the stream of events; it has no timeout.
    fn watch(&self, query: &impl Serialize) -> RequestBuilder {
        self.authorized(self.http.get(format!("{}/v1/events.watch", self.target.url)).query(query))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.target.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send<R: DeserializeOwned>(
        &self,
        idempotent: bool,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<R, CallError> {
        let mut attempt = 0;
        // Once an attempt may have arrived, a later one that did not changes nothing about it.
        let mut arrived = false;
        loop {
            let mut error = match self.once(self.authorized(request())).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            arrived |= error.may_have_happened();
            if let CallError::Unreachable { sent, .. } = &mut error {
                *sent = arrived;
            }
            attempt += 1;
            let repeatable = error.is_transient() && (idempotent || !arrived);
            if !repeatable || attempt >= self.patience.attempts {
                return Err(error);
            }
            tokio::time::sleep(BACKOFF.wait(attempt - 1, shell::jitter())).await;
        }
    }

    async fn once<R: DeserializeOwned>(&self, request: RequestBuilder) -> Result<R, CallError> {
        let answer = request.send().await.map_err(|source| self.unreachable(source))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|source| self.unreachable(source))?;
        if status.is_success() {
            // `no content` reads as null.
            let bytes = if bytes.is_empty() { &b"null"[..] } else { &bytes[..] };
            return serde_json::from_slice(bytes).map_err(|error| self.foreign(status, &error.to_string()));
        }
        Err(self.refused(status, &bytes))
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> CallError {
        #[derive(serde::Deserialize)]
        struct Body {
            error: Refusal,
        }
        match serde_json::from_slice(body) {
            Ok(Body { error }) => CallError::Refused(error),
            Err(_) => self.foreign(status, "it is no error of the API"),
        }
    }

    fn foreign(&self, status: StatusCode, why: &str) -> CallError {
        CallError::Foreign { url: self.target.url.clone(), status: status.as_u16(), why: why.to_owned() }
    }

    /// How hard it is tried.
    pub(crate) const fn patience(&self) -> Patience {
        self.patience
    }

    pub(crate) fn unreachable(&self, source: reqwest::Error) -> CallError {
        CallError::Unreachable {
            url: self.target.url.clone(),
            sent: !source.is_connect(),
            source: source.without_url(),
        }
    }
}

/// [`Refusal`] reads what [`ErrorBody`] writes.
const _: fn(ErrorBody) -> Refusal =
    |body| Refusal { code: body.error.code.to_string(), message: body.error.message, details: body.error.details };
