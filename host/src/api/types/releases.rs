//! Documents of the daemon's binaries.
//!
//! **Invariant:** a release is named by the SHA-256 of its file, which is what nodes check.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

/// The query of `releases.push`; the body is the file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PushRelease {
    /// The version that the binary says it is.
    pub version: String,
    /// What it runs on: `x86_64-unknown-linux-gnu`, for example.
    pub target: String,
    /// SHA-256 of the file, 64 hexadecimal digits in lower case.
    pub sha256: String,
    /// The Ed25519 key of who vouches for it, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// The signature, 128 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// `releases.list`: the newest 200.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListReleases {}

/// Names a release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseRef {
    /// SHA-256 of the file, 64 hexadecimal digits in lower case.
    pub sha256: String,
}

/// A binary of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// SHA-256 of the file, 64 hexadecimal digits.
    pub sha256: String,
    /// Its version.
    pub version: String,
    /// What it runs on.
    pub target: String,
    /// The size of the file.
    pub size_bytes: u64,
    /// The Ed25519 key of who vouches for it; absent for one that is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// Who pushed it.
    pub pushed_by: String,
    /// When it was pushed.
    #[serde(with = "time::serde::rfc3339")]
    pub pushed_at: OffsetDateTime,
}
