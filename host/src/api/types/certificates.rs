//! Documents of nodes' certificates.
//!
//! **Invariant:** a certificate is named by its fingerprint; its key alone names none.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `nodes.revokeCertificate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevokeCertificate {
    /// `tenant_…`
    pub tenant_id: String,
    /// `node_…`
    pub node_id: String,
    /// SHA-256 of the certificate, 64 hexadecimal digits; absent for all that the node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// A certificate of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCertificate {
    /// SHA-256 of the certificate, 64 hexadecimal digits.
    pub fingerprint: String,
    /// The node's life that it is for.
    pub incarnation: u64,
    /// Its Ed25519 key, 64 hexadecimal digits; absent for a key of another algorithm, which attests nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The only kinds that it allows; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_kinds: Option<Vec<String>>,
    /// When it was issued.
    #[serde(with = "time::serde::rfc3339")]
    pub not_before: OffsetDateTime,
    /// The end of its validity.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// Since when it is revoked: it opens no session and attests nothing.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<OffsetDateTime>,
}

/// What `nodes.certificates` and `nodes.revokeCertificate` answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCertificates {
    /// All of the node's certificates, the newest first.
    pub items: Vec<NodeCertificate>,
}
