//! The pages on a real Postgres, through their router, as a browser asks for them.

mod commands;
mod door;
mod fleet;
mod history;
mod run;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use tower::ServiceExt as _;

use super::router;
use crate::api::tests::Api;
use crate::api::{App, Parts};
use crate::testing::at;
use crate::world::World;

/// A browser, with its cookie, in front of a server whose clock the test sets.
pub(super) struct Browser {
    pub(super) api: Api,
    pub(super) router: Router,
    pub(super) cookie: Option<String>,
    clock: Arc<AtomicI64>,
}

/// What a browser got.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Seen {
    /// A hidden field's value.
    pub(super) fn hidden(&self, name: &str) -> &str {
        let start = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
        let (_, rest) = self.text.split_once(&start).unwrap_or_else(|| panic!("no field {name} in {}", self.text));
        rest.split('"').next().expect("a value")
    }

    /// Where it leads.
    pub(super) fn location(&self) -> &str {
        self.headers.get(header::LOCATION).and_then(|it| it.to_str().ok()).unwrap_or_default()
    }

    /// The page, which must be one.
    pub(super) fn ok(self) -> Self {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self
    }
}

impl Browser {
    pub(super) async fn new() -> Self {
        Self::with(Api::new().await, false)
    }

    pub(super) fn with(api: Api, is_tls: bool) -> Self {
        let parts: &Parts = &api.app;
        let clock = Arc::new(AtomicI64::new(100));
        let now = Arc::clone(&clock);
        let app = App::new(Parts {
            pool: parts.pool.clone(),
            bus: parts.bus.clone(),
            registry: parts.registry.clone(),
            authority_sha256: parts.authority_sha256,
            world: World::new(
                move || at(now.load(Ordering::Relaxed)),
                |bytes| getrandom::fill(bytes).expect("the kernel gives random bytes"),
            ),
            signer: parts.signer.clone(),
            bundles: parts.bundles.clone(),
            stop: parts.stop.clone(),
            config: parts.config.clone(),
        });
        let router = router(app.clone(), is_tls);
        Self { api: Api { app, ..api }, router, cookie: None, clock }
    }

    /// As the tenant's admin.
    pub(super) async fn logged_in() -> Self {
        let mut browser = Self::new().await;
        let token = browser.api.token.clone();
        browser.log_in(&token).await;
        browser
    }

    pub(super) async fn log_in(&mut self, token: &str) -> Seen {
        let seen = self.post("/login", &[("token", token), ("back", "/commands")]).await;
        assert_eq!((seen.status, seen.location()), (StatusCode::SEE_OTHER, "/commands"), "{}", seen.text);
        seen
    }

    /// Lets so many seconds pass.
    pub(super) fn pass(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(super) async fn get(&mut self, path: &str) -> Seen {
        self.send(Request::get(path).body(Body::empty()).expect("a request")).await
    }

    pub(super) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Seen {
        self.post_with(path, fields, &[("sec-fetch-site", "same-origin")]).await
    }

    pub(super) async fn post_with(&mut self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Seen {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body)).expect("a request")).await
    }

    /// Posts a form of the session's own, found on a page.
    pub(super) async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Seen {
        let csrf = self.get("/settings").await.ok().hidden("_csrf").to_owned();
        let fields: Vec<_> = fields.iter().copied().chain([("_csrf", csrf.as_str())]).collect();
        self.post(path, &fields).await
    }

    async fn send(&mut self, mut request: Request<Body>) -> Seen {
        if let Some(cookie) = &self.cookie {
            request.headers_mut().insert(header::COOKIE, cookie.parse().expect("a cookie"));
        }
        let response = self.router.clone().oneshot(request).await.expect("a router does not fail");
        let (parts, body) = response.into_parts();
        if let Some(set) = parts.headers.get(header::SET_COOKIE).and_then(|it| it.to_str().ok()) {
            let pair = set.split(';').next().expect("a pair").to_owned();
            self.cookie = Some(pair).filter(|pair| !pair.ends_with('='));
        }
        let bytes = to_bytes(body, usize::MAX).await.expect("a whole body");
        Seen { status: parts.status, headers: parts.headers, text: String::from_utf8_lossy(&bytes).into_owned() }
    }
}
