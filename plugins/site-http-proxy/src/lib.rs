//! `site.httpProxy`: puts one HTTP request to a server of the site, and follows redirects where it was asked to.
//!
//! This file asks; [`answer`] and [`hop`] hold the pure parts.
//!
//! **Invariant:** every hop is a request of its own, which the node's policy must allow, and credentials go to the first server alone.

mod answer;
mod hop;

use std::collections::BTreeMap;

use answer::Answer;
use sdk::http::{self, Request};
use sdk::{Context, Failure, Kind, Problem};
use serde::Deserialize;

struct Proxy;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Payload {
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    body: String,
    max_bytes: u32,
    timeout_ms: u32,
    max_redirects: usize,
    secret_refs: SecretRefs,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRefs {
    #[serde(default, deserialize_with = "sdk::payload::present")]
    credentials: Option<String>,
}

impl Default for Payload {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            url: String::new(),
            headers: BTreeMap::new(),
            body: String::new(),
            max_bytes: 64 * 1024,
            timeout_ms: 30_000,
            max_redirects: 0,
            secret_refs: SecretRefs::default(),
        }
    }
}

impl Kind for Proxy {
    type Payload = Payload;
    type Output = Answer;

    fn validate(payload: &Payload) -> Vec<Problem> {
        hop::problems(&payload.method, payload.headers.keys(), &payload.body, payload.max_redirects)
    }

    fn run(_: &Context, payload: Payload) -> Result<Answer, Failure> {
        let mut request = Request {
            method: payload.method,
            url: payload.url,
            headers: payload.headers.into_iter().collect(),
            body: payload.body.into_bytes(),
            credentials: payload.secret_refs.credentials,
            timeout_ms: Some(payload.timeout_ms),
            max_bytes: Some(payload.max_bytes),
        };
        let mut redirects = Vec::new();
        loop {
            let response = http::send(&request).map_err(|error| answer::unanswered(&error))?;
            match hop::next(&request, response.status, response.header("location"))? {
                Some(next) if redirects.len() < payload.max_redirects => {
                    redirects.push(next.url.clone());
                    request = next;
                }
                _ => return Ok(answer::of(request.url, &response, redirects)),
            }
        }
    }
}

sdk::export!(Proxy);
