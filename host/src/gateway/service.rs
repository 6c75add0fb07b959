//! The gRPC service: who calls, and which answer.
//!
//! **Invariant:** whoever has no certificate of this authority can join and do nothing else.

use std::pin::Pin;
use std::sync::Arc;

use bc_proto::wire::v1;
use futures_util::Stream;
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status, Streaming};

use super::session::Outbox;
use super::{Caller, Inner, away, fetch, session};
use crate::grpc::node_gateway_server::NodeGateway;
use crate::pki;
use crate::store::{node_certificates, releases};

/// Serves the calls of nodes.
pub(super) struct Service {
    pub(super) gateway: Arc<Inner>,
}

#[tonic::async_trait]
impl NodeGateway for Service {
    type SessionStream = Outbox;
    type FetchKindStream = Pin<Box<dyn Stream<Item = Result<v1::KindChunk, Status>> + Send>>;
    type FetchReleaseStream = Self::FetchKindStream;

    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinResponse>, Status> {
        self.gateway.join(request.get_ref()).await.map(Response::new)
    }

    async fn session(&self, request: Request<Streaming<v1::FromNode>>) -> Result<Response<Outbox>, Status> {
        let caller = caller(&request)?;
        Ok(Response::new(session::begin(&self.gateway, caller, request.into_inner())))
    }

    async fn fetch_kind(
        &self,
        request: Request<v1::FetchKindRequest>,
    ) -> Result<Response<Self::FetchKindStream>, Status> {
        let caller = caller(&request)?;
        let digest = request.into_inner().digest;
        let invalid = |_| Status::invalid_argument("FetchKindRequest.digest: must have 32 bytes");
        let digest = digest.try_into().map_err(invalid)?;
        self.known(&caller).await?;
        let component = self.gateway.components.find(&self.gateway.pool, digest).await.map_err(|error| away(&error))?;
        let component = component.ok_or_else(|| Status::not_found("no registered component has this digest"))?;
        Ok(Response::new(Box::pin(fetch::pieces(component))))
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewResponse>, Status> {
        let caller = caller(&request)?;
        self.gateway.renew(caller, request.get_ref()).await.map(Response::new)
    }

    async fn refresh_upload(&self, request: Request<v1::UploadRequest>) -> Result<Response<v1::Upload>, Status> {
        let caller = caller(&request)?;
        self.gateway.refresh_upload(caller, request.get_ref()).await.map(Response::new)
    }

    async fn fetch_release(
        &self,
        request: Request<v1::FetchReleaseRequest>,
    ) -> Result<Response<Self::FetchReleaseStream>, Status> {
        let caller = caller(&request)?;
        let invalid = |_| Status::invalid_argument("FetchReleaseRequest.sha256: must have 32 bytes");
        let sha256 = request.into_inner().sha256.try_into().map_err(invalid)?;
        self.known(&caller).await?;
        let pool = self.gateway.pool.clone();
        let found = async { releases::find(&mut *pool.acquire().await?, sha256).await };
        let release = found.await.map_err(|error| away(&error))?;
        let release = release.ok_or_else(|| Status::not_found("no release has this digest"))?;
        Ok(Response::new(Box::pin(fetch::release(pool, release))))
    }

    async fn exchange_secret(&self, request: Request<v1::SecretRequest>) -> Result<Response<v1::SealedSecret>, Status> {
        let caller = caller(&request)?;
        self.gateway.exchange_secret(caller, request.into_inner()).await.map(Response::new)
    }
}

impl Service {
    /// Refuses whom no living node's certificate stands for any more.
    async fn known(&self, caller: &Caller) -> Result<(), Status> {
        let known = async {
            let mut db = self.gateway.pool.acquire().await?;
            node_certificates::find_many(&mut db, &[caller.fingerprint]).await
        };
        if known.await.map_err(|error| away(&error))?.is_empty() {
            return Err(Status::unauthenticated(
                "this certificate was revoked, or its node was deleted or enrolled again",
            ));
        }
        Ok(())
    }
}

/// Who calls, by the certificate that TLS has verified.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let certificates = request.peer_certs();
    let certificate = certificates.as_ref().and_then(|all| all.first());
    let certificate =
        certificate.ok_or_else(|| Status::unauthenticated("this call needs a node's certificate; join first"))?;
    let peer = pki::peer(certificate).map_err(|error| Status::unauthenticated(error.to_string()))?;
    Ok(Caller { fingerprint: Sha256::digest(certificate).into(), peer })
}
