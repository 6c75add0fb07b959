//! Streamable HTTP: who may come, and as whom their calls are made.
//!
//! Each request stands alone: there is no session that somebody else could take over, and nothing is kept between requests but clients
//! of the API by token.
//!
//! **Invariant:** a request without a token is refused, unless the operator shares this program's own, which only an address of this
//! machine's own can do; with a token, calls are made with that token and no other. A page of a web browser may send nothing unless its
//! origin was allowed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bc_host::tls::Https;
use bc_proto::canonical;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::PATIENCE;
use super::face::Face;
use crate::client::{CallError, Client, Target};
use crate::output;
use crate::server::stop;

/// Where clients find it.
const PATH: &str = "/mcp";

/// Callers that are remembered. Each is a pool of connections to the API.
const CALLERS: usize = 64;

/// What the operator decided.
#[derive(Debug)]
pub(super) struct Http {
    pub(super) address: SocketAddr,
    pub(super) share_token: bool,
    pub(super) origins: Vec<String>,
    pub(super) hosts: Vec<String>,
    pub(super) tls: Option<(PathBuf, PathBuf)>,
    pub(super) insecure: bool,
}

impl Http {
    /// Serves until a signal comes.
    pub(super) async fn serve(self, target: Target) -> anyhow::Result<()> {
        self.check(&target)?;
        let stop = stop::on_signals()?;
        let listener = TcpListener::bind(self.address).await;
        let listener = listener.with_context(|| format!("the MCP server cannot listen on {}", self.address))?;
        let address = listener.local_addr()?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let app = self.router(target, address, &stop)?;
        let stopped = stop.cancelled_owned();
        let said = format!("serves the Model Context Protocol at {scheme}://{address}{PATH}");
        match &self.tls {
            None => {
                output::complain(&said);
                axum::serve(listener, app).with_graceful_shutdown(stopped).await?;
            }
            Some(pair) => {
                let listener = Https::listen(listener, crate::server::acceptor(pair)?)?;
                output::complain(&said);
                axum::serve(listener, app).with_graceful_shutdown(stopped).await?;
            }
        }
        Ok(())
    }

    /// Refuses what would give somebody more than the operator meant.
    fn check(&self, target: &Target) -> anyhow::Result<()> {
        let is_own = self.address.ip().is_loopback();
        if self.share_token && !is_own {
            bail!(
                "--share-token lets whoever reaches {} act as you, and it can be reached from elsewhere; leave it out, so that each \
                 client sends its own token, or listen on 127.0.0.1",
                self.address
            );
        }
        if self.share_token && target.token.is_none() {
            bail!(
                "--share-token needs a token to share: give --token-file, BETTER_COMPUTE_TOKEN, or a context with one"
            );
        }
        if !is_own && self.tls.is_none() && !self.insecure {
            bail!(
                "{} can be reached from elsewhere, and tokens would travel without TLS; give --tls-cert and --tls-key, or say \
                 --insecure-http when a proxy in front of it speaks TLS",
                self.address
            );
        }
        Ok(())
    }

    fn router(&self, target: Target, address: SocketAddr, stop: &CancellationToken) -> anyhow::Result<Router> {
        let own = self.share_token.then(|| Client::new(target.clone(), PATIENCE)).transpose()?.map(Arc::new);
        let callers = Arc::new(Callers { target, own, known: Mutex::default() });
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_cancellation_token(stop.child_token())
            .with_allowed_origins(self.origins.clone())
            .enforce_origin_validation();
        let config = self.hosts(config, address);
        let sessions = Arc::new(NeverSessionManager::default());
        let service = StreamableHttpService::new(|| Ok(Face::of_each()), sessions, config);
        Ok(Router::new().route_service(PATH, service).layer(middleware::from_fn_with_state(callers, identified)))
    }

    /// A page of a browser can make its own name point here; the name that it asks for gives it away. Elsewhere a token is needed, which
    /// such a page does not have, and the names of the machine are the operator's affair.
    fn hosts(&self, config: StreamableHttpServerConfig, address: SocketAddr) -> StreamableHttpServerConfig {
        if self.hosts.is_empty() && !address.ip().is_loopback() {
            return config.disable_allowed_hosts();
        }
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        hosts.push(address.ip().to_string());
        hosts.extend(self.hosts.iter().cloned());
        config.with_allowed_hosts(hosts)
    }
}

/// Those who call, by the SHA-256 of their tokens.
#[derive(Debug)]
struct Callers {
    /// Where the API is. The token in it is used only where it is shared.
    target: Target,
    own: Option<Arc<Client>>,
    known: Mutex<HashMap<String, Arc<Client>>>,
}

