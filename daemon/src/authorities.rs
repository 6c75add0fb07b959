//! The certificate authorities that the machine itself believes.
//!
//! **Invariant:** a machine without any is no error: a ramdisk has none, and reaches what needs no TLS all the same. With TLS the error
//! of the call says that the issuer is not known.

use reqwest::Certificate;

/// All of them; none where the machine has none.
pub(crate) fn of_system() -> Vec<Certificate> {
    let found = rustls_native_certs::load_native_certs();
    found.certs.iter().filter_map(|certificate| Certificate::from_der(certificate).ok()).collect()
}
