//! A command's support bundle: downloaded, or one file of it.
//!
//! **Invariant:** it is what `bundles.download` and `bundles.read` answer, headers and all: data to keep, nothing that a browser runs.

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, Request, Uri, header};
use axum::response::Response;

use crate::api::error::Failure;
use crate::api::types::ErrorBody;
use crate::web::page::Fault;
use crate::web::query;
use crate::web::visitor::Visitor;

/// The most of a failure that is read, bytes.
const FAILURE: usize = 64 * 1024;

/// `GET /commands/{node}/{command}/bundle`
pub(super) async fn download(
    visitor: Visitor,
    Path((node, command)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    pass_on(&visitor, "/v1/bundles.download", &node, &command, "", &headers).await
}

/// `GET /commands/{node}/{command}/file?path=…`
pub(super) async fn read(
    visitor: Visitor,
    Path((node, command)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let asked = query::read(&uri);
    pass_on(&visitor, "/v1/bundles.read", &node, &command, asked.get("path").unwrap_or_default(), &headers).await
}

async fn pass_on(
    visitor: &Visitor,
    method: &str,
    node: &str,
    command: &str,
    path: &str,
    headers: &HeaderMap,
) -> Result<Response, Fault> {
    let tenant = visitor.tenant();
    let fields = [("tenantId", tenant.as_str()), ("nodeId", node), ("commandId", command), ("path", path)];
    let mut inner = Request::get(query::path(method, fields));
    if let Some(range) = headers.get(header::RANGE) {
        inner = inner.header(header::RANGE, range);
    }
    let response = visitor.send(inner.body(Body::empty()).map_err(|error| Failure::internal(&error))?).await;
    if response.status().is_success() {
        return Ok(response);
    }
    let bytes = axum::body::to_bytes(response.into_body(), FAILURE).await.map_err(|error| Failure::internal(&error))?;
    let body: ErrorBody = serde_json::from_slice(&bytes).map_err(|error| Failure::internal(&error))?;
    Err(Failure(body.error).into())
}
