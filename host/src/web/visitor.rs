//! Who looks at a page, and what they can have of the API.
//!
//! **Invariant:** a visitor exists only where a session counts; its calls are the API's, made as the holder of its token.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;

use super::Web;
use super::page::Fault;
use crate::api::App;
use crate::api::auth::Caller;
use crate::api::error::Failure;
use crate::api::types::{Code, ErrorBody};

/// The visitor of a page.
#[derive(Clone)]
pub(crate) struct Visitor {
    web: Web,
    caller: Caller,
    csrf: String,
    again: Option<Again>,
}

/// That a page is shown in place of what was asked for.
#[derive(Clone)]
pub(super) struct Again {
    /// Why, for the visitor.
    pub(super) notice: &'static str,
    /// The page's address, which the browser does not have.
    pub(super) address: String,
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let visitor = parts.extensions.get::<Self>().cloned();
        visitor.ok_or_else(|| Fault(Failure::new(Code::Unauthenticated, "log in first")))
    }
}

impl Visitor {
    /// The holder of a token, with what their forms prove themselves with.
    pub(super) fn new(web: Web, caller: Caller, csrf: String) -> Self {
        Self { web, caller, csrf, again: None }
    }

    /// The same, to whom a page is shown that they did not ask for.
    pub(super) fn again(&self, again: Again) -> Self {
        Self { again: Some(again), ..self.clone() }
    }

    /// Why they see this page, and its address.
    pub(super) fn shown_again(&self) -> Option<&Again> {
        self.again.as_ref()
    }

    /// What the control plane works with: for the time and for the place in the events. All else is asked of the API.
    pub(crate) fn app(&self) -> &App {
        &self.web.app
    }

    /// All pages, to show another one.
    pub(super) fn pages(&self) -> Router {
        self.web.pages.clone()
    }

    /// `tenant_…`
    pub(crate) fn tenant(&self) -> String {
        self.caller.holder.tenant.to_string()
    }

    /// The tenant's name.
    pub(crate) fn tenant_name(&self) -> &str {
        &self.caller.holder.tenant_name
    }

    /// The identity's name.
    pub(crate) fn name(&self) -> &str {
        &self.caller.holder.name
    }

    /// What its forms carry as `_csrf`.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }

    /// Whether the API would allow this, so that a page offers only what can be done.
    pub(crate) fn may(&self, permission: &str, resource: &str) -> bool {
        self.caller.may(permission, resource)
    }

    /// Whether the API would allow this of anything at all.
    pub(crate) fn may_somewhere(&self, permission: &str) -> bool {
        self.caller.somewhere(permission).is_ok()
    }

    /// The API's refusal where it would allow this of nothing.
    pub(crate) fn must_somewhere(&self, permission: &str) -> Result<(), Failure> {
        self.caller.somewhere(permission)
    }

    /// The API's refusal where it would not allow this of the tenant.
    pub(crate) fn must_on_tenant(&self, permission: &str) -> Result<(), Failure> {
        self.caller.on_tenant(permission, self.caller.holder.tenant)
    }

    /// Calls a method of the API: `visitor.call("nodes.list", &json!({ "tenantId": visitor.tenant() }))`.
    pub(crate) async fn call<T: DeserializeOwned>(&self, method: &str, ask: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(ask).map_err(|error| Failure::internal(&error))?;
        let request = Request::post(format!("/v1/{method}")).header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body)).map_err(|error| Failure::internal(&error))?;
        let response = self.send(request).await;
        let is_ok = response.status().is_success();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.map_err(|error| Failure::internal(&error))?;
        if is_ok {
            return serde_json::from_slice(&bytes).map_err(|error| Failure::internal(&error));
        }
        let body: ErrorBody = serde_json::from_slice(&bytes).map_err(|error| Failure::internal(&error))?;
        Err(Failure(body.error))
    }

    /// Sends any request to the API as the visitor, for what answers no JSON.
    pub(crate) async fn send(&self, mut request: Request) -> Response {
        request.extensions_mut().insert(self.caller.clone());
        self.web.api.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}
