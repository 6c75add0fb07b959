//! What a guest asks for, checked: from `wasi:http`'s request to one that may be put to a server. Pure.
//!
//! **Invariant:** the address that is sent to is made of the origin that the gate sees, and of nothing else.

use std::time::Duration;

use bc_proto::rules::ask;
use bytes::Bytes;
use serde_json::{Value, json};
use wasmtime_wasi_http::p2::bindings::http::types::{Method, Scheme};
use wasmtime_wasi_http::{FieldMap, RequestOptions};

use super::message::{Body, shown};
use super::{MAX_RESPONSE_BYTES, Request};
use crate::capability::{Answer, Error};

/// How long a request may take unless the guest says otherwise: BMCs answer slowly.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The longest that a guest may have it take.
const MAX_TIMEOUT: Duration = Duration::from_mins(10);

/// A request without its body.
pub(super) struct Asked {
    pub(super) origin: String,
    pub(super) write: bool,
    pub(super) credentials: Option<String>,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    timeout: Duration,
    max_bytes: Option<usize>,
}

impl Asked {
    /// Checks it. Errors with what the guest has to put right.
    pub(super) fn read(
        method: &Method,
        scheme: Option<&Scheme>,
        authority: Option<&str>,
        path: Option<&str>,
        headers: &FieldMap,
        options: Option<&RequestOptions>,
    ) -> Answer<Self> {
        let refused = |refused: ask::Refused| Error::new("request-refused", refused.to_string());
        let malformed = |what: String| Error::new("request-malformed", what);
        let scheme = match scheme {
            Some(Scheme::Http) => "http",
            Some(Scheme::Https) | None => "https",
            Some(Scheme::Other(other)) => other,
        };
        let authority = authority.ok_or_else(|| malformed("the request names no host".into()))?;
        let origin = ask::origin(scheme, authority).map_err(refused)?;
        let method = method_name(method);
        let write = ask::may_write(&method).map_err(refused)?;
        let path = path.filter(|path| !path.is_empty()).unwrap_or("/");
        if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(malformed(format!("'{}' is not a path", path.escape_debug())));
        }
        let (mut taken, mut credentials, mut max_bytes) = (Vec::new(), None, None);
        for (name, value) in headers.iter() {
            let value = value.to_str().map_err(|_| malformed(format!("the header `{name}` is not plain text")))?;
            match name.as_str() {
                name if ask::is_the_hosts(name) => return Err(refused(ask::Refused::Header(name.to_owned()))),
                ask::CREDENTIALS if credentials.is_some() => {
                    return Err(malformed(format!("`{}` stands twice", ask::CREDENTIALS)));
                }
                ask::CREDENTIALS => credentials = Some(value.to_owned()),
                ask::MAX_BYTES => {
                    let wanted = value.parse::<usize>();
                    let wanted =
                        wanted.map_err(|_| malformed(format!("`{}` is not a number of bytes", ask::MAX_BYTES)))?;
                    max_bytes = Some(wanted.min(MAX_RESPONSE_BYTES));
                }
                name if name.starts_with(ask::OWN) => return Err(refused(ask::Refused::Header(name.to_owned()))),
                name => taken.push((name.to_owned(), value.to_owned())),
            }
        }
        let timeout = options.and_then(|options| options.first_byte_timeout).unwrap_or(TIMEOUT).min(MAX_TIMEOUT);
        let path = path.to_owned();
        Ok(Self { origin, write, credentials, method, path, headers: taken, timeout, max_bytes })
    }

    /// The request, without credentials.
    pub(super) fn request(&self, body: Bytes) -> Request {
        Request {
            method: self.method.clone(),
            url: format!("{}{}", self.origin, self.path),
            headers: self.headers.clone(),
            body,
            timeout: self.timeout,
            max_response_bytes: self.max_bytes.unwrap_or(MAX_RESPONSE_BYTES),
            cut: self.max_bytes.is_some(),
            credentials: None,
        }
    }

    /// What journals, plans and transcripts hold of it.
    pub(super) fn described(&self, request: &Request) -> Value {
        json!({
            "method": request.method,
            "url": request.url,
            "headers": shown(&request.headers),
            "credentials": self.credentials,
            "body": (!request.body.is_empty()).then(|| Body::from_bytes(request.body.to_vec())),
        })
    }
}

fn method_name(method: &Method) -> String {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(other) => return other.to_ascii_uppercase(),
    }
    .to_owned()
}
