//! The pages, served beside the API: what it can do, for people with a browser.
//!
//! A page is a face over the API: it calls the API's methods within this process, as its visitor, so that every permission,
//! refusal and word is the API's. `serve` is the one door: headers, sessions and forged forms are its business, a page knows
//! its visitor.
//!
//! **Invariant:** a page does nothing that its visitor's token could not do through the API, and shows whatever a node, a kind or
//! a person wrote as text.

mod assets;
mod audit;
mod batches;
mod commands;
mod door;
mod events;
mod form;
mod headers;
mod home;
mod kinds;
mod live;
mod login;
mod nodes;
mod page;
mod query;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod visitor;

use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::response::Response;
use axum::routing::{get, post};
use tower::ServiceExt as _;

use crate::api::{self, App};

/// What the first part of a page's path is; all else is the API's.
const SECTIONS: [&str; 12] =
    ["", "static", "login", "logout", "live", "commands", "nodes", "batches", "kinds", "events", "audit", "settings"];

/// What pages work with. Clones are handles to one.
#[derive(Clone)]
pub(crate) struct Web {
    app: App,
    api: Router,
    pages: Router,
    /// Whether browsers reach it over TLS for certain.
    is_tls: bool,
}

/// The pages and the API.
pub fn router(app: App, is_tls: bool) -> Router {
    let web = Web { api: api::router(app.clone()), app, pages: pages(), is_tls };
    Router::new().fallback(move |request: Request| serve(web.clone(), request))
}

/// All pages.
fn pages() -> Router {
    Router::new()
        .route("/", get(home::show))
        .route("/live", get(live::watch))
        .route("/logout", post(login::end))
        .route("/settings", get(settings::show))
        .route("/settings/system/commands", get(settings::history))
        .merge(commands::routes())
        .merge(nodes::routes())
        .merge(batches::routes())
        .merge(kinds::routes())
        .merge(events::routes())
        .merge(audit::routes())
        .fallback(page::unknown)
        .method_not_allowed_fallback(page::wrong_method)
}

async fn serve(web: Web, request: Request) -> Response {
    if is_page(&request) {
        door::open(web, request).await
    } else {
        web.api.oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}

/// Whether a browser is to see an answer. What is no page's path and no method's is a page where HTML is asked for.
fn is_page(request: &Request) -> bool {
    let path = request.uri().path();
    let section = path[1.min(path.len())..].split('/').next().unwrap_or_default();
    let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_api = path.starts_with("/v1/") || ["/healthz", "/readyz", "/metrics"].contains(&path);
    SECTIONS.contains(&section) || (accepts.contains("text/html") && !is_api)
}
