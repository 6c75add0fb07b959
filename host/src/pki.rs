//! The control plane's certificate authority: who a node is, and who a gateway is.
//!
//! A node makes its key itself and sends a certificate request; the key never leaves it. What the request says of names is
//! ignored: the authority writes the node's id and its life into the certificate, and a session reads them back from the
//! certificate that TLS has verified.
//!
//! **Invariant:** a name in a certificate is the authority's word, never the requester's.

use std::time::Duration;

use bc_proto::id::NodeId;
use bc_proto::sign::PublicKey;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::OID_SIG_ED25519;

/// How long a node's certificate holds. Nothing renews it yet: the machine joins again before that.
pub const NODE_VALIDITY: Duration = Duration::from_hours(90 * 24);

/// How long the authority's own certificate holds.
const AUTHORITY_VALIDITY: Duration = Duration::from_hours(10 * 365 * 24);

/// Certificates count from a little earlier, so that a node whose clock is behind can use its own at once.
const BACKDATED: Duration = Duration::from_hours(24);

/// The scheme of the URI that names a node: `bc-node:node_…/<incarnation>`.
const NODE_SCHEME: &str = "bc-node:";

/// Why something was not certified or read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("the certificate request cannot be used: {0}")]
    Request(rcgen::Error),
    #[error("the certificate authority cannot be used: {0}")]
    Authority(rcgen::Error),
    #[error("the client certificate names no node of this control plane")]
    NotANode,
    #[error("the certificate is of no Ed25519 key")]
    NotEd25519,
}

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_der: Vec<u8>,
    certificate_pem: String,
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// The end of its validity.
    pub not_after: OffsetDateTime,
}

/// Who a verified client certificate says its holder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The node.
    pub node: NodeId,
    /// The life of it that the certificate was issued for.
    pub incarnation: u64,
}

impl Authority {
    /// Makes a new authority. Answers it with its private key, PEM, for whoever keeps it.
    pub fn create(serial: [u8; 16], now: OffsetDateTime) -> Result<(Self, String), Error> {
        let key = KeyPair::generate().map_err(Error::Authority)?;
        let key_pem = key.serialize_pem();
        let mut params = params("better-compute node authority", serial, now, AUTHORITY_VALIDITY);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(Error::Authority)?;
        Ok((Self::of(certificate.pem(), certificate.der().to_vec(), Issuer::new(params, key)), key_pem))
    }

    /// Takes up an authority that was made earlier.
    pub fn open(certificate_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let key = KeyPair::from_pem(key_pem).map_err(Error::Authority)?;
        let (_, pem) = x509_parser::pem::parse_x509_pem(certificate_pem.as_bytes())
            .map_err(|_| Error::Authority(rcgen::Error::CouldNotParseCertificate))?;
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key).map_err(Error::Authority)?;
        Ok(Self::of(certificate_pem.to_owned(), pem.contents, issuer))
    }

    fn of(certificate_pem: String, certificate_der: Vec<u8>, issuer: Issuer<'static, KeyPair>) -> Self {
        Self { issuer, certificate_der, certificate_pem }
    }

    /// Its certificate, PEM: what nodes and gateways trust.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The same, DER.
    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate_der
    }

    /// Certifies a node's key for one life of the node. Errors when the request is damaged or not signed by its own key.
    pub fn issue_node(
        &self,
        request_der: &[u8],
        peer: Peer,
        serial: [u8; 16],
        now: OffsetDateTime,
    ) -> Result<Issued, Error> {
        let mut request = CertificateSigningRequestParams::from_der(&request_der.into()).map_err(Error::Request)?;
        let mut certified = params(&peer.node.to_string(), serial, now, NODE_VALIDITY);
        let name = format!("{NODE_SCHEME}{}/{}", peer.node, peer.incarnation);
        certified.subject_alt_names = vec![SanType::URI(name.try_into().map_err(Error::Authority)?)];
        certified.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        certified.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        request.params = certified;
        let certificate = request.signed_by(&self.issuer).map_err(Error::Authority)?;
        Ok(Issued { der: certificate.der().to_vec(), not_after: now + NODE_VALIDITY })
    }

    /// A gateway's certificate for the host names and addresses that nodes reach it by, and its private key, both PEM.
    pub fn issue_gateway(
        &self,
        hosts: Vec<String>,
        serial: [u8; 16],
        now: OffsetDateTime,
    ) -> Result<(String, String), Error> {
        let key = KeyPair::generate().map_err(Error::Authority)?;
        let named = CertificateParams::new(hosts).map_err(Error::Request)?;
        let mut certified = params("better-compute gateway", serial, now, NODE_VALIDITY);
        certified.subject_alt_names = named.subject_alt_names;
        certified.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        certified.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = certified.signed_by(&key, &self.issuer).map_err(Error::Authority)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// Reads who a client certificate is for. TLS has verified it against the authority before.
pub fn peer(certificate_der: &[u8]) -> Result<Peer, Error> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate_der).map_err(|_| Error::NotANode)?;
    let names = certificate.subject_alternative_name().ok().flatten().ok_or(Error::NotANode)?;
    let node = names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(NODE_SCHEME),
        _ => None,
    });
    let (node, incarnation) = node.and_then(|node| node.split_once('/')).ok_or(Error::NotANode)?;
    Ok(Peer {
        node: node.parse().map_err(|_| Error::NotANode)?,
        incarnation: incarnation.parse().map_err(|_| Error::NotANode)?,
    })
}

