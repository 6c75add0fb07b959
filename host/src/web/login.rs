//! `/login` and the end of a session.
//!
//! **Invariant:** a token comes in the body of a form and goes into no page, no address and no log; what was typed elsewhere is
//! carried through the login in the same browser's hands.

use askama::Template;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};

use super::form::Form;
use super::page::{self, Fault};
use super::{Web, door, query, session};
use crate::api::auth::Caller;
use crate::api::error::Failure;

/// What carries a field of another form through this one.
const KEPT: &str = "kept.";

#[derive(Template)]
#[template(path = "login.html")]
struct Login<'a> {
    back: &'a str,
    kept: Vec<(String, &'a str)>,
    problem: &'a str,
}

/// A path of this site; `/` for anything else, so that no login leads elsewhere.
pub(super) fn local(path: &str) -> &str {
    let is_local = path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && !path.starts_with("/login")
        && !path.starts_with("/logout");
    if is_local { path } else { "/" }
}

/// The page that asks for a token. It leads back to where one was, with what was typed there.
pub(super) fn ask(status: StatusCode, back: &str, typed: &Form, problem: &str) -> Response {
    let kept = typed.typed().map(|(name, value)| (format!("{KEPT}{name}"), value)).collect();
    asked(status, &Login { back: local(back), kept, problem })
}

fn asked(status: StatusCode, login: &Login<'_>) -> Response {
    match page::html(login) {
        Ok(mut response) => {
            *response.status_mut() = status;
            response
        }
        Err(Fault(failure)) => page::failed(None, &failure),
    }
}

/// `GET` and `POST /login`.
pub(super) async fn answer(web: &Web, request: Request, form: &Form, is_tls: bool) -> Result<Response, Fault> {
    let query = query::read(request.uri());
    if request.method() != Method::POST {
        return Ok(ask(StatusCode::OK, query.get("back").unwrap_or("/"), &Form::default(), ""));
    }
    let back = local(form.get("back").unwrap_or("/"));
    let caller = Caller::with(&web.app, form.get("token").unwrap_or_default().trim()).await?;
    let typed = form.below(KEPT);
    let Some(caller) = caller else {
        let problem = "This token is unknown, expired or revoked.";
        return Ok(ask(StatusCode::UNAUTHORIZED, back, &typed, problem));
    };
    // Whoever logs in over a session ends that one.
    session::end(web, request.headers(), is_tls).await?;
    let (visitor, cookie) = session::begin(web, caller, is_tls).await?;
    tracing::info!(tenant = %visitor.tenant(), identity = visitor.name(), "somebody logged in to the pages");
    let notice = "You are logged in again. What you typed is here; nothing was sent yet.";
    let mut response = if typed.is_empty() {
        Redirect::to(back).into_response()
    } else {
        door::again(&visitor, back, typed, notice).await
    };
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// After the end of a session. Whatever the browser kept of it is to go.
pub(super) fn ended(is_tls: bool) -> Response {
    let mut response = Redirect::to("/login").into_response();
    let headers = response.headers_mut();
    headers.append(header::SET_COOKIE, session::no_cookie(is_tls));
    headers.insert("clear-site-data", HeaderValue::from_static("\"cache\", \"storage\""));
    response
}

/// `POST /logout` is the door's; this stands for the other methods of its path.
pub(super) async fn end() -> Result<Response, Fault> {
    Err(Failure::not_found("page", "/logout").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_no_other_site() {
        assert_eq!(local("/commands?kind=diag.nvml&state="), "/commands?kind=diag.nvml&state=");
        for path in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb", "/logout", "/login"] {
            assert_eq!(local(path), "/", "{path}");
        }
    }
}
