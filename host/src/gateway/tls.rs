//! The listener: TLS 1.3, with the node's certificate where there is one.
//!
//! **Invariant:** a client certificate of another authority gets no further than the handshake, and a handshake that is not done
//! holds up no other.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bc_proto::wire::GATEWAY_NAME;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::service::Service;
use super::{Gateway, Inner};
use crate::grpc::node_gateway_server::NodeGatewayServer;
use crate::tls;

/// How often the gateway's certificate is renewed: a third of its validity.
const RENEWAL: Duration = Duration::from_hours(30 * 24);

/// How long open calls may go on after the listener stopped.
const GRACE: Duration = Duration::from_secs(5);

/// The largest message of a node, bytes.
const MAX_MESSAGE: usize = 4 * 1_024 * 1_024;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The authority.
    #[error("the gateway could not be certified")]
    Authority(#[from] crate::pki::Error),
    /// TLS.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// The server.
    #[error("the gateway's server ended")]
    Server(#[from] tonic::transport::Error),
}

impl Gateway {
    /// Serves nodes on a listener until `stop`; open calls get a few seconds more.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) -> Result<(), ServeError> {
        let certificate = Arc::new(Current { certified: RwLock::new(certify(&self.inner)?) });
        let acceptor = acceptor(&self.inner, certificate.clone())?;
        let (connections, accepted) = mpsc::channel(16);
        let stopped = stop.child_token();
        let _guard = stopped.clone().drop_guard();
        tokio::spawn(stopped.clone().run_until_cancelled_owned(tls::accept(listener, acceptor, connections)));
        tokio::spawn(stopped.run_until_cancelled_owned(renew(self.inner.clone(), certificate)));
        let service = NodeGatewayServer::new(Service { gateway: self.inner.clone() });
        let incoming = ReceiverStream::new(accepted).map(|(stream, _)| Ok::<_, std::io::Error>(stream));
        // Windows and buffers are small: most of ten thousand sessions are idle, and results are small.
        let serving = Server::builder()
            .initial_stream_window_size(64 * 1_024)
            .initial_connection_window_size(128 * 1_024)
            .max_concurrent_streams(32)
            .http2_max_header_list_size(8 * 1_024)
            .http2_keepalive_interval(Some(Duration::from_mins(1)))
            .http2_keepalive_timeout(Some(Duration::from_secs(20)))
            .add_service(service.max_decoding_message_size(MAX_MESSAGE))
            .serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
        let overdue = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            ended = serving => Ok(ended?),
            () = overdue => Ok(()),
        }
    }
}

/// The certificate of now.
#[derive(Debug)]
struct Current {
    certified: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

async fn renew(gateway: Arc<Inner>, current: Arc<Current>) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        match certify(&gateway) {
            Ok(certified) => *current.certified.write().unwrap_or_else(PoisonError::into_inner) = certified,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the gateway's certificate was not renewed");
            }
        }
    }
}

/// A new certificate for the gateway; the authority's goes with it, since a machine that joins knows that one's hash.
fn certify(gateway: &Inner) -> Result<Arc<CertifiedKey>, ServeError> {
    let mut hosts = vec![GATEWAY_NAME.to_owned()];
    hosts.extend(gateway.settings.hosts.iter().cloned());
    let (certificate, key) = gateway.authority.issue_gateway(hosts, gateway.world.bytes(), gateway.world.now())?;
    let tls = |error: &dyn std::fmt::Display| ServeError::Tls(error.to_string());
    let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| tls(&error))?;
    let authority = CertificateDer::from(gateway.authority.certificate_der().to_vec());
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| tls(&error))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| tls(&error))?;
    Ok(Arc::new(CertifiedKey::new(vec![leaf, authority], key)))
}

fn acceptor(gateway: &Inner, certificate: Arc<Current>) -> Result<TlsAcceptor, ServeError> {
    let tls = |error: &dyn std::fmt::Display| ServeError::Tls(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(gateway.authority.certificate_der())).map_err(|error| tls(&error))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| tls(&error))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| tls(&error))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Sessions last: nothing is resumed, so nothing is kept for it.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
