//! HTTP requests to servers that the node's operator granted, one at a time and whole: `wasi:http` for kinds that want an answer.
//!
//! A kind names a secret of its command as credentials; the host adds its value, and the kind never has it.
//!
//! **Invariant:** an answer is the server's own or says that it is not: one that a plan gives in its place is `planned`.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, Method, OutgoingBody, OutgoingRequest, RequestOptions, Scheme,
};
use wasip2::io::streams::StreamError;

use crate::Error;

/// Names the secret that the host adds as credentials.
const CREDENTIALS: &str = "better-compute-credentials";
/// Says how many bytes of the answer are taken.
const MAX_BYTES: &str = "better-compute-max-bytes";
/// Say about an answer what the server did not.
const PLANNED: &str = "better-compute-planned";
const TRUNCATED: &str = "better-compute-truncated";

/// The most that `blocking-write-and-flush` takes.
const WRITE_BYTES: usize = 4096;
const READ_BYTES: u64 = 64 * 1024;

/// A request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`; in upper case.
    pub method: String,
    /// `https://bmc-1.example/redfish/v1`
    pub url: String,
    /// Names in any case. The host sets `authorization`, `host`, `content-length` and what belongs to the connection.
    pub headers: Vec<(String, String)>,
    /// At most 1 MiB.
    pub body: Vec<u8>,
    /// The secret whose value the host adds: `user:password`, or a bearer token. The command must name it in its `secretRefs`.
    pub credentials: Option<String>,
    /// How long it may take, milliseconds; one minute by default.
    pub timeout_ms: Option<u32>,
    /// What is longer is cut off, bytes; by default more than 8 MiB is an error.
    pub max_bytes: Option<u32>,
}

/// An answer, whatever its status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// `204`
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// All of it, unless it is `truncated`.
    pub body: Vec<u8>,
    /// Whether it was cut off at the request's `max_bytes`.
    pub truncated: bool,
    /// Whether this is a plan, so that the request was not sent and this is no server's answer.
    pub planned: bool,
}

impl Request {
    /// A request without body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self { method: method.into(), url: url.into(), ..Self::default() }
    }
}

impl Response {
    /// The first header of this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}

/// Scheme, authority, and path with query. The fragment is for the reader and is left out.
fn parts(url: &str) -> Option<(Scheme, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.split('#').next().unwrap_or(rest);
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    (!authority.is_empty()).then_some((scheme, authority, path))
}

/// Sends a request and waits for the whole answer. Errors when there is none: `connect` and `tls` say that the request did not reach
/// the server, `timeout`, `cut-off` and `no-answer` that it may have; any other code that it was not sent.
pub fn send(request: &Request) -> Result<Response, Error> {
    let malformed = |what: String| error("request-malformed", what);
    let (scheme, authority, path) = parts(&request.url)
        .ok_or_else(|| malformed(format!("'{}' is not an address: http:// or https://, and a host", request.url)))?;
    let refused = |what: &str| malformed(format!("{what} cannot stand in a request"));
    let fields = Fields::new();
    let credentials = request.credentials.as_ref().map(|name| (CREDENTIALS.to_owned(), name.clone()));
    let max_bytes = request.max_bytes.map(|bytes| (MAX_BYTES.to_owned(), bytes.to_string()));
    for (name, value) in request.headers.iter().chain(&credentials).chain(&max_bytes) {
        let taken = fields.append(name, value.as_bytes());
        taken.map_err(|problem| malformed(format!("the header `{name}` is not taken: {problem}")))?;
    }
    let outgoing = OutgoingRequest::new(fields);
    outgoing.set_method(&method(&request.method)).map_err(|()| refused("the method"))?;
    outgoing.set_scheme(Some(&scheme)).map_err(|()| refused("the scheme"))?;
    outgoing.set_authority(Some(authority)).map_err(|()| refused("the host"))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    outgoing.set_path_with_query(Some(&path)).map_err(|()| refused("the path"))?;
    let options = request.timeout_ms.map(|timeout_ms| {
        let options = RequestOptions::new();
        // A host that knows no such limit uses its own.
        let _ = options.set_first_byte_timeout(Some(u64::from(timeout_ms) * 1_000_000));
        options
    });
    let body = outgoing.body().map_err(|()| refused("the body"))?;
    let future = outgoing_handler::handle(outgoing, options).map_err(code)?;
    write(body, &request.body)?;
    future.subscribe().block();
    let incoming = match future.get() {
        Some(Ok(Ok(incoming))) => incoming,
        Some(Ok(Err(problem))) => return Err(code(problem)),
        Some(Err(())) | None => return Err(error("no-answer", "the host has no answer to the request".into())),
    };
    let mut response = Response { status: incoming.status(), ..Response::default() };
    for (name, value) in incoming.headers().entries() {
        match name.as_str() {
            PLANNED => response.planned = true,
            TRUNCATED => response.truncated = true,
            _ => response.headers.push((name.to_ascii_lowercase(), String::from_utf8_lossy(&value).into_owned())),
        }
    }
    let body = incoming.consume().map_err(|()| error("no-answer", "the answer has no body".into()))?;
    response.body = read(&body)?;
    Ok(response)
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), Error> {
    let stream = body.write().map_err(|()| error("request-malformed", "the body cannot be written".into()))?;
    for chunk in bytes.chunks(WRITE_BYTES) {
        // A host that takes no more says why in its answer.
        if stream.blocking_write_and_flush(chunk).is_err() {
            break;
        }
    }
    drop(stream);
    OutgoingBody::finish(body, None).map_err(code)
}

fn read(body: &IncomingBody) -> Result<Vec<u8>, Error> {
    let stream = body.stream().map_err(|()| error("no-answer", "the answer cannot be read".into()))?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(READ_BYTES) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(problem)) => {
                return Err(error("cut-off", problem.to_debug_string()));
            }
        }
    }
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        other => Method::Other(other.to_owned()),
    }
}

fn error(code: &str, message: String) -> Error {
    Error { code: code.to_owned(), native: None, message }
}

/// This project's host puts its own code in front of its words.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
fn code(problem: ErrorCode) -> Error {
    if let ErrorCode::InternalError(Some(words)) = &problem
        && let Some((code, message)) = words.split_once(": ")
        && !code.is_empty()
        && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    {
        return error(code, message.to_owned());
    }
    error("no-answer", problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let taken =
            |url| parts(url).map(|(scheme, authority, path)| (matches!(scheme, Scheme::Https), authority, path));
        assert_eq!(taken("https://h:1/a?b=/#c"), Some((true, "h:1", "/a?b=/")));
        assert_eq!(taken("HTTP://h?b"), Some((false, "h", "?b")));
        assert_eq!(taken("http://h"), Some((false, "h", "")));
        for wrong in ["", "h/a", "ftp://h", "http://", "http:///a"] {
            assert_eq!(taken(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_hosts_code_and_words_are_kept() {
        let it = code(ErrorCode::InternalError(Some("connect: refused: by it".into())));
        assert_eq!((it.code.as_str(), it.message.as_str()), ("connect", "refused: by it"));
        assert_eq!(code(ErrorCode::InternalError(Some("Odd: words".into()))).code, "no-answer");
        assert_eq!(code(ErrorCode::ConnectionRefused).code, "no-answer");
    }
}