/// The Ed25519 key in a node's certificate, with which the node signs what it says. Errors for a key of another sort.
pub fn node_key(certificate_der: &[u8]) -> Result<PublicKey, Error> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate_der).map_err(|_| Error::NotANode)?;
    let key = certificate.public_key();
    if key.algorithm.algorithm != OID_SIG_ED25519 {
        return Err(Error::NotEd25519);
    }
    let bytes = <[u8; 32]>::try_from(key.subject_public_key.data.as_ref()).map_err(|_| Error::NotEd25519)?;
    PublicKey::from_bytes(bytes).map_err(|_| Error::NotEd25519)
}

fn params(common_name: &str, serial: [u8; 16], now: OffsetDateTime, validity: Duration) -> CertificateParams {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    // A serial number is positive: the first bit would be its sign.
    let mut serial = serial;
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = now - BACKDATED;
    params.not_after = now + validity;
    params.use_authority_key_identifier_extension = true;
    params
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::{CertificateDer, UnixTime};
    use rustls::server::WebPkiClientVerifier;
    use sqlx::types::Uuid;
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::days(20_000));

    fn authority() -> Authority {
        Authority::create([1; 16], NOW).expect("an authority").0
    }

    fn node() -> Peer {
        Peer { node: NodeId::from_uuid(Uuid::from_u128(7)), incarnation: 3 }
    }

    fn request(key: &KeyPair, name: &str) -> Vec<u8> {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.serialize_request(key).expect("a request").der().to_vec()
    }

    /// As a gateway's TLS would.
    fn verify(authority: &Authority, certificate: &[u8], at: OffsetDateTime) -> Result<(), rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from(authority.certificate_der())).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
        let seconds = u64::try_from(at.unix_timestamp()).expect("after 1970");
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier.verify_client_cert(&CertificateDer::from(certificate), &[], at).map(drop)
    }

    #[test]
    fn a_certificate_names_the_node_that_the_authority_says_and_not_the_one_requested() {
        let (authority, key) = (authority(), KeyPair::generate().expect("a key"));
        let issued =
            authority.issue_node(&request(&key, "node-of-somebody-else"), node(), [2; 16], NOW).expect("issued");
        assert_eq!(peer(&issued.der).ok(), Some(node()));
        verify(&authority, &issued.der, NOW).expect("TLS takes it");
        let (_, read) = x509_parser::parse_x509_certificate(&issued.der).expect("it parses");
        assert!(!format!("{read:?}").contains("somebody-else"));
    }

    #[test]
    fn a_certificate_is_refused_out_of_its_time_and_by_another_authority() {
        let (authority, key) = (authority(), KeyPair::generate().expect("a key"));
        let issued = authority.issue_node(&request(&key, "x"), node(), [2; 16], NOW).expect("issued");
        verify(&authority, &issued.der, issued.not_after + Duration::from_secs(1)).expect_err("it is over");
        verify(&authority, &issued.der, NOW - 2 * BACKDATED).expect_err("it has not begun");
        let other = Authority::create([9; 16], NOW).expect("an authority").0;
        verify(&other, &issued.der, NOW).expect_err("another authority's");
    }

    /// The frame around the signed part and the signature may be written in more than one way, which changes nothing that is
    /// certified: only these two are damaged here.
    #[test]
    fn a_request_that_its_own_key_did_not_sign_is_refused() {
        let good = request(&KeyPair::generate().expect("a key"), "x");
        let (_, parsed) = X509CertificationRequest::from_der(&good).expect("it parses");
        let inside = |part: &[u8]| {
            let at = part.as_ptr() as usize - good.as_ptr() as usize;
            at..at + part.len()
        };
        let signed = inside(parsed.certification_request_info.raw);
        let signature = inside(&parsed.signature_value.data);
        for at in signed.chain(signature) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let refused = authority().issue_node(&bad, node(), [2; 16], NOW);
            assert!(matches!(refused, Err(Error::Request(_))), "byte {at} was damaged");
        }
        authority().issue_node(b"no request", node(), [2; 16], NOW).map(drop).expect_err("it is none");
    }

    #[test]
    fn an_authority_that_was_kept_signs_as_before() {
        let (made, key_pem) = Authority::create([1; 16], NOW).expect("an authority");
        let kept = Authority::open(made.certificate_pem(), &key_pem).expect("it opens");
        let key = KeyPair::generate().expect("a key");
        let issued = kept.issue_node(&request(&key, "x"), node(), [2; 16], NOW).expect("issued");
        verify(&made, &issued.der, NOW).expect("the same authority");
        assert!(Authority::open("nothing", &key_pem).is_err() && Authority::open(made.certificate_pem(), "").is_err());
    }

    #[test]
    fn a_gateways_certificate_makes_no_node() {
        let authority = authority();
        let (certificate, _) = authority.issue_gateway(vec!["localhost".into()], [4; 16], NOW).expect("issued");
        let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).expect("it is PEM");
        assert!(matches!(peer(&pem.contents), Err(Error::NotANode)));
        verify(&authority, &pem.contents, NOW).expect_err("it is for servers");
        assert!(matches!(peer(b""), Err(Error::NotANode)));
    }
}
