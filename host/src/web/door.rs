//! The one door to all pages: it lets in who has a session, and forms that were made for that session.
//!
//! **Invariant:** nothing that changes anything is reached by a request from another site, or by a form that this session was not
//! given; what was typed into a form comes back with the login that it met.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use tower::ServiceExt as _;

use super::form::{self, Form, Kept};
use super::page::{self, Fault};
use super::visitor::{Again, Visitor};
use super::{Web, assets, headers, login, session};
use crate::api::error::Failure;
use crate::api::types::Code;

/// Answers one request for a page.
pub(super) async fn open(web: Web, request: Request) -> Response {
    let mut response = match assets::find(&request) {
        Some(asset) => asset,
        None => enter(&web, request).await.unwrap_or_else(|Fault(failure)| page::failed(None, &failure)),
    };
    headers::protect(&mut response);
    response
}

async fn enter(web: &Web, request: Request) -> Result<Response, Fault> {
    let is_tls = web.is_tls || is_forwarded_tls(request.headers());
    let path = request.uri().path().to_owned();
    let is_post = request.method() == Method::POST;
    if is_post && !is_own(request.headers()) {
        let message = "this form was sent by another site; open the page here and send it again";
        return Err(Failure::new(Code::PermissionDenied, message).into());
    }
    let (request, form) = if is_post { form::read(&web.app, request).await? } else { (request, Form::default()) };
    if path == "/login" {
        return login::answer(web, request, &form, is_tls).await;
    }
    let Some(visitor) = session::visitor(web, request.headers(), is_tls).await? else {
        if is_from_elsewhere(&request) {
            return Ok(again_from_here(&request));
        }
        let back = form.get("_back").map(str::to_owned).or_else(|| Some(request.uri().path_and_query()?.to_string()));
        return Ok(login::ask(StatusCode::UNAUTHORIZED, &back.unwrap_or_default(), &form, ""));
    };
    if is_post && !session::is_same(visitor.csrf(), form.get("_csrf").unwrap_or_default()) {
        let back = form.get("_back").unwrap_or(&path).to_owned();
        let notice =
            "This form was made for a session that is over, so nothing was done. Look at it, and send it again.";
        let mut response = again(&visitor, &back, form, notice).await;
        if response.status() != StatusCode::OK {
            return Err(Failure::new(Code::PermissionDenied, notice).into());
        }
        *response.status_mut() = StatusCode::FORBIDDEN;
        return Ok(response);
    }
    if path == "/logout" && is_post {
        session::end(web, request.headers(), is_tls).await?;
        return Ok(login::ended(is_tls));
    }
    let mut request = request;
    request.extensions_mut().insert(form);
    Ok(show(&visitor, request).await)
}

/// Runs a page for a visitor; a failure becomes a page too.
async fn show(visitor: &Visitor, mut request: Request) -> Response {
    request.extensions_mut().insert(visitor.clone());
    let pages = visitor.pages();
    let response = pages.oneshot(request).await.unwrap_or_else(|never| match never {});
    match response.extensions().get::<Failure>() {
        Some(failure) => page::failed(Some(visitor), failure),
        None => response,
    }
}

/// The page with a form, filled with what was typed into it before. Nothing is done with that until it is sent again.
pub(super) async fn again(visitor: &Visitor, path: &str, typed: Form, notice: &'static str) -> Response {
    let path = login::local(path);
    let visitor = visitor.again(Again { notice, address: path.to_owned() });
    let mut request = Request::get(path).body(Body::empty()).unwrap_or_default();
    request.extensions_mut().insert(Kept(typed));
    show(&visitor, request).await
}

/// Whether a form comes from a page of this site, as far as the browser says. Programs that are no browser say nothing, and
/// nobody can make them send anything.
fn is_own(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site")) {
        return site == "same-origin";
    }
    let Some(origin) = text(header::ORIGIN) else { return true };
    let host = text(header::HOST).unwrap_or_default();
    origin.split_once("://").is_some_and(|(_, authority)| authority == host)
}

/// Whether a proxy in front speaks TLS. Believing it wrongly makes the cookie stricter, and nothing else.
fn is_forwarded_tls(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|value| value == "https")
}

/// Whether a link on another site led here: the browser then keeps the cookie back, and would give it to a second request.
fn is_from_elsewhere(request: &Request) -> bool {
    let says = |name: &str, word: &str| request.headers().get(name).is_some_and(|value| value == word);
    request.method() == Method::GET && says("sec-fetch-site", "cross-site") && says("sec-fetch-mode", "navigate")
}

fn again_from_here(request: &Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", axum::http::uri::PathAndQuery::as_str);
    let path = askama::filters::escape(login::local(path), askama::filters::Html).map(|it| it.to_string());
    let path = path.unwrap_or_default();
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0; url={path}\">\
         <title>better-compute</title><a href=\"{path}\">Go on</a>"
    );
    Html(text).into_response()
}
