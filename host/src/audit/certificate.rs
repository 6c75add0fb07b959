//! A node's certificate, checked by somebody who was not there when TLS did it.
//!
//! **Invariant:** a key is taken for a node's only when the node authority's signature under its certificate holds.

use std::sync::Arc;
use std::time::Duration;

use bc_proto::certificate::NodeCertificate;
use bc_proto::id::NodeId;
use bc_proto::sign::PublicKey;
use rustls::RootCertStore;
use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;

/// Why a certificate does not count.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What should be the authority's certificate is none.
    #[error("the node authority's certificate cannot be used")]
    Authority(#[source] rustls::Error),
    /// The authority did not issue it, or not for that time.
    #[error("the node's certificate was not issued by this node authority, or does not hold for that time")]
    Chain(#[source] rustls::Error),
    /// It names no node, or is for a key of another type.
    #[error("the node's certificate is not for an Ed25519 key of a node")]
    NotANode,
}

/// The node that a certificate, DER, is for, and its key. `at_ms` is when the key was used, milliseconds since the Unix epoch.
pub fn node_key(authority_der: &[u8], certificate_der: &[u8], at_ms: u64) -> Result<(NodeId, PublicKey), Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority_der.to_vec().into()).map_err(Error::Authority)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| Error::Authority(rustls::Error::General(error.to_string())))?;
    let at = UnixTime::since_unix_epoch(Duration::from_millis(at_ms));
    let certificate = certificate_der.to_vec().into();
    verifier.verify_client_cert(&certificate, &[], at).map_err(Error::Chain)?;
    let read = NodeCertificate::read(certificate_der).map_err(|_| Error::NotANode)?;
    Ok((read.node, read.key.ok_or(Error::NotANode)?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SanType};

    use super::*;
    use crate::pki::{Authority, NODE_VALIDITY, Peer};
    use crate::store::unix_ms;
    use crate::testing::at;

    fn authority(serial: u8) -> Authority {
        Authority::create([serial; 16], at(0)).expect("an authority").0
    }

    fn certificate(authority: &Authority) -> (NodeId, Vec<u8>, KeyPair) {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let request = CertificateParams::default().serialize_request(&key).expect("a request");
        let node = NodeId::from_uuid(crate::testing::uuid());
        let peer = Peer { node, incarnation: 1 };
        (node, authority.issue_node(request.der(), peer, None, [9; 16], at(0)).expect("issued").der, key)
    }

    #[test]
    fn a_key_counts_for_its_node_under_its_own_authority_and_in_its_time_alone() {
        let (ours, other) = (authority(1), authority(2));
        let (node, der, key) = certificate(&ours);
        let now = unix_ms(at(10));
        let (found, public) = node_key(ours.certificate_der(), &der, now).expect("it holds");
        assert_eq!((found, public.as_bytes().as_slice()), (node, key.public_key_raw()));
        let late = unix_ms(at(0) + NODE_VALIDITY + Duration::from_secs(1));
        assert!(matches!(node_key(ours.certificate_der(), &der, late), Err(Error::Chain(_))));
        assert!(matches!(node_key(other.certificate_der(), &der, now), Err(Error::Chain(_))));
        assert!(matches!(node_key(b"none", &der, now), Err(Error::Authority(_))));
    }

    #[test]
    fn a_key_of_another_type_is_no_nodes_and_neither_is_a_certificate_without_a_node() {
        let (authority, key) = Authority::create([1; 16], at(0)).expect("an authority");
        let key = KeyPair::from_pem(&key).expect("a key");
        let issuer = Issuer::from_ca_cert_pem(authority.certificate_pem(), key).expect("an issuer");
        let issue = |algorithm, names: &[&str]| {
            let mut params = CertificateParams::default();
            params.subject_alt_names =
                names.iter().map(|name| SanType::URI((*name).try_into().expect("ASCII"))).collect();
            let key = KeyPair::generate_for(algorithm).expect("a key");
            let der = params.signed_by(&key, &issuer).expect("issued").der().to_vec();
            node_key(authority.certificate_der(), &der, unix_ms(at(10)))
        };
        let node = "bc-node:node_00000000000000000000000001/1";
        assert!(issue(&PKCS_ED25519, &[node]).is_ok());
        assert!(matches!(issue(&PKCS_ECDSA_P256_SHA256, &[node]), Err(Error::NotANode)));
        assert!(matches!(issue(&PKCS_ED25519, &["https://node.example"]), Err(Error::NotANode)));
    }
}
