//! Whom an upload believes: the system's authorities, or those of a file.
//!
//! **Invariant:** certificates are judged by server time, as far as it is known: a machine's own clock may be wrong by any amount.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};

use crate::node::now_ms;
use crate::server_time::ServerTime;

/// No server time is earlier: the beginning of 2000.
const KNOWN_MS: u64 = 946_684_800_000;

/// TLS towards stores. Errors when the file of authorities cannot be used.
pub(super) fn config(ca_file: Option<&Path>, time: ServerTime) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = ca_file {
        let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
        let certificates = read().with_context(|| format!("`uploads.ca-file`: {} cannot be read", file.display()))?;
        anyhow::ensure!(!certificates.is_empty(), "`uploads.ca-file`: {} holds no certificate", file.display());
        for certificate in certificates {
            roots.add(certificate).with_context(|| format!("`uploads.ca-file`: {}", file.display()))?;
        }
    } else {
        // A machine without any can still upload to a store without TLS; with TLS the error says that the issuer is unknown.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(ByServer(time)))
        .with_safe_default_protocol_versions()
        .context("TLS cannot be set up")?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

struct ByServer(ServerTime);

impl fmt::Debug for ByServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByServer")
    }
}

impl TimeProvider for ByServer {
    fn current_time(&self) -> Option<UnixTime> {
        let told_ms = self.0.at(Instant::now());
        let now_ms = if told_ms >= KNOWN_MS { told_ms } else { now_ms() };
        Some(UnixTime::since_unix_epoch(Duration::from_millis(now_ms)))
    }
}
