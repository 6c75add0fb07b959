//! Support bundles: the files that commands upload, in an S3 store that the nodes write to themselves.
//!
//! The control plane names the object and makes the URLs; the bytes go past it. `bundles.*` of the API reads them again.
//!
//! **Invariant:** a URL allows to write one object until an end, and stands in no row, no log and no answer of the API: whoever
//! delivers a command makes it then. The store's key leaves this module in signatures alone.

pub mod archive;
mod key;
mod settings;
mod store;

use bc_proto::id::NodeId;
use bc_proto::manifest::Manifest;
use bc_proto::wire::PresignedUrl;
use jiff::Timestamp;
use reqwest::Url;
use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};
use time::OffsetDateTime;

pub use self::key::support_bundle_key;
pub use self::settings::{BadSettings, MAX_BYTES, Settings};
pub use self::store::{Failed, Found, Object};
use crate::store::unix_ms;

/// How long a URL is good for past the command's `not_after`, or past now where that is later.
const GRACE: time::Duration = time::Duration::minutes(15);

/// The longest that S3 lets a URL be good for.
const LONGEST: time::Duration = time::Duration::days(7);

/// Where the file of a command goes, as it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Scheme, host, port where it is not the scheme's own, and path.
    pub object: String,
    /// The most bytes.
    pub max_bytes: u64,
}

/// The store. Clones are handles to one.
#[derive(Clone)]
pub struct Store {
    bucket: Bucket,
    credentials: Credentials,
    max_bytes: u64,
    http: reqwest::Client,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("bucket", &self.bucket.base_url().as_str()).finish_non_exhaustive()
    }
}

impl Store {
    /// Checks the settings; nothing is sent yet.
    pub fn new(settings: Settings) -> Result<Self, BadSettings> {
        let checked = settings.checked()?;
        Ok(Self {
            bucket: checked.bucket,
            credentials: checked.credentials,
            max_bytes: checked.max_bytes,
            http: checked.http,
        })
    }

    /// The most bytes of one bundle.
    pub const fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Where the file of a command goes; `None` for a kind that uploads nothing.
    pub fn destination(&self, node: NodeId, idempotency_key: &str, manifest: &Manifest) -> Option<Destination> {
        let asked = manifest.capabilities.upload.as_ref()?;
        let object = self.bucket.object_url(&support_bundle_key(node, idempotency_key)).into();
        let most = asked.max_bytes.map_or(u64::MAX, |it| it.0);
        Some(Destination { object, max_bytes: self.max_bytes.min(most) })
    }

    /// A URL for one PUT to an object, and until when it is good for, milliseconds since the Unix epoch. `None` for an object
    /// that is not in this store: the settings were others when its command was queued.
    pub fn presign(&self, object: &str, not_after: OffsetDateTime, now: OffsetDateTime) -> Option<(PresignedUrl, u64)> {
        let key = self.key_of(object)?;
        let lasts = (not_after.max(now) + GRACE - now).min(LONGEST);
        let put = self.bucket.put_object(Some(&self.credentials), key);
        let (at, lasts) = (timestamp(now)?, lasts.unsigned_abs());
        let url = String::from(put.sign_with_time(lasts, &at));
        // The signature counts whole seconds.
        let expires_ms = unix_ms(now) / 1000 * 1000 + lasts.as_secs() * 1000;
        Some((PresignedUrl::new(url), expires_ms))
    }

    /// The key of an object of this store.
    fn key_of<'a>(&self, object: &'a str) -> Option<&'a str> {
        let key = object.strip_prefix(self.bucket.base_url().as_str())?;
        (self.bucket.object_url(key).as_str() == object).then_some(key)
    }
}

/// A time as S3 signs it, in whole seconds.
fn timestamp(at: OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_second(at.unix_timestamp()).ok()
}

/// `https://host:port/bucket/` or `https://bucket.host/`.
fn bucket(endpoint: Url, path_style: bool, name: &str, region: &str) -> Result<Bucket, rusty_s3::BucketError> {
    let style = if path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
    Bucket::new(endpoint, style, name.to_owned(), region.to_owned())
}

#[cfg(test)]
pub(crate) mod tests;
