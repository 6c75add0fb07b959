//! From a server's answer to the kind's result. Pure.
//!
//! **Invariant:** headers that may hold secrets of the server are left out.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sdk::http::Response;
use sdk::{Error, Failure, describe};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Headers that are handed on.
const HANDED_ON: [&str; 16] = [
    "age",
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "location",
    "retry-after",
    "server",
];

/// The kind's result.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Answer {
    url: String,
    status: u16,
    headers: BTreeMap<String, String>,
    body: Body,
    truncated: bool,
    sha256: String,
    redirects: Vec<String>,
    planned: bool,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Body {
    Text(String),
    Base64(String),
}

/// Makes it.
pub(crate) fn of(url: String, response: &Response, redirects: Vec<String>) -> Answer {
    let mut headers = BTreeMap::new();
    for (name, value) in response.headers.iter().filter(|(name, _)| HANDED_ON.contains(&name.as_str())) {
        headers
            .entry(name.clone())
            .and_modify(|all: &mut String| *all = format!("{all}, {value}"))
            .or_insert_with(|| value.clone());
    }
    let digits = Sha256::digest(&response.body).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    Answer {
        url,
        status: response.status,
        headers,
        body: match std::str::from_utf8(&response.body) {
            Ok(text) => Body::Text(text.to_owned()),
            Err(_) => Body::Base64(STANDARD.encode(&response.body)),
        },
        truncated: response.truncated,
        sha256: digits,
        redirects,
        planned: response.planned,
    }
}

/// There was no answer. Only where the request cannot have arrived is it safe to say so.
pub(crate) fn unanswered(error: &Error) -> Failure {
    let message = describe(error).to_string();
    match error.code.as_str() {
        "connect" => Failure::new("unreachable", message).retryable(),
        "tls" => Failure::new("tls", message),
        "timeout" => Failure::new("timeout", format!("{message}; the server may have got the request")),
        "cut-off" | "no-answer" => Failure::new("no-answer", format!("{message}; the server may have got the request")),
        "not-found" | "sealed-exchange" => Failure::new("no-credentials", message),
        _ => Failure::new("request-refused", message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_may_hold_secrets_are_left_out() {
        let response = Response {
            status: 200,
            headers: vec![
                ("content-type".into(), "text/plain".into()),
                ("set-cookie".into(), "session=1".into()),
                ("x-auth-token".into(), "t".into()),
                ("allow".into(), "GET".into()),
                ("allow".into(), "HEAD".into()),
            ],
            body: b"abc".to_vec(),
            ..Response::default()
        };
        let answer = of("https://a".into(), &response, vec![]);
        assert_eq!(answer.headers.keys().collect::<Vec<_>>(), ["allow", "content-type"]);
        assert_eq!(answer.headers["allow"], "GET, HEAD");
        assert_eq!(answer.body, Body::Text("abc".into()));
        assert_eq!(answer.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let bytes = of("https://a".into(), &Response { body: vec![0xff], ..response }, vec![]);
        assert_eq!(bytes.body, Body::Base64("/w==".into()));
    }

    #[test]
    fn only_what_cannot_have_arrived_may_be_asked_again() {
        let failure = |code: &str| unanswered(&Error { code: code.into(), native: None, message: "x".into() });
        assert!(failure("connect").retryable);
        assert!(!failure("timeout").retryable && failure("timeout").message.ends_with("may have got the request"));
    }
}
