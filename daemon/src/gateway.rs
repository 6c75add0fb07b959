//! Reaching a gateway: its address, the generated client, and whom TLS believes.
//!
//! A gateway's certificate is verified against one authority and one name, whatever its address is. The time of that check is
//! not this machine's clock, which may be wrong by any amount: it is the latest server time that is known here, or the
//! beginning of the certificate's own validity where that is later.
//!
//! **Invariant:** nothing is sent, no token and no certificate of ours, before the gateway has shown a certificate of the
//! authority that this node trusts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bc_proto::wire::GATEWAY_NAME;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use tonic::transport::{ClientTlsConfig, Endpoint, Uri};

/// The generated client.
#[expect(unreachable_pub, reason = "generated; node.proto holds the documentation")]
pub(crate) mod rpc {
    include!(concat!(env!("OUT_DIR"), "/client/better_compute.node.v1.rs"));
}

/// How long a connection may take, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection that says nothing is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How long the answer may take.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// An address that cannot be one of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no gateway's address: it has the form https://host:port")]
pub struct BadAddress(String);

/// A gateway's address, `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(Uri);

impl std::str::FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let is_bare = uri.path_and_query().is_none_or(|path| path == "/");
        let has_user = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
        if uri.scheme_str() == Some("https") && is_bare && !has_user && uri.port_u16().is_some() {
            Ok(Self(uri))
        } else {
            Err(bad())
        }
    }
}

impl<'de> serde::Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.0.authority().map_or("", |authority| authority.as_str()))
    }
}

