//! What forms send.
//!
//! **Invariant:** no more than the limit is read; names that begin with `_` are the door's own and never carried on.

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use futures_util::StreamExt as _;

use crate::api::App;
use crate::api::error::Failure;
use crate::api::types::Code;

/// The most that any form sends, bytes, where the largest payload is smaller: what is too large for a payload is to come back
/// to its form with words, not be lost.
const LEAST_LIMIT: usize = 8 * 1024 * 1024;

/// The fields of a form, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Form(Vec<(String, String)>);

/// What was typed into a form before a login; its page fills it in again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kept(pub(crate) Form);

impl Form {
    /// Of what stands in a body or a query.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().collect())
    }

    /// The first value of a field; empty is a value.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a field that is not empty, without space around it.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// Whether nothing was sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields, less those of the door.
    pub(crate) fn typed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter(|(name, _)| !name.starts_with('_')).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The fields whose names begin so, by the rest of their names.
    pub(crate) fn below(&self, prefix: &str) -> Self {
        let within =
            self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), value.clone())));
        Self(within.collect())
    }
}

impl<S: Sync> FromRequestParts<S> for Form {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

impl<S: Sync> FromRequestParts<S> for Kept {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// Takes the form out of a request.
pub(super) async fn read(app: &App, request: Request) -> Result<(Request, Form), Failure> {
    // Percent-encoding makes three bytes of one.
    let limit = LEAST_LIMIT.max(app.config.max_payload_bytes.saturating_mul(4));
    let (parts, body) = request.into_parts();
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Failure::field("", "the form ended before it was whole; send it again"))?;
        if bytes.len() + chunk.len() > limit {
            let message = format!("the form holds more than {limit} bytes; go back, it is as you left it");
            return Err(Failure::new(Code::TooLarge, message));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((Request::from_parts(parts, Body::empty()), Form::parse(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forms_fields_are_found_and_the_doors_own_are_not_carried_on() {
        let form = Form::parse(b"_csrf=x&a=1&a=2&kept.b=%3Cb%3E&space=+%20");
        assert_eq!((form.get("a"), form.get("none"), form.text("space")), (Some("1"), None, None));
        assert_eq!(form.typed().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "a", "kept.b", "space"]);
        assert_eq!(form.below("kept.").get("b"), Some("<b>"));
    }
}
