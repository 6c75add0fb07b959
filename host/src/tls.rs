//! TLS for listeners: handshakes beside each other, and what the API's own certificate needs.
//!
//! **Invariant:** a handshake that is not done holds up no other, and one that hangs ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
pub use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The most handshakes at a time. More wait in the kernel's queue.
const HANDSHAKES: usize = 256;

/// The wait after the kernel gave no connection, for example for want of file descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unusable {
    #[error("the certificate cannot be read as PEM: {0}")]
    Certificate(rustls::pki_types::pem::Error),
    #[error("the private key cannot be read as PEM: {0}")]
    Key(rustls::pki_types::pem::Error),
    #[error("the certificate and the key cannot be used together: {0}")]
    Pair(rustls::Error),
}

/// What shows a certificate to whoever connects over HTTPS: its chain and its key, both PEM. TLS 1.3 alone.
pub fn acceptor(chain_pem: &[u8], key_pem: &[u8]) -> Result<TlsAcceptor, Unusable> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem).collect();
    let chain = chain.map_err(Unusable::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(Unusable::Key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Unusable::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(Unusable::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections and shakes hands, many at a time, for as long as it is polled.
pub(crate) async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    connections: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let hands = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(hand) = hands.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let (acceptor, connections) = (acceptor.clone(), connections.clone());
        tokio::spawn(async move {
            let _hand = hand;
            // Frames are small, and each is worth sending at once.
            let _ = stream.set_nodelay(true);
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let _ = connections.send((stream, peer)).await;
                }
                Ok(Err(error)) => tracing::info!(%error, "a TLS handshake failed"),
                Err(_) => tracing::info!("a TLS handshake took too long"),
            }
        });
    }
}

/// A listener of HTTPS for axum.
pub struct Https {
    address: SocketAddr,
    connections: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    _accepting: DropGuard,
}

impl Https {
    /// Begins to accept.
    pub fn listen(listener: TcpListener, acceptor: TlsAcceptor) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let (shaken, connections) = mpsc::channel(16);
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, acceptor, shaken)));
        Ok(Self { address, connections, _accepting: stop.drop_guard() })
    }
}

impl Listener for Https {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // Only when the runtime ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn pair() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(["api.example".to_owned()]).expect("a name").self_signed(&key);
        (certificate.expect("a certificate").pem(), key.serialize_pem())
    }

    #[test]
    fn a_certificate_is_used_with_its_own_key_alone() {
        let ((certificate, key), (_, other)) = (pair(), pair());
        let why = |chain: &str, key: &str| acceptor(chain.as_bytes(), key.as_bytes()).err().map(|it| it.to_string());
        assert_eq!(why(&certificate, &key), None);
        let mixed = why(&certificate, &other).expect("the key is another one");
        assert!(mixed.starts_with("the certificate and the key cannot be used together"), "{mixed}");
        assert!(why(&certificate, &certificate).is_some_and(|it| it.starts_with("the private key")));
        assert!(why("", &key).is_some());
    }
}
