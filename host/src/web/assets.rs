//! The files that pages load: a style sheet, a script and a picture, embedded in this program.
//!
//! **Invariant:** they hold nothing of anybody, so that they need no session and may be kept by a browser until they change.

use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

struct Asset {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
    tag: LazyLock<String>,
}

macro_rules! asset {
    ($file:literal, $content_type:literal) => {
        Asset {
            path: concat!("/static/", $file),
            content_type: $content_type,
            text: include_str!(concat!("../../static/", $file)),
            tag: LazyLock::new(|| tag(include_str!(concat!("../../static/", $file)))),
        }
    };
}

static ASSETS: [Asset; 3] = [
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("live.js", "text/javascript; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
];

fn tag(text: &str) -> String {
    format!("\"{}\"", hex::encode(&Sha256::digest(text)[..8]))
}

/// The asset at a path.
pub(super) fn find(request: &Request) -> Option<Response> {
    let asset = ASSETS.iter().find(|asset| asset.path == request.uri().path())?;
    let is_known = request.headers().get(header::IF_NONE_MATCH).is_some_and(|it| it.as_bytes() == asset.tag.as_bytes());
    let mut response =
        if is_known { StatusCode::NOT_MODIFIED.into_response() } else { Response::new(Body::from(asset.text)) };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ETAG, HeaderValue::try_from(asset.tag.as_str()).expect("it is hexadecimal"));
    Some(response)
}
