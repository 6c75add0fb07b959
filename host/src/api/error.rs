//! What a call that fails answers, in one shape: `{"error":{"code","message","details"}}`.
//!
//! **Invariant:** the answer says what the caller did or may do, never how the server works inside. A failure of the server
//! is logged here, once, with all its sources.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sqlx::error::DatabaseError;

use super::types::{ApiError, Code, ErrorBody};
use crate::{audit, registry, store};

/// A call that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure(pub ApiError);

impl Failure {
    /// A failure without particulars.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(ApiError { code, message: message.into(), details: Value::Null })
    }

    /// With particulars.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.0.details = details;
        self
    }

    /// With a stable word for why, beside the particulars that it has.
    #[must_use]
    pub fn because(mut self, reason: &str) -> Self {
        self.0.details["reason"] = reason.into();
        self
    }

    /// What does not exist, or not for the caller.
    pub fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("there is no {what} {id}"))
    }

    /// One field that breaks a rule.
    pub fn field(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::fields(&[(field.into(), rule.into())])
    }

    /// Fields that break rules, at least one.
    pub fn fields(problems: &[(String, String)]) -> Self {
        let words: Vec<_> = problems
            .iter()
            .map(|(field, rule)| if field.is_empty() { rule.clone() } else { format!("{field}: {rule}") })
            .collect();
        let details: Vec<_> = problems.iter().map(|(field, rule)| json!({ "field": field, "rule": rule })).collect();
        Self::new(Code::InvalidInput, words.join("; ")).with(json!({ "problems": details }))
    }

    /// The state of things forbids it; `reason` is a stable word.
    pub fn state(reason: &str, message: impl Into<String>) -> Self {
        Self::new(Code::InvalidState, message).with(json!({ "reason": reason }))
    }

    /// A defect of the server: logged, and not explained.
    pub fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %chain(error), "a call failed");
        Self::new(Code::Internal, "the server failed; its log says why")
    }

    /// The database is away: logged, and not explained.
    fn unavailable(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error = %chain(error), "the database is away");
        Self::new(Code::Unavailable, "the database cannot be reached; try again")
    }

    /// The status of the answer.
    pub const fn status(&self) -> StatusCode {
        match self.0.code {
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::InvalidInput | Code::Unsupported => StatusCode::BAD_REQUEST,
            Code::InvalidState | Code::Conflict => StatusCode::CONFLICT,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// An error and its sources.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text += &format!(": {source}");
        next = source.source();
    }
    text
}

/// Whether the database could not do anything, rather than not do this.
fn is_away(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => is_away_by_code(error.as_ref()),
        _ => false,
    }
}

/// Classes of SQLSTATE: connection exceptions, insufficient resources, operator intervention (a shutdown, a start).
fn is_away_by_code(error: &dyn DatabaseError) -> bool {
    error.code().is_some_and(|code| ["08", "53", "57P"].iter().any(|class| code.starts_with(class)))
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        match &error {
            store::Error::Database(cause) if is_away(cause) => Self::unavailable(&error),
            _ => Self::internal(&error),
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        store::Error::from(error).into()
    }
}

impl From<registry::Error> for Failure {
    fn from(error: registry::Error) -> Self {
        match error {
            registry::Error::Store(error) => error.into(),
            other => Self::internal(&other),
        }
    }
}

impl From<audit::Error> for Failure {
    fn from(error: audit::Error) -> Self {
        match error {
            audit::Error::Store(error) => error.into(),
            other => Self::internal(&other),
        }
    }
}

impl From<tokio::task::JoinError> for Failure {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::internal(&error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, Json(ErrorBody { error: self.0 })).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
