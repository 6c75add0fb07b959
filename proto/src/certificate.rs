//! A node's certificate: what the control plane's authority says of its holder.
//!
//! The subject's alternative name `bc-node:<node>/<incarnation>` names the node and its life. The extension
//! [`ALLOWED_KINDS_OID`], where there is one, restricts the identity: a DER `SEQUENCE OF UTF8String` of the only kinds that the
//! node accepts. It is not critical, since TLS refuses what it does not know; both sides read it themselves.
//!
//! **Invariant:** reading judges nothing: whether the authority signed it, and whether it still counts, is for the reader to check.

use x509_parser::asn1_rs::{FromDer, Oid, ToDer};
use x509_parser::extensions::GeneralName;

use crate::id::NodeId;
use crate::sign::PublicKey;

/// The extension with the allowed kinds. It lies in the arc that needs no registration (2.25); the number is 63 random bits. Only
/// certificates of better-compute's own authority are ever read, so nobody else's meaning of it can be met.
pub const ALLOWED_KINDS_OID: [u64; 3] = [2, 25, 5_268_391_307_764_402_913];

/// The scheme of the URI that names a node: `bc-node:node_…/<incarnation>`.
pub const NODE_SCHEME: &str = "bc-node:";

/// Ed25519, RFC 8410.
const ED25519_OID: [u64; 4] = [1, 3, 101, 112];

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCertificate {
    /// The node.
    pub node: NodeId,
    /// The life of it that the certificate is for.
    pub incarnation: u64,
    /// The holder's key; `None` for one that is not Ed25519, which can open sessions and sign nothing.
    pub key: Option<PublicKey>,
    /// The only kinds that the holder accepts; `None` for all.
    pub allowed_kinds: Option<Vec<String>>,
    /// From when it counts, milliseconds since the Unix epoch.
    pub not_before_ms: u64,
    /// Until when.
    pub not_after_ms: u64,
}

/// Why something is no node's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotANode {
    /// Not X.509, or it names no node.
    #[error("the certificate names no node of a control plane")]
    NoNode,
    /// The extension holds something else.
    #[error("the certificate's allowed kinds cannot be read")]
    AllowedKinds,
}

impl NodeCertificate {
    /// Reads one, DER.
    pub fn read(der: &[u8]) -> Result<Self, NotANode> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).map_err(|_| NotANode::NoNode)?;
        let names = certificate.subject_alternative_name().ok().flatten().ok_or(NotANode::NoNode)?;
        let node = names.value.general_names.iter().find_map(|name| match name {
            GeneralName::URI(uri) => uri.strip_prefix(NODE_SCHEME),
            _ => None,
        });
        let (node, incarnation) = node.and_then(|node| node.split_once('/')).ok_or(NotANode::NoNode)?;
        // Twice the same extension is an error too: of two lists nobody knows which counts.
        let extension =
            certificate.get_extension_unique(&oid(&ALLOWED_KINDS_OID)).map_err(|_| NotANode::AllowedKinds)?;
        let spki = certificate.public_key();
        let key = (spki.algorithm.algorithm == oid(&ED25519_OID)).then_some(&*spki.subject_public_key.data);
        let ms = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000);
        Ok(Self {
            node: node.parse().map_err(|_| NotANode::NoNode)?,
            incarnation: incarnation.parse().map_err(|_| NotANode::NoNode)?,
            key: key.and_then(|key| PublicKey::from_bytes(key.try_into().ok()?).ok()),
            allowed_kinds: extension.map(|it| kinds(it.value)).transpose()?,
            not_before_ms: ms(certificate.validity().not_before.timestamp()),
            not_after_ms: ms(certificate.validity().not_after.timestamp()),
        })
    }

    /// Whether its holder accepts a kind.
    pub fn allows(&self, kind: &str) -> bool {
        self.allowed_kinds.as_ref().is_none_or(|allowed| allowed.iter().any(|it| it == kind))
    }
}

/// The key that a certificate request (PKCS #10, DER) is for; `None` where it is not Ed25519, or this is no request.
pub fn requested_key(request_der: &[u8]) -> Option<PublicKey> {
    let (_, request) = x509_parser::certification_request::X509CertificationRequest::from_der(request_der).ok()?;
    let spki = &request.certification_request_info.subject_pki;
    if spki.algorithm.algorithm != oid(&ED25519_OID) {
        return None;
    }
    PublicKey::from_bytes(spki.subject_public_key.data.as_ref().try_into().ok()?).ok()
}

/// The extension's content for these kinds.
pub fn allowed_kinds_der(kinds: &[String]) -> Vec<u8> {
    kinds.to_vec().to_der_vec().expect("a list of texts is small enough for DER")
}

fn kinds(der: &[u8]) -> Result<Vec<String>, NotANode> {
    match Vec::<String>::from_der(der) {
        Ok(([], kinds)) => Ok(kinds),
        _ => Err(NotANode::AllowedKinds),
    }
}

fn oid(arcs: &[u64]) -> Oid<'static> {
    Oid::from(arcs).expect("the constants are object identifiers")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn allowed_kinds_come_back_as_they_were() {
        for list in [vec![], vec!["diag.nvml".to_owned()], vec!["é".repeat(64), "b".to_owned()]] {
            assert_eq!(kinds(&allowed_kinds_der(&list)), Ok(list));
        }
        let good = allowed_kinds_der(&["diag.nvml".to_owned()]);
        for bad in [&good[..good.len() - 1], &[&good[..], &[0]].concat(), &[4, 1, 0], &[]] {
            assert_eq!(kinds(bad), Err(NotANode::AllowedKinds), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(NodeCertificate::read(&bytes), Err(NotANode::NoNode));
            prop_assert_eq!(requested_key(&bytes), None);
        }
    }
}
