//! Requests to other servers: BMCs and services of the site.
//!
//! **Invariant:** a request goes to the address that it names and nowhere else: no redirect is followed, no proxy is taken from the
//! environment, and no answer is larger than what was asked for.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use bc_proto::pattern::Pattern;
use bc_runtime::capability::http::{Body, Request, Response};
use bc_runtime::capability::{Answer, Error, Http};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Certificate, Client, Method, Url};
use serde::Deserialize;

use crate::authorities;

/// How long a connection may take: a BMC that is there answers within a second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of all headers of an answer, names and values.
const MAX_HEADERS_BYTES: usize = 32 * 1024;

/// `[http]` in `bcd.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// Certificates of the authorities that servers are believed by, PEM; none is those of this machine.
    pub ca_file: Option<PathBuf>,
    /// Servers whose certificate is not checked, as patterns over origins: BMCs that sign their own.
    pub insecure_origins: Vec<Pattern>,
}

/// Sends requests.
#[derive(Debug)]
pub struct Requests {
    checking: Client,
    trusting: Client,
    insecure_origins: Vec<Pattern>,
}

impl Requests {
    /// Makes the clients; nothing is sent yet.
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        // Fails only when somebody did it before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if !settings.insecure_origins.is_empty() {
            let origins: Vec<_> = settings.insecure_origins.iter().map(ToString::to_string).collect();
            tracing::warn!(?origins, "certificates of these servers are not checked (`http.insecure-origins`)");
        }
        let client = || {
            Client::builder()
                .user_agent(concat!("bcd/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT)
                // BMCs close connections when they like, and a request that changes something is not to be sent twice.
                .pool_max_idle_per_host(0)
                .retry(reqwest::retry::never())
                .http1_only()
        };
        let believed = settings.ca_file.as_deref().map(certificates).transpose()?;
        let checking = client().tls_certs_only(believed.unwrap_or_else(authorities::of_system));
        let trusting = client().tls_certs_only([]).tls_danger_accept_invalid_certs(true);
        Ok(Self {
            checking: checking.build().context("the HTTP client cannot be made")?,
            trusting: trusting.build().context("the HTTP client cannot be made")?,
            insecure_origins: settings.insecure_origins.clone(),
        })
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<Certificate>> {
    let pem = std::fs::read(file).with_context(|| format!("`http.ca-file` {} cannot be read", file.display()))?;
    Certificate::from_pem_bundle(&pem)
        .with_context(|| format!("`http.ca-file` {} holds no certificates in PEM", file.display()))
}

#[async_trait]
impl Http for Requests {
    async fn send(&self, request: Request) -> Answer<Response> {
        let malformed = |what: String| Error::new("request-malformed", what);
        let url = Url::parse(&request.url).map_err(|error| malformed(format!("{}: {error}", request.url)))?;
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|error| malformed(error.to_string()))?;
        let origin = url.origin().ascii_serialization();
        let is_insecure = self.insecure_origins.iter().any(|pattern| pattern.matches(&origin));
        let client = if is_insecure { &self.trusting } else { &self.checking };
        let mut asked = client.request(method, url).timeout(request.timeout);
        for (name, value) in &request.headers {
            asked = asked.header(name, value);
        }
        if let Some(credentials) = &request.credentials {
            let value = reqwest::header::HeaderValue::from_str(credentials.expose());
            let mut value = value.map_err(|_| malformed("the secret cannot stand in a header".into()))?;
            value.set_sensitive(true);
            asked = asked.header(AUTHORIZATION, value);
        }
        if !request.body.is_empty() {
            asked = asked.body(request.body);
        }
        let mut answer = asked.send().await.map_err(|error| failed(&error))?;
        let status = answer.status().as_u16();
        let headers = taken(answer.headers())?;
        let limit = request.max_response_bytes;
        let (mut body, mut truncated) = (Vec::new(), false);
        while let Some(chunk) = answer.chunk().await.map_err(|error| failed(&error))? {
            let room = limit - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            truncated = chunk.len() > room;
            if truncated {
                break;
            }
        }
        if truncated && !request.cut {
            return Err(Error::new("response-too-large", format!("the answer has more than {limit} bytes")));
        }
        Ok(Response { status, headers, body: Body::from_bytes(body), truncated, planned: false })
    }
}

fn taken(headers: &HeaderMap) -> Answer<Vec<(String, String)>> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > MAX_HEADERS_BYTES {
        let message = format!("the answer's headers have {bytes} bytes; at most {MAX_HEADERS_BYTES} are taken");
        return Err(Error::new("response-too-large", message));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect())
}

/// Whether the request can have reached the server is what counts: `connect` and `tls` say that it has not.
fn failed(error: &reqwest::Error) -> Error {
    let (mut words, mut is_tls) = (error.to_string(), false);
    let mut source = error.source();
    while let Some(cause) = source {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        is_tls |= cause.is::<rustls::Error>()
            || inner.is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
        let cause_words = cause.to_string();
        if !words.ends_with(&cause_words) {
            words = format!("{words}: {cause_words}");
        }
        source = cause.source();
    }
    let code = if is_tls {
        "tls"
    } else if error.is_connect() {
        "connect"
    } else if error.is_timeout() {
        "timeout"
    } else if error.is_body() || error.is_decode() {
        "cut-off"
    } else if error.is_builder() {
        "request-malformed"
    } else {
        "no-answer"
    };
    Error::new(code, words)
}
