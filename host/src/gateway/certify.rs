//! Certifying a node's key: at its join, and again before the certificate ends.
//!
//! **Invariant:** a renewal gives what the caller's own certificate has, and no more: the same node, life and allowed kinds.

use bc_proto::wire::v1;
use sha2::{Digest as _, Sha256};
use sqlx::PgTransaction;
use time::OffsetDateTime;
use tonic::Status;

use super::{Caller, Inner, away};
use crate::pki::{self, Peer};
use crate::store::Error;
use crate::store::node_certificates::{self, NewCertificate};

/// Why a key was not certified.
pub(super) enum Refused {
    Pki(pki::Error),
    Store(Error),
}

impl Refused {
    /// What the node hears of it, about this message of its own.
    pub(super) fn status(self, message: &str) -> Status {
        match self {
            Self::Store(error) => away(&error),
            Self::Pki(error @ (pki::Error::Request(_) | pki::Error::NotEd25519)) => {
                Status::invalid_argument(format!("{message}.certificate_request: {error}"))
            }
            Self::Pki(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a node could not be certified");
                Status::internal("the authority does not sign")
            }
        }
    }
}

impl Inner {
    /// Signs a certificate and records it. Answers it, DER.
    pub(super) async fn certify(
        &self,
        tx: &mut PgTransaction<'_>,
        peer: Peer,
        request: &[u8],
        allowed_kinds: Option<&[String]>,
        now: OffsetDateTime,
    ) -> Result<Vec<u8>, Refused> {
        let issued = self.authority.issue_node(request, peer, allowed_kinds, self.world.bytes(), now);
        let issued = issued.map_err(Refused::Pki)?;
        let certificate = NewCertificate {
            fingerprint: Sha256::digest(&issued.der).into(),
            node: peer.node,
            incarnation: peer.incarnation,
            der: &issued.der,
            key: issued.key,
            allowed_kinds,
            not_after: issued.not_after,
        };
        node_certificates::create(tx, certificate, now).await.map_err(Refused::Store)?;
        Ok(issued.der)
    }

    /// The next certificate of a node that has one. The old one counts until its own end.
    pub(super) async fn renew(&self, caller: Caller, request: &v1::RenewRequest) -> Result<v1::RenewResponse, Status> {
        let Caller { fingerprint, peer } = caller;
        let now = self.world.now();
        let mut tx = self.pool.begin().await.map_err(|error| away(&error.into()))?;
        let found = async {
            node_certificates::hold(&mut tx, peer.node).await?;
            node_certificates::find_many(&mut tx, &[fingerprint]).await
        };
        let mut found = found.await.map_err(|error| away(&error))?;
        let present =
            found.remove(&fingerprint).filter(|it| (it.node, it.incarnation) == (peer.node, peer.incarnation));
        let present = present.ok_or_else(|| {
            Status::unauthenticated(
                "this certificate is not renewed: it was revoked, or its node was deleted or enrolled again; join again",
            )
        })?;
        let kinds = present.allowed_kinds.as_deref();
        let certify = self.certify(&mut tx, peer, &request.certificate_request, kinds, now);
        let certificate = certify.await.map_err(|refused| refused.status("RenewRequest"))?;
        tx.commit().await.map_err(|error| away(&error.into()))?;
        tracing::info!(node = %peer.node, incarnation = peer.incarnation, "a node's certificate was renewed");
        let certificate_chain = vec![certificate, self.authority.certificate_der().to_vec()];
        Ok(v1::RenewResponse { certificate_chain })
    }
}
