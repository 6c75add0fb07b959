//! The HTTP API: one path a method, `POST /v1/<noun>.<verb>` with a JSON body; `events.watch` is a stream of server-sent events.
//!
//! **Invariant:** what a caller may not see does not exist for it: the answer is `NOT_FOUND`, the same as for what is unknown.

mod audit;
pub(crate) mod auth;
mod batches;
pub mod bootstrap;
mod bundles;
mod certificates;
mod command_list;
mod commands;
mod cursor;
pub mod error;
mod events;
mod extract;
mod health;
mod kinds;
mod nodes;
mod openapi;
mod outbox;
mod output;
mod quarantines;
mod releases;
mod remediations;
mod reservations;
mod rollouts;
mod runner_gateways;
mod runners;
mod specs;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;
pub mod types;
mod webhooks;
mod workflows;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::error::Failure;
use self::outbox::Outbox;
use self::types::Code;
use crate::bundles::Store;
use crate::bus::Bus;
use crate::metrics;
use crate::registry::Registry;
use crate::server::Config;
use crate::trust::Signer;
use crate::world::World;

/// How many items a page has where nothing is said.
const DEFAULT_PAGE: u32 = 100;

/// How long a method may take. Waiting for a connection of the pool counts: that is what bounds how many run at once.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long registering may take: the component is sent and compiled meanwhile.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(5);

/// What the API works with.
pub struct Parts {
    /// The database.
    pub pool: PgPool,
    /// Where wake-ups go, and where they come from.
    pub bus: Bus,
    /// What the operator decides.
    pub config: Config,
    /// The kinds that payloads are validated with.
    pub registry: Registry,
    /// SHA-256 of the node authority's certificate, DER: join tokens carry it.
    pub authority_sha256: [u8; 32],
    /// The clock, and randomness.
    pub world: World,
    /// Signs what nodes get.
    pub signer: Signer,
    /// Where support bundles are, if there is a store.
    pub bundles: Option<Store>,
    /// When streams end.
    pub stop: CancellationToken,
}

/// The API of one replica. Clones are handles to one.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    parts: Parts,
    outbox: Arc<Outbox>,
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

impl App {
    /// Nobody watches yet.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(Inner { parts, outbox: Arc::new(Outbox::new()) }))
    }

    /// A connection of the pool.
    pub(crate) async fn db(&self) -> Result<PoolConnection<Postgres>, Failure> {
        Ok(self.pool.acquire().await?)
    }

    /// The time now.
    pub(crate) fn now(&self) -> OffsetDateTime {
        self.world.now()
    }
}

/// All methods, and the document that describes them.
pub fn router(app: App) -> Router {
    Router::from(methods())
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(observed))
        .with_state(app)
}

fn methods() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(commands::run))
        .routes(routes!(commands::get))
        .routes(routes!(command_list::list))
        .routes(routes!(commands::cancel))
        .routes(routes!(output::read))
        .routes(routes!(runners::history))
        .routes(routes!(runner_gateways::set))
        .routes(routes!(runner_gateways::get))
        .routes(routes!(runner_gateways::allow))
        .routes(routes!(runner_gateways::disallow))
        .routes(routes!(batches::create))
        .routes(routes!(batches::get))
        .routes(routes!(batches::list))
        .routes(routes!(batches::approve))
        .routes(routes!(batches::reject))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(nodes::label_node))
        .routes(routes!(nodes::delete))
        .routes(routes!(quarantines::quarantine))
        .routes(routes!(quarantines::release))
        .routes(routes!(nodes::create_join_token))
        .routes(routes!(certificates::list))
        .routes(routes!(certificates::revoke))
        .routes(routes!(specs::set))
        .routes(routes!(specs::get))
        .routes(routes!(reservations::create))
        .routes(routes!(reservations::release))
        .routes(routes!(reservations::get))
        .routes(routes!(reservations::list))
        .routes(routes!(releases::push))
        .routes(routes!(releases::list))
        .routes(routes!(releases::get))
        .routes(routes!(rollouts::start))
        .routes(routes!(rollouts::list))
        .routes(routes!(rollouts::get))
        .routes(routes!(rollouts::pause))
        .routes(routes!(rollouts::resume))
        .routes(routes!(rollouts::cancel))
        .routes(routes!(remediations::list))
        .routes(routes!(remediations::clear))
        .routes(routes!(bundles::list))
        .routes(routes!(bundles::download))
        .routes(routes!(bundles::files))
        .routes(routes!(bundles::read))
        .routes(routes!(workflows::create))
        .routes(routes!(workflows::get))
        .routes(routes!(workflows::list))
        .routes(routes!(workflows::cancel))
        .routes(routes!(workflows::retry))
        .routes(routes!(kinds::register))
        .routes(routes!(kinds::activate))
        .routes(routes!(kinds::retire))
        .routes(routes!(kinds::list))
        .routes(routes!(kinds::get))
        .routes(routes!(tokens::create))
        .routes(routes!(tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::whoami))
        .routes(routes!(audit::head))
        .routes(routes!(audit::entries))
        .routes(routes!(audit::inclusion))
        .routes(routes!(audit::consistency))
        .routes(routes!(audit::receipt))
        .routes(routes!(events::watch))
        .routes(routes!(webhooks::create))
        .routes(routes!(webhooks::list))
        .routes(routes!(webhooks::get))
        .routes(routes!(webhooks::update))
        .routes(routes!(webhooks::delete))
        .routes(routes!(webhooks::rotate_secret))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(webhooks::redeliver))
        .routes(routes!(webhooks::test))
        .routes(routes!(openapi::document))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

async fn unknown_path(uri: Uri) -> Failure {
    Failure::new(Code::NotFound, format!("there is no method at {}; see /v1/openapi.json", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> Failure {
    Failure::field("method", format!("{} does not take {method}; see /v1/openapi.json", uri.path()))
}

/// Bounds a call's time and puts it into a span, which never holds what was sent.
async fn observed(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    // Only what is routed: a caller chooses the path.
    let method = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let began = Instant::now();
    // A file may stand at the end of a large bundle.
    let is_long = ["/v1/kinds.register", "/v1/releases.push", "/v1/bundles.read"].contains(&path);
    let limit = if is_long { UPLOAD_TIMEOUT } else { TIMEOUT };
    let empty = tracing::field::Empty;
    let span = tracing::info_span!("api", method = path, tenant = empty, command = empty, status = empty);
    async {
        let response = match tokio::time::timeout(limit, next.run(request)).await {
            Ok(response) => response,
            Err(_) => {
                Failure::new(Code::Unavailable, format!("it took longer than {} s", limit.as_secs())).into_response()
            }
        };
        metrics::answered(method.as_deref(), response.status(), began.elapsed());
        tracing::Span::current().record("status", response.status().as_u16());
        tracing::debug!("answered");
        response
    }
    .instrument(span)
    .await
}
