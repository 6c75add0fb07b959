//! Reading the store.
//!
//! **Invariant:** what cannot be known is told apart from what is not there; no error holds a URL's query.

use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, LAST_MODIFIED, RANGE};
use reqwest::{Response, StatusCode};
use rusty_s3::S3Action as _;
use time::OffsetDateTime;

use super::{Store, timestamp};

/// How long a URL of this replica's own is good for: it is used at once.
const AT_ONCE: Duration = Duration::from_mins(5);

/// Why the store did not answer what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// There is no such object.
    #[error("the store has no such object")]
    Missing,
    /// The range begins past the object's end, or is none.
    #[error("the range is not within the object")]
    Range,
    /// It does not let this replica read.
    #[error(
        "the store refuses this server with {0}; check bucket, region and keys under [support-bundles], the rights that \
         the key has (s3:GetObject, s3:PutObject, s3:ListBucket), and this machine's clock"
    )]
    Refused(u16),
    /// It is away, or broken.
    #[error("the store cannot be reached or fails: {0}")]
    Away(String),
}

/// What is known of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// How large it is.
    pub bytes: u64,
    /// Since when it is there.
    pub stored_at: Option<OffsetDateTime>,
}

/// An object as it comes.
#[derive(Debug)]
pub struct Object {
    /// How many bytes come; `None` where the store does not say.
    pub bytes: Option<u64>,
    /// `bytes FIRST-LAST/ALL`, where a range was asked for and granted.
    pub range: Option<String>,
    /// The bytes.
    pub body: Response,
}

impl Store {
    /// What is known of an object.
    pub async fn find(&self, key: &str, now: OffsetDateTime) -> Result<Found, Failed> {
        let head = self.bucket.head_object(Some(&self.credentials), key);
        let at = timestamp(now).ok_or_else(no_time)?;
        let answer = self.http.head(head.sign_with_time(AT_ONCE, &at)).send().await.map_err(away)?;
        let answer = judged(answer)?;
        // The body of a HEAD has no length of its own; the header says that of the object.
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let bytes = header(CONTENT_LENGTH).and_then(|text| text.parse().ok());
        let bytes = bytes.ok_or_else(|| Failed::Away("it does not say how large the object is".into()))?;
        let stored_at = header(LAST_MODIFIED).and_then(http_date);
        Ok(Found { bytes, stored_at })
    }

    /// An object, or a range of it as HTTP names it.
    pub async fn get(&self, key: &str, range: Option<&str>, now: OffsetDateTime) -> Result<Object, Failed> {
        let get = self.bucket.get_object(Some(&self.credentials), key);
        let at = timestamp(now).ok_or_else(no_time)?;
        let mut request = self.http.get(get.sign_with_time(AT_ONCE, &at)).header(ACCEPT_ENCODING, "identity");
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let body = judged(request.send().await.map_err(away)?)?;
        let range = (body.status() == StatusCode::PARTIAL_CONTENT)
            .then(|| body.headers().get(CONTENT_RANGE)?.to_str().ok().map(str::to_owned))
            .flatten();
        Ok(Object { bytes: body.content_length(), range, body })
    }
}

fn judged(answer: Response) -> Result<Response, Failed> {
    match answer.status() {
        status if status.is_success() => Ok(answer),
        StatusCode::NOT_FOUND => Err(Failed::Missing),
        StatusCode::RANGE_NOT_SATISFIABLE => Err(Failed::Range),
        status if status.is_server_error() => Err(Failed::Away(format!("it answers {}", status.as_u16()))),
        status => Err(Failed::Refused(status.as_u16())),
    }
}

fn no_time() -> Failed {
    Failed::Away("this machine's clock shows no time that can be signed".into())
}

/// Without the URL: its query is a right.
fn away(error: reqwest::Error) -> Failed {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(source) = next {
        text += &format!(": {source}");
        next = source.source();
    }
    Failed::Away(text)
}

/// `Tue, 01 Dec 2026 09:00:00 GMT`.
fn http_date(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &time::format_description::well_known::Rfc2822).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_object_is_read_as_http_writes_it() {
        let at = http_date("Tue, 01 Dec 2026 09:00:00 GMT").expect("a date");
        assert_eq!(at.unix_timestamp(), 1_796_115_600);
        assert_eq!(http_date("yesterday"), None);
    }
}
