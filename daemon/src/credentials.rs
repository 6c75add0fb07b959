//! What the node proves itself with now: its key and its certificate. A renewal replaces both while the daemon runs.
//!
//! **Invariant:** key and certificate change together, and only to those of the same node and life.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bc_proto::certificate::NodeCertificate;
use bc_proto::sign::{Body, SecretKey, Signature};

use crate::identity::Identity;

/// A key with its certificate.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) key: SecretKey,
    pub(crate) certificate: NodeCertificate,
    tls: tonic::transport::Identity,
}

/// The pair of now; clones are handles to one.
#[derive(Debug, Clone)]
pub struct Credentials(Arc<ArcSwap<Pair>>);

impl Credentials {
    /// Those of an identity that was read.
    pub fn new(identity: &Identity) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Pair::of(identity))))
    }

    /// Takes up a renewed identity.
    pub(crate) fn replace(&self, identity: &Identity) {
        self.0.store(Arc::new(Pair::of(identity)));
    }

    pub(crate) fn now(&self) -> Arc<Pair> {
        self.0.load_full()
    }

    /// What TLS shows of it.
    pub(crate) fn tls(&self) -> tonic::transport::Identity {
        self.0.load().tls.clone()
    }

    /// Signs with the key of now, as this node.
    pub fn sign<B: Body>(&self, body: &B) -> Signature {
        self.0.load().key.sign(body)
    }
}

impl Pair {
    fn of(identity: &Identity) -> Self {
        Self {
            key: identity.key.clone(),
            certificate: identity.certificate.clone(),
            tls: tonic::transport::Identity::from_pem(&identity.chain_pem, &identity.key_pem),
        }
    }
}
