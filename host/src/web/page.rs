//! What all pages share: their frame, and how a failure looks.
//!
//! **Invariant:** templates escape whatever they are given; a failure is a page with the API's code, words and particulars.

use askama::Template;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};
use serde_json::Value;

use super::query;
use super::visitor::Visitor;
use crate::api::error::Failure;
use crate::api::types::Code;
use crate::store::events;

/// What a page's handler answers.
pub(crate) type Answer = Result<Response, Fault>;

/// A failure that becomes a page.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) Failure);

impl<E: Into<Failure>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Fault {
    /// The door makes a page of it: it knows the visitor.
    fn into_response(self) -> Response {
        let mut response = self.0.status().into_response();
        response.extensions_mut().insert(self.0);
        response
    }
}

/// The frame of a page: each template that extends `layout.html` has one as its field `page`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// What stands in the browser's title, and as the heading.
    pub(crate) title: String,
    /// The first part of the path of the menu's entry that it belongs to: `commands`.
    pub(crate) section: &'static str,
    /// The visitor's name.
    pub(crate) who: String,
    /// The tenant's name.
    pub(crate) tenant: String,
    /// What forms carry as `_csrf`.
    pub(crate) csrf: String,
    /// Where the script hears that the page is out of date; empty for a page that does not change.
    pub(crate) live: String,
    /// The page's own address, where the browser may have come to it by another way; empty else.
    pub(crate) address: String,
    /// Why it is shown though something else was asked for; empty else.
    pub(crate) notice: &'static str,
}

impl Page {
    /// A page that does not change by itself.
    pub(crate) fn new(visitor: &Visitor, section: &'static str, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            section,
            who: visitor.name().to_owned(),
            tenant: visitor.tenant_name().to_owned(),
            csrf: visitor.csrf().to_owned(),
            live: String::new(),
            address: visitor.shown_again().map(|again| again.address.clone()).unwrap_or_default(),
            notice: visitor.shown_again().map(|again| again.notice).unwrap_or_default(),
        }
    }

    /// A page that is read anew when something happens: in the whole tenant, or to the node or the command that is named. Made before
    /// what it shows is read, so that nothing falls in between.
    pub(crate) async fn live(
        visitor: &Visitor,
        section: &'static str,
        title: impl Into<String>,
        about: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let end = events::end(&mut *visitor.app().db().await?).await?.to_string();
        let fields = [("after", end.as_str())].into_iter().chain(about.iter().copied());
        Ok(Self { live: query::path("/live", fields), ..Self::new(visitor, section, title) })
    }
}

/// A template as an answer.
pub(crate) fn html(template: &impl Template) -> Answer {
    let text = template.render().map_err(|error| Failure::internal(&error))?;
    Ok(Html(text).into_response())
}

/// The same with another status.
pub(crate) fn html_with(status: StatusCode, template: &impl Template) -> Answer {
    html(template).map(|mut response| {
        *response.status_mut() = status;
        response
    })
}

/// No page has this path.
pub(super) async fn unknown(uri: Uri) -> Answer {
    Err(Failure::not_found("page", uri.path()).into())
}

/// A page that does not take this method.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Answer {
    Err(Failure::field("method", format!("{} does not take {method}", uri.path())).into())
}

#[derive(Template)]
#[template(path = "failure.html")]
struct Failed<'a> {
    page: Page,
    status: u16,
    code: String,
    message: &'a str,
    problems: Vec<(String, String)>,
    details: String,
    advice: &'static str,
}

/// A failure as a page. Whoever has no session sees it without the menu.
pub(super) fn failed(visitor: Option<&Visitor>, failure: &Failure) -> Response {
    let title = title(failure.0.code);
    let page = match visitor {
        Some(visitor) => Page::new(visitor, "", title),
        None => Page { title: title.to_owned(), ..Page::default() },
    };
    let problems = problems(failure);
    let details = match &failure.0.details {
        Value::Null => String::new(),
        _ if !problems.is_empty() => String::new(),
        details => format!("{details:#}"),
    };
    let template = Failed {
        page,
        status: failure.status().as_u16(),
        code: failure.0.code.to_string(),
        message: &failure.0.message,
        problems,
        details,
        advice: advice(failure.0.code),
    };
    let text = template.render().unwrap_or_else(|_| failure.0.code.to_string());
    (failure.status(), Html(text)).into_response()
}

/// The fields of a request that break rules: a field's name or the pointer into a payload, and the rule.
pub(crate) fn problems(failure: &Failure) -> Vec<(String, String)> {
    let listed = failure.0.details["problems"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    listed.map(|it| (it.get("field").or(it.get("pointer")).map(text).unwrap_or_default(), text(&it["rule"]))).collect()
}

const fn title(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => "You are not logged in",
        Code::PermissionDenied => "You may not do this",
        Code::NotFound => "There is no such page or thing",
        Code::InvalidInput | Code::Unsupported => "This cannot be done as asked",
        Code::InvalidState => "This cannot be done now",
        Code::Conflict => "This means something else already",
        Code::TooLarge => "This is too large",
        Code::Unavailable => "The server cannot answer now",
        Code::Internal => "The server failed",
    }
}

const fn advice(code: Code) -> &'static str {
    match code {
        Code::PermissionDenied => "Ask whoever gives tokens for one that may, and log in with it.",
        Code::NotFound => "It may have been deleted, or your token may not see it.",
        Code::InvalidInput | Code::Unsupported | Code::TooLarge => {
            "Go back, change what is named above, and send it again."
        }
        Code::InvalidState => "Look at the thing again: what it allows changes with its state.",
        Code::Conflict => "Reload the form for a new key.",
        Code::Unavailable => "Try again in a moment.",
        Code::Internal => "Try again; if it stays so, tell whoever runs the server.",
        Code::Unauthenticated => "",
    }
}
