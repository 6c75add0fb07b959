//! Requests and answers as values.
//!
//! **Invariant:** their JSON form, which journals and transcripts hold, has no credentials and no cookies.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bc_proto::rules::ask;
use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::capability::{Answer, Error};

/// A request as it is to be sent.
#[derive(Debug)]
pub struct Request {
    /// `GET`
    pub method: String,
    /// Scheme, host, port, path and query. Its origin is the one that the grants allowed.
    pub url: String,
    /// Names in lower case. The host's own are not among them.
    pub headers: Vec<(String, String)>,
    /// All of it.
    pub body: Bytes,
    /// How long it may take, the whole answer included.
    pub timeout: Duration,
    /// The most bytes of the answer's body.
    pub max_response_bytes: usize,
    /// Whether what is longer is cut off; else it is an error.
    pub cut: bool,
    /// What is to stand in `Authorization`.
    pub credentials: Option<Credentials>,
}

/// The value of `Authorization`. Never shown.
#[derive(Clone)]
pub struct Credentials(Zeroizing<String>);

impl Credentials {
    /// `user:password` is HTTP's Basic; what holds no colon is a Bearer token.
    pub fn from_secret(value: &str) -> Self {
        Self(Zeroizing::new(if value.contains(':') {
            format!("Basic {}", STANDARD.encode(value))
        } else {
            format!("Bearer {value}")
        }))
    }

    /// The value itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// A server's answer, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// 100 to 999.
    pub status: u16,
    /// Names in lower case; several of one name stand beside each other.
    #[serde(serialize_with = "without_private")]
    pub headers: Vec<(String, String)>,
    /// All of it, unless it was cut off.
    pub body: Body,
    /// Whether it was.
    #[serde(default)]
    pub truncated: bool,
    /// Whether it stands for the answer to a request that a plan did not send.
    #[serde(default)]
    pub planned: bool,
}

/// A body: text where it is UTF-8, so that people can read a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Base64(String),
}

impl Body {
    /// Takes bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(STANDARD.encode(error.as_bytes())),
        }
    }

    /// About how many bytes it has in memory.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Base64(text) => text.len(),
        }
    }

    /// The bytes. Errors when a transcript that someone wrote holds no base64.
    pub(super) fn into_bytes(self) -> Answer<Bytes> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Base64(text) => STANDARD
                .decode(text)
                .map(Bytes::from)
                .map_err(|error| Error::new("response-malformed", format!("the recorded body is no base64: {error}"))),
        }
    }
}

/// What stands for a private header's value.
pub(super) const REDACTED: &str = "[redacted]";

/// Headers as journals and transcripts hold them.
pub(super) fn shown(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    let shown = |name, value| (name, if ask::is_private(name) { REDACTED } else { value });
    headers.iter().map(|(name, value)| shown(name.as_str(), value.as_str())).collect()
}

fn without_private<S: Serializer>(headers: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    shown(headers).serialize(serializer)
}
