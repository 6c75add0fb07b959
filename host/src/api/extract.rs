//! From bytes to checked values: bodies, queries and the rules of fields.
//!
//! **Invariant:** whatever comes, the answer names the field and the rule that it breaks, and no more than the limit is read.

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use bc_proto::id::TenantId;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use sqlx::types::Uuid;
use type_safe_id::{StaticType, TypeSafeId};

use super::App;
use super::error::Failure;
use super::types::Code;

/// What a body may hold beside a payload, bytes.
const BESIDE_PAYLOAD: usize = 64 * 1024;

/// What a body with a long list may hold, bytes: ten thousand leaves of a batch with their hashes, and space.
const LARGE: usize = 8 * 1024 * 1024;

/// The longest rule in a message, characters: serde's own repeat what was sent.
const MAX_RULE: usize = 200;

/// A JSON body.
pub(super) struct Body<T>(pub T);

/// A JSON body of a method that takes long lists.
pub(super) struct LargeBody<T>(pub T);

/// A query.
pub(super) struct Ask<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        // Space and escapes make JSON longer than its canonical form, which is what is limited in the end.
        let limit = app.config.max_payload_bytes.saturating_mul(2).saturating_add(BESIDE_PAYLOAD);
        json(request, limit).await.map(Self)
    }
}

impl<T: DeserializeOwned> FromRequest<App> for LargeBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &App) -> Result<Self, Failure> {
        json(request, LARGE).await.map(Self)
    }
}

async fn json<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, Failure> {
    let is_json = is_type(request.headers(), "application/json");
    let bytes = read(request, limit).await?;
    // Nothing is an empty object: methods without fields can be called without a body.
    if bytes.is_empty() {
        return parse(b"{}");
    }
    if !is_json {
        return Err(Failure::field("Content-Type", "must be application/json"));
    }
    parse(&bytes)
}

impl<T: DeserializeOwned> FromRequestParts<App> for Ask<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Failure> {
        query(&parts.uri).map(Self)
    }
}

/// Whether the body says it is of a type, parameters such as the charset aside.
pub(super) fn is_type(headers: &HeaderMap, expected: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(expected))
}

/// Reads a body up to a limit. What says that it is larger is not read at all.
pub(super) async fn read(request: Request, limit: usize) -> Result<Vec<u8>, Failure> {
    let too_large = || Failure::new(Code::TooLarge, format!("the body is larger than {limit} bytes"));
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut chunks = request.into_body().into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Failure::field("", "the body ended before it was whole"))?;
        if bytes.len() + chunk.len() > limit {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    // serde takes a list of its fields for a struct as well, which nobody is to rely on.
    if bytes.trim_ascii_start().first().is_some_and(|byte| b"[\"-0123456789tfn".contains(byte)) {
        return Err(Failure::field("", "the body must be a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            broken(&path, &inner.to_string())
        } else {
            Failure::field("", clipped(&format!("the body is not JSON: {inner}")))
        }
    })?;
    json.end().map_err(|error| Failure::field("", format!("the body is not one JSON value: {error}")))?;
    Ok(value)
}

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Failure> {
    Query::try_from_uri(uri).map(|Query(value)| value).map_err(|rejection| {
        let text = rejection.body_text();
        let text = text.split_once(": ").map_or(text.as_str(), |(_, rest)| rest);
        match text.split_once(": ") {
            Some((path, message)) if !path.contains(' ') => broken(path, message),
            _ => broken("", text),
        }
    })
}

/// What serde says, with the field that it is about named as such.
fn broken(path: &str, message: &str) -> Failure {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let parent = if path == "." { "" } else { path };
    let within = |name: &str| {
        // The path of an unknown field is its own in some formats, and its parent's in others.
        if parent.is_empty() || parent == name || parent.ends_with(&format!(".{name}")) {
            if parent.is_empty() { name.to_owned() } else { parent.to_owned() }
        } else {
            format!("{parent}.{name}")
        }
    };
    let quoted = |start: &str| message.strip_prefix(start)?.split('`').next();
    if let Some(name) = quoted("missing field `") {
        return Failure::field(within(name), "is missing");
    }
    if let Some(name) = quoted("unknown field `") {
        let known = message.split_once("expected ").map_or(String::new(), |(_, known)| format!("; known: {known}"));
        return Failure::field(clipped(&within(name)), format!("is not a field of this method{known}"));
    }
    if let Some(name) = quoted("duplicate field `") {
        return Failure::field(within(name), "stands twice");
    }
    Failure::field(parent, clipped(message))
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MAX_RULE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Collects the rules that fields break, so that one answer names them all.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<(String, String)>);

impl Rules {
    /// Notes a rule if it does not hold.
    pub(super) fn rule(&mut self, holds: bool, field: &str, rule: impl Into<String>) {
        if !holds {
            self.0.push((field.to_owned(), rule.into()));
        }
    }

    /// An id; a nil one stands in for text that is none until [`Rules::check`] refuses it.
    pub(super) fn id<T: StaticType + Default>(&mut self, field: &str, text: &str) -> TypeSafeId<T> {
        text.parse().unwrap_or_else(|_| {
            self.rule(false, field, format!("must be an id of the form {}_…", T::TYPE));
            TypeSafeId::from_uuid(Uuid::nil())
        })
    }

    /// The tenant's id, which stands in nearly every request.
    pub(super) fn tenant(&mut self, text: &str) -> TenantId {
        self.id("tenantId", text)
    }

    /// Text of so many characters, none of them a control character.
    pub(super) fn text(&mut self, field: &str, text: &str, min: usize, max: usize) {
        let holds = (min..=max).contains(&text.chars().count()) && !text.contains(char::is_control);
        self.rule(holds, field, format!("must be {min} to {max} printable characters"));
    }

    /// A number within bounds; the default where it is absent.
    pub(super) fn number<N>(&mut self, field: &str, value: Option<N>, min: N, max: N, default: N) -> N
    where
        N: PartialOrd + Copy + std::fmt::Display,
    {
        let value = value.unwrap_or(default);
        self.rule((min..=max).contains(&value), field, format!("must be between {min} and {max}, but is {value}"));
        value
    }

    /// The first so many of them.
    pub(super) fn at_most(mut self, problems: usize) -> Self {
        self.0.truncate(problems);
        self
    }

    /// Takes over what others found.
    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The end: refuses the request if a rule is broken.
    pub(super) fn check(self) -> Result<(), Failure> {
        if self.0.is_empty() { Ok(()) } else { Err(Failure::fields(&self.0)) }
    }
}
