//! Where a command's file goes.
//!
//! **Invariant:** a URL writes to the object that was signed and to nothing else: what stands before its query is the object.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::checked::invalid;
use super::{Invalid, v1};

/// Where the one file of a command goes. Its serde form is the one in which the node's journal keeps it: without the URL, which whoever
/// reads the disk could use. Who takes it from there asks for a fresh one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Scheme, host, port where it is not the scheme's own, and path.
    pub object: String,
    /// The most bytes.
    pub max_bytes: u64,
    /// The object with a query that allows one PUT.
    #[serde(skip)]
    pub url: PresignedUrl,
    /// Until when the URL is good for, milliseconds since the Unix epoch, server time.
    #[serde(skip)]
    pub url_expires_ms: u64,
}

/// A URL that gives whoever has it the right to write: its query stands in no log and no message.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PresignedUrl(String);

impl PresignedUrl {
    /// Takes what a signer made.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// All of it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Without the query.
    pub fn object(&self) -> &str {
        self.0.split(['?', '#']).next().unwrap_or_default()
    }
}

impl fmt::Debug for PresignedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}?[redacted]", self.object())
    }
}

impl TryFrom<v1::Upload> for Upload {
    type Error = Invalid;

    fn try_from(upload: v1::Upload) -> Result<Self, Invalid> {
        const M: &str = "Upload";
        let url = PresignedUrl(upload.url);
        if !upload.object.starts_with("https://") && !upload.object.starts_with("http://") {
            return Err(invalid(M, "object", "must be an http or https URL"));
        }
        if url.object() != upload.object {
            return Err(invalid(M, "url", "must be the object with a query"));
        }
        if upload.max_bytes == 0 {
            return Err(invalid(M, "max_bytes", "must be more than 0"));
        }
        Ok(Self { object: upload.object, max_bytes: upload.max_bytes, url, url_expires_ms: upload.url_expires_ms })
    }
}

impl From<Upload> for v1::Upload {
    fn from(upload: Upload) -> Self {
        Self {
            object: upload.object,
            max_bytes: upload.max_bytes,
            url: upload.url.0,
            url_expires_ms: upload.url_expires_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_writes_to_its_object_alone_and_is_not_shown() {
        let message = |object: &str, url: &str, max_bytes| {
            let (object, url) = (object.to_owned(), url.to_owned());
            Upload::try_from(v1::Upload { object, max_bytes, url, url_expires_ms: 5 })
        };
        let good = message("https://s3.example/b/k", "https://s3.example/b/k?sig=secret", 1).expect("it is right");
        assert!(!format!("{good:?}").contains("secret"));
        let kept = serde_json::to_string(&good).expect("text and a number");
        assert!(!kept.contains("secret"), "{kept}");
        let back: Upload = serde_json::from_str(&kept).expect("it was written so");
        assert_eq!((back.object.as_str(), back.url_expires_ms), ("https://s3.example/b/k", 0), "its URL is over");
        assert_eq!(Upload::try_from(v1::Upload::from(good.clone())), Ok(good));
        for (object, url, max_bytes, field) in [
            ("ftp://s3.example/b/k", "ftp://s3.example/b/k", 1, "object"),
            ("https://s3.example/b/k", "https://s3.example/b/other?sig=1", 1, "url"),
            ("https://s3.example/b/k", "https://evil.example/b/k?sig=1", 1, "url"),
            ("https://s3.example/b/k", "https://s3.example/b/k/../x?sig=1", 1, "url"),
            ("https://s3.example/b/k", "https://s3.example/b/k?sig=1", 0, "max_bytes"),
        ] {
            assert_eq!(message(object, url, max_bytes).expect_err(url).field, field);
        }
    }
}
