//! What the operator says of the store.
//!
//! **Invariant:** what is wrong is found before anything is served, and the message names the key of the settings and its rule;
//! no message and no debug output holds the secret.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;
use rusty_s3::{Bucket, Credentials};

/// The most bytes of a bundle where nothing is said: 256 MiB.
pub const MAX_BYTES: u64 = 256 << 20;

/// The most that one PUT of S3 takes: 5 GiB.
const MOST: u64 = 5 << 30;

/// The least that holds a bundle with anything in it: 64 KiB.
const LEAST: u64 = 64 << 10;

/// How long the store may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// How long it may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// The settings of a store, as text.
#[derive(Clone)]
pub struct Settings {
    /// `https://s3.example`; nodes and this replica both reach it there.
    pub endpoint: String,
    /// What signatures name; stores without regions take any.
    pub region: String,
    /// The bucket, which is there.
    pub bucket: String,
    /// `endpoint/bucket/key` rather than `bucket.endpoint/key`.
    pub path_style: bool,
    /// The most bytes of one bundle.
    pub max_bytes: u64,
    /// The access key's name.
    pub access_key_id: String,
    /// The access key.
    pub secret_access_key: String,
    /// Certificates of the only authorities that the store's may come from, PEM; those of the system where it is absent.
    pub ca_pem: Option<Vec<u8>>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("endpoint", &self.endpoint)
            .field("bucket", &self.bucket)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// What is wrong with them.
#[derive(Debug, thiserror::Error)]
#[error("support-bundles.{key}: {rule}")]
pub struct BadSettings {
    /// The key.
    pub key: &'static str,
    /// Its rule.
    pub rule: String,
}

fn bad(key: &'static str, rule: impl Into<String>) -> BadSettings {
    BadSettings { key, rule: rule.into() }
}

/// The settings as the store uses them.
pub(super) struct Checked {
    pub(super) bucket: Bucket,
    pub(super) credentials: Credentials,
    pub(super) max_bytes: u64,
    pub(super) http: reqwest::Client,
}

impl Settings {
    pub(super) fn checked(self) -> Result<Checked, BadSettings> {
        let endpoint: Url =
            self.endpoint.parse().map_err(|_| bad("endpoint", "must be a URL, such as https://s3.example"))?;
        let is_plain = endpoint.scheme() == "http";
        if !is_plain && endpoint.scheme() != "https" {
            return Err(bad("endpoint", "must begin with https://, or http:// on this machine"));
        }
        if !endpoint.username().is_empty() || endpoint.password().is_some() {
            return Err(bad("endpoint", "must hold no user and no password; they would travel to the nodes"));
        }
        if endpoint.query().is_some() || endpoint.fragment().is_some() {
            return Err(bad("endpoint", "must end with its path, without `?` and `#`"));
        }
        if is_plain && !is_loopback(&endpoint) {
            let rule = "must begin with https://: bundles would travel in plain text. http:// is for 127.0.0.1 alone";
            return Err(bad("endpoint", rule));
        }
        let is_region = (1..=64).contains(&self.region.len())
            && self.region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_region {
            return Err(bad(
                "region",
                "must be a region's name, such as us-east-1; stores without regions take that one",
            ));
        }
        if !is_bucket(&self.bucket) {
            return Err(bad(
                "bucket",
                "must have 3 to 63 characters of a-z, 0-9, `.` and `-`, letters or digits at both ends",
            ));
        }
        if !(LEAST..=MOST).contains(&self.max_bytes) {
            return Err(bad("max-bytes", "must be between 64KiB and 5GiB, which is the most that S3 takes at once"));
        }
        for (key, text) in [("access-key-id", &self.access_key_id), ("secret-access-key", &self.secret_access_key)] {
            if text.is_empty() || text.len() > 512 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(bad(key, "must be one word of at most 512 characters, as the store gave it"));
            }
        }
        let bucket = super::bucket(endpoint, self.path_style, &self.bucket, &self.region).map_err(|_| {
            bad("path-style", "must be true for this endpoint: bucket and endpoint come to no host's name together")
        })?;
        let http = client(is_plain, self.ca_pem.as_deref())?;
        let credentials = Credentials::new(self.access_key_id, self.secret_access_key);
        Ok(Checked { bucket, credentials, max_bytes: self.max_bytes, http })
    }
}

/// As S3 names buckets.
fn is_bucket(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.iter().all(|&byte| is_word(byte) || byte == b'.' || byte == b'-')
        && bytes.first().zip(bytes.last()).is_some_and(|(&first, &last)| is_word(first) && is_word(last))
        && !name.contains("..")
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

fn client(is_plain: bool, ca_pem: Option<&[u8]>) -> Result<reqwest::Client, BadSettings> {
    // Fails only when somebody did it before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("better-compute/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        // A signature is for one host.
        .redirect(reqwest::redirect::Policy::none())
        // What the environment says of proxies is for people's programs.
        .no_proxy();
    if let Some(pem) = ca_pem {
        let certificates = reqwest::Certificate::from_pem_bundle(pem).unwrap_or_default();
        if certificates.is_empty() {
            return Err(bad("ca-file", "must hold certificates in PEM"));
        }
        builder = builder.tls_certs_only(certificates);
    } else if is_plain {
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| bad("ca-file", format!("no HTTP client can be made with it: {error}")))
}