impl Callers {
    /// The client of whoever sends this; a token that is new here has to be good.
    async fn of(&self, headers: &HeaderMap) -> Result<Arc<Client>, Refused> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return self.own.clone().ok_or(Refused::NoToken);
        };
        let token = bearer(value).ok_or(Refused::NoToken)?;
        let digest = canonical::sha256_hex(token.as_bytes());
        if let Some(known) = self.known().get(&digest) {
            return Ok(Arc::clone(known));
        }
        // A token has a tenant of its own.
        let target = Target { token: Some(token.to_owned()), tenant: None, ..self.target.clone() };
        let client = Arc::new(Client::new(target, PATIENCE).map_err(|_| Refused::NotNow)?);
        match client.whoami().await {
            Ok(_) => {}
            Err(error @ CallError::Refused(_)) if error.code() == Some("UNAUTHENTICATED") => {
                return Err(Refused::BadToken);
            }
            Err(_) => return Err(Refused::NotNow),
        }
        let mut known = self.known();
        if known.len() >= CALLERS {
            // Whoever comes again is known again after one call.
            known.clear();
        }
        known.insert(digest, Arc::clone(&client));
        Ok(client)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Client>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    NoToken,
    BadToken,
    NotNow,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, challenge, words) = match self {
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                Some("Bearer"),
                "send a token of better-compute: Authorization: Bearer bct_…; on this machine's own address an operator may start this with \
                 --share-token in its place\n",
            ),
            Self::BadToken => (
                StatusCode::UNAUTHORIZED,
                Some("Bearer error=\"invalid_token\""),
                "the token is unknown, expired or revoked; `better-compute token create` makes one\n",
            ),
            Self::NotNow => {
                (StatusCode::SERVICE_UNAVAILABLE, None, "the control plane is away; try again in a moment\n")
            }
        };
        let mut response = (status, words).into_response();
        if let Some(challenge) = challenge {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

/// The token of `Bearer <token>`; the scheme in any case, as HTTP has it.
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(char::is_whitespace))
        .then_some(token)
}

/// Lets in those who say who they are.
async fn identified(State(callers): State<Arc<Callers>>, mut request: Request, next: Next) -> Response {
    match callers.of(request.headers()).await {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(address: &str) -> Http {
        Http {
            address: address.parse().expect("an address"),
            share_token: false,
            origins: Vec::new(),
            hosts: Vec::new(),
            tls: None,
            insecure: false,
        }
    }

    fn target(token: Option<&str>) -> Target {
        Target { url: "http://127.0.0.1:1".into(), token: token.map(Into::into), tenant: None, ca_file: None }
    }

    #[test]
    fn nobody_from_elsewhere_acts_as_the_operator_or_sends_tokens_in_the_clear() {
        let why = |http: &Http, token| http.check(&target(token)).err().map(|error| error.to_string());
        assert_eq!(why(&http("127.0.0.1:0"), None), None);
        assert_eq!(why(&http("[::1]:0"), None), None);
        for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let plain = why(&http(open), None).expect(open);
            assert!(plain.contains("--tls-cert"), "{plain}");
            assert_eq!(why(&Http { insecure: true, ..http(open) }, None), None);
            let shared = why(&Http { insecure: true, share_token: true, ..http(open) }, Some("bct_1")).expect(open);
            assert!(shared.contains("act as you"), "{shared}");
        }
        let shared = Http { share_token: true, ..http("127.0.0.1:0") };
        assert_eq!(why(&shared, Some("bct_1")), None);
        assert!(why(&shared, None).is_some_and(|it| it.contains("--token-file")));
    }

    #[test]
    fn a_token_is_read_from_its_header_alone_and_whole() {
        let read = |value: &'static str| bearer(&HeaderValue::from_static(value)).map(str::to_owned);
        assert_eq!(read("Bearer bct_1").as_deref(), Some("bct_1"));
        assert_eq!(read("bearer  bct_1 ").as_deref(), Some("bct_1"));
        for wrong in ["", "Bearer", "Bearer ", "Basic bct_1", "bct_1", "Bearer a b"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn a_request_without_a_token_never_uses_the_programs_own_unless_it_is_shared() {
        let callers = |own| Callers { target: target(Some("bct_own")), own, known: Mutex::default() };
        assert_eq!(callers(None).of(&HeaderMap::new()).await.err(), Some(Refused::NoToken));
        let own = Arc::new(Client::new(target(Some("bct_own")), PATIENCE).expect("a client"));
        let shared = callers(Some(Arc::clone(&own))).of(&HeaderMap::new()).await.expect("it is shared");
        assert!(Arc::ptr_eq(&own, &shared));
        // A header that is no token is not taken for none.
        let mut basic = HeaderMap::new();
        basic.insert(header::AUTHORIZATION, HeaderValue::from_static("Basic eDp5"));
        assert_eq!(callers(Some(own)).of(&basic).await.err(), Some(Refused::NoToken));
    }
}
