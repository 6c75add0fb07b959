//! `/live`: what tells a page that it is out of date.
//!
//! **Invariant:** an event is a hint to read the page anew, through the door and as the visitor of that moment; so a browser that was
//! away for any time misses nothing.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;

use super::page::Fault;
use super::query;
use super::visitor::Visitor;
use crate::api::error::Failure;

/// The name of events that say how far a run is.
const PROGRESS: &str = "command.progress";

/// How long a stream lasts at most: its end has the browser come back, and the session looked at again.
const LIFE: Duration = Duration::from_mins(5);

/// An event, less what happened: a page reads that itself. Progress is on no record, so it is passed on as it is.
fn hint(event: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(event);
    if text.lines().any(|line| line.strip_prefix("event:").is_some_and(|name| name.trim() == PROGRESS)) {
        return event.to_vec();
    }
    let mut hint = String::new();
    for line in text.lines() {
        if line.starts_with(':') || line.starts_with("id:") {
            hint += line;
            hint.push('\n');
        } else if line.starts_with("data:") && !hint.contains("data:") {
            hint += "data: news\n";
        }
    }
    hint.push('\n');
    hint.into_bytes()
}

/// `GET /live?after=…&nodeId=…&commandId=…`: `events.watch` of the visitor's tenant.
pub(super) async fn watch(visitor: Visitor, uri: Uri, request: Request) -> Result<Response, Fault> {
    let asked = query::read(&uri);
    let tenant = visitor.tenant();
    let mut fields = vec![("tenantId", tenant.as_str())];
    let narrows = ["after", "nodeId", "commandId"].into_iter();
    fields.extend(narrows.filter_map(|name| Some((name, asked.text(name)?))));
    let mut inner = Request::get(query::path("/v1/events.watch", fields));
    if let Some(last) = request.headers().get("last-event-id") {
        inner = inner.header("last-event-id", last);
    }
    let inner = inner.body(Body::empty()).map_err(|error| Failure::internal(&error))?;
    let response = visitor.send(inner).await;
    if response.status() != StatusCode::OK {
        // To an EventSource this means: do not come back. The page then asks from time to time instead.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let content_type = response.headers().get(header::CONTENT_TYPE).cloned();
    let chunks = response.into_body().into_data_stream().take_until(tokio::time::sleep(LIFE));
    let chunks = chunks.map(|chunk| chunk.map(|bytes| hint(&bytes)));
    let mut response = Response::new(Body::from_stream(chunks));
    if let Some(content_type) = content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_hears_that_something_happened_and_not_what() {
        let told = |event: &str| String::from_utf8(hint(event.as_bytes())).expect("text");
        assert_eq!(told("id: 7-1\nevent: command.settled\ndata: {\"commandId\":1}\n\n"), "id: 7-1\ndata: news\n\n");
        assert_eq!(told("id: 7-1\n: watching\n\n"), "id: 7-1\n: watching\n\n");
        assert_eq!(told(":\n\n"), ":\n\n");
        let progress = "event: command.progress\ndata: {\"done\":1}\n\n";
        assert_eq!(told(progress), progress);
    }
}