/// Where and how to connect. `identity` is shown to gateways that ask for one, once they are verified.
pub(crate) fn endpoint(
    address: &Address,
    verifier: Arc<Verifier>,
    identity: Option<tonic::transport::Identity>,
) -> Result<Endpoint, tonic::transport::Error> {
    let tls = ClientTlsConfig::new().domain_name(GATEWAY_NAME).timeout(CONNECT_TIMEOUT);
    let tls = match identity {
        Some(identity) => tls.identity(identity),
        None => tls,
    };
    Ok(Endpoint::from(address.0.clone())
        .tls_config_with_verifier(tls, verifier)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// An error with its causes, in one line: a transport's own message says only that it failed.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// The latest server time that is known, milliseconds since the Unix epoch; 0 for none.
pub(crate) type Known = Box<dyn Fn() -> u64 + Send + Sync>;

/// Whom TLS believes.
pub struct Verifier {
    trust: Trust,
    known_ms: Known,
    provider: Arc<CryptoProvider>,
}

enum Trust {
    /// The authority whose certificate has this SHA-256, and whether a gateway showed another one.
    Pin { sha256: [u8; 32], missed: AtomicBool },
    /// This authority.
    Authority(Arc<WebPkiServerVerifier>),
}

/// The gateway belongs to another authority than the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gateway shows no certificate of the authority that the token names")]
pub struct WrongAuthority;

impl Verifier {
    /// Believes the authority whose certificate has this SHA-256.
    pub(crate) fn of_pin(sha256: [u8; 32]) -> Arc<Self> {
        Self::of(Trust::Pin { sha256, missed: AtomicBool::new(false) }, Box::new(|| 0))
    }

    /// Believes this authority. Errors when the certificate is none.
    pub(crate) fn of_authority(certificate: CertificateDer<'static>, known_ms: Known) -> Result<Arc<Self>, Error> {
        let verifier = verifier_of(certificate, &provider())?;
        Ok(Self::of(Trust::Authority(verifier), known_ms))
    }

    fn of(trust: Trust, known_ms: Known) -> Arc<Self> {
        Arc::new(Self { trust, known_ms, provider: provider() })
    }

    /// Whether a gateway showed no certificate with the pinned SHA-256.
    pub(crate) fn missed_pin(&self) -> bool {
        matches!(&self.trust, Trust::Pin { missed, .. } if missed.load(Ordering::Acquire))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn verifier_of(
    authority: CertificateDer<'static>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _asked_for: &ServerName<'_>,
        ocsp_response: &[u8],
        _wall_clock: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let name = ServerName::try_from(GATEWAY_NAME).expect("the constant is a DNS name");
        let at = UnixTime::since_unix_epoch(Duration::from_millis((self.known_ms)()));
        match &self.trust {
            Trust::Authority(verifier) => verify(verifier, end_entity, intermediates, &name, ocsp_response, at),
            Trust::Pin { sha256, missed } => {
                let pinned = intermediates.iter().find(|shown| Sha256::digest(shown)[..] == sha256[..]);
                let Some(authority) = pinned else {
                    missed.store(true, Ordering::Release);
                    let error = CertificateError::Other(OtherError(Arc::new(WrongAuthority)));
                    return Err(Error::InvalidCertificate(error));
                };
                let verifier = verifier_of(authority.clone().into_owned(), &self.provider)?;
                verify(&verifier, end_entity, intermediates, &name, ocsp_response, at)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies at a time that is at least `at`. A certificate that begins later is newer than what is known here, and its own
/// beginning is then the latest time that is known.
fn verify(
    verifier: &WebPkiServerVerifier,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    name: &ServerName<'_>,
    ocsp_response: &[u8],
    at: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let outcome = verifier.verify_server_cert(end_entity, intermediates, name, ocsp_response, at);
    match outcome {
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }))
            if not_before.as_secs() > at.as_secs() =>
        {
            verify(verifier, end_entity, intermediates, name, ocsp_response, not_before)
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    /// 2000-06-01.
    const JUNE_2000_MS: u64 = 959_817_600_000;
    const YEAR_MS: u64 = 366 * 24 * 60 * 60 * 1000;

    #[test]
    fn an_address_names_scheme_host_and_port_and_nothing_else() {
        let good: Address = "https://[::1]:7443/".parse().expect("an address");
        assert_eq!(good.to_string(), "https://[::1]:7443");
        for bad in
            ["", "gateway:7443", "http://g:1", "https://g", "https://g:1/path", "https://g:1?x", "https://me@g:1"]
        {
            assert_eq!(bad.parse::<Address>(), Err(BadAddress(bad.to_owned())));
        }
    }

    struct Authority {
        certificate: CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        fn new() -> Self {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            let certificate = params.self_signed(&key).expect("a certificate").der().clone();
            Self { certificate, issuer: Issuer::new(params, key) }
        }

        /// A gateway's certificate that is valid in 2000.
        fn gateway(&self, name: &str) -> CertificateDer<'static> {
            let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
            (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2000, 12, 31));
            params.signed_by(&KeyPair::generate().expect("a key"), &self.issuer).expect("a certificate").der().clone()
        }
    }

    fn believes(verifier: &Verifier, shown: &CertificateDer<'_>, chain: &CertificateDer<'_>) -> Result<(), Error> {
        let asked_for = ServerName::try_from("whatever.example").expect("a name");
        // The wall clock stands at the epoch.
        let wall_clock = UnixTime::since_unix_epoch(Duration::ZERO);
        verifier.verify_server_cert(shown, std::slice::from_ref(chain), &asked_for, &[], wall_clock).map(drop)
    }

    #[test]
    fn promise_19_a_certificate_s_time_is_checked_by_server_time_alone() {
        let authority = Authority::new();
        let gateway = authority.gateway(GATEWAY_NAME);
        let at = |known_ms: u64| {
            let verifier = Verifier::of_authority(authority.certificate.clone(), Box::new(move || known_ms));
            believes(&verifier.expect("an authority"), &gateway, &authority.certificate)
        };
        at(0).expect("nothing is known: it counts from the certificate's own beginning");
        at(JUNE_2000_MS).expect("it is valid");
        at(JUNE_2000_MS - YEAR_MS).expect("it is newer than what is known");
        let over = at(JUNE_2000_MS + YEAR_MS).expect_err("it is over");
        assert!(matches!(over, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })), "{over}");
    }

    #[test]
    fn only_the_authority_s_gateways_are_believed() {
        let (authority, other) = (Authority::new(), Authority::new());
        let pin = Sha256::digest(&authority.certificate).into();
        let (gateway, node) = (authority.gateway(GATEWAY_NAME), authority.gateway("node"));
        let by_pin = || Verifier::of_pin(pin);
        let by_root = || Verifier::of_authority(authority.certificate.clone(), Box::new(|| 0)).expect("an authority");
        for verifier in [by_pin(), by_root()] {
            believes(&verifier, &gateway, &authority.certificate).expect("it is one");
            assert!(!verifier.missed_pin());
            believes(&verifier, &node, &authority.certificate).expect_err("not a gateway's name");
            let foreign = other.gateway(GATEWAY_NAME);
            believes(&verifier, &foreign, &authority.certificate).expect_err("it was not signed by it");
        }
        let verifier = by_pin();
        believes(&verifier, &other.gateway(GATEWAY_NAME), &other.certificate).expect_err("another authority");
        assert!(verifier.missed_pin());
    }
}
