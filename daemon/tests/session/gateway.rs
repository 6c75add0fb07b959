//! A gateway that does what a test says: real TLS on a loopback port, with an authority of its own.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bc_proto::certificate::{ALLOWED_KINDS_OID, NODE_SCHEME, allowed_kinds_der};
use bc_proto::id::{CommandId, NodeId};
use bc_proto::wire::{self, Deliver, GATEWAY_NAME, Hello, Report, Update, v1};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CustomExtension, IsCa, Issuer, KeyPair,
    SanType,
};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

#[allow(clippy::pedantic, unreachable_pub, missing_docs, reason = "generated")]
mod rpc {
    include!(concat!(env!("OUT_DIR"), "/server/better_compute.node.v1.rs"));
}

/// Nothing here takes that long unless it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Server time at every Welcome: June of 2000, which no machine's clock says.
pub(crate) const SERVER_TIME_MS: u64 = 960_000_000_000;

pub(crate) fn node_id() -> NodeId {
    NodeId::from_uuid(Uuid::from_u128(7))
}

pub(crate) fn id(seq: u64) -> CommandId {
    CommandId::from_uuid(Uuid::from_u128(u128::from(seq)))
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it comes in time")
}

/// Signs certificates.
pub(crate) struct Authority {
    /// Server time at every join and Welcome, milliseconds since the Unix epoch.
    pub(crate) server_time_ms: u64,
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Arc<Self> {
        Self::at(SERVER_TIME_MS)
    }

    /// One of another time.
    pub(crate) fn at(server_time_ms: u64) -> Arc<Self> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let certificate = params.self_signed(&key).expect("a certificate");
        let (der, pem) = (certificate.der().to_vec(), certificate.pem());
        Arc::new(Self { server_time_ms, issuer: Issuer::new(params, key), der, pem })
    }

    /// A token that names it.
    pub(crate) fn token(&self, secret: &str) -> String {
        format!("bcj_{secret}_{}", hex::encode(Sha256::digest(&self.der)))
    }

    /// A gateway's, which is valid in the months around server time alone: by this machine's clock it is long over.
    fn gateway(&self) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([GATEWAY_NAME.to_owned()]).expect("a name");
        let server_time = i64::try_from(self.server_time_ms / 1_000).expect("a time");
        let server_time = OffsetDateTime::from_unix_timestamp(server_time).expect("a time");
        let months = time::Duration::days(150);
        (params.not_before, params.not_after) = (server_time - months, server_time + months);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity::from_pem(certificate.pem() + &self.pem, key.serialize_pem())
    }

    fn node(&self, request: &[u8], incarnation: u64, desk: &Desk) -> Result<Vec<u8>, rcgen::Error> {
        let mut request = CertificateSigningRequestParams::from_der(&request.into())?;
        let name = format!("{NODE_SCHEME}{}/{incarnation}", node_id());
        request.params.subject_alt_names = vec![SanType::URI(name.try_into()?)];
        if let Some((not_before, not_after)) = desk.validity {
            (request.params.not_before, request.params.not_after) = (not_before, not_after);
        }
        if let Some(kinds) = &desk.allowed_kinds {
            let content = allowed_kinds_der(kinds);
            let extension = CustomExtension::from_oid_content(&ALLOWED_KINDS_OID, content);
            request.params.custom_extensions = vec![extension];
        }
        Ok(request.signed_by(&self.issuer)?.der().to_vec())
    }
}

/// A session, from the gateway's side.
pub(crate) struct Link {
    pub(crate) hello: Hello,
    /// The client certificate that TLS has verified.
    pub(crate) certificate: Vec<u8>,
    epoch: u64,
    server_time_ms: u64,
    said: Streaming<v1::FromNode>,
    say: mpsc::Sender<Result<v1::ToNode, Status>>,
}

impl Link {
    /// Lets the node in.
    pub(crate) async fn welcome(self, epoch: u64, settled_below_seq: u64) -> Self {
        let server_time_ms = self.server_time_ms;
        self.welcome_with(epoch, settled_below_seq, server_time_ms, Vec::new()).await
    }

    /// Lets the node in, at a time, with a trust bundle.
    pub(crate) async fn welcome_with(
        mut self,
        epoch: u64,
        settled_below_seq: u64,
        server_time_ms: u64,
        trust_bundle: Vec<u8>,
    ) -> Self {
        self.epoch = epoch;
        let welcome = v1::Welcome { epoch, server_time_ms, settled_below_seq, heartbeat_ms: 1_000, trust_bundle };
        self.send(v1::to_node::Frame::Welcome(welcome)).await;
        self
    }

    pub(crate) async fn send(&self, frame: v1::to_node::Frame) {
        self.send_as(self.epoch, frame).await;
    }

    pub(crate) async fn send_as(&self, epoch: u64, frame: v1::to_node::Frame) {
        // Where the daemon is gone, whoever waits for its answer says so.
        let _ = self.say.send(Ok(v1::ToNode { epoch, frame: Some(frame) })).await;
    }

    pub(crate) async fn deliver(&self, deliver: &Deliver) {
        self.send(v1::to_node::Frame::Deliver(deliver.clone().into())).await;
    }

    pub(crate) async fn ack(&self, seq: u64, settled_below_seq: u64) {
        let command_ids = vec![id(seq).to_string()];
        self.send(v1::to_node::Frame::UpdateAck(v1::UpdateAck { command_ids, settled_below_seq })).await;
    }

    /// The next frame; None when the session is over.
    pub(crate) async fn any_frame(&mut self) -> Option<v1::from_node::Frame> {
        let message = soon(self.said.message()).await.ok().flatten()?;
        assert_eq!(message.epoch, self.epoch, "frames carry their session's epoch");
        message.frame
    }

    /// The next frame that is neither heartbeat nor conditions, which come when they come.
    pub(crate) async fn frame(&mut self) -> v1::from_node::Frame {
        loop {
            match self.any_frame().await.expect("the session is open") {
                v1::from_node::Frame::Heartbeat(_) | v1::from_node::Frame::Conditions(_) => {}
                frame => return frame,
            }
        }
    }

    /// The next frame, which acknowledges this command.
    pub(crate) async fn acked(&mut self, seq: u64) {
        match self.frame().await {
            v1::from_node::Frame::Ack(ack) => assert_eq!(ack.command_id, id(seq).to_string()),
            other => panic!("no ack of {}: {other:?}", id(seq)),
        }
    }

    /// The next frame but for what is said while it runs, which is a report on this command.
    pub(crate) async fn report(&mut self, seq: u64) -> Update {
        loop {
            match self.frame().await {
                v1::from_node::Frame::Update(update) => {
                    let update = Update::try_from(update).expect("it is right");
                    assert_eq!(update.command, id(seq));
                    return update;
                }
                // What is said while it runs is no report.
                v1::from_node::Frame::Progress(_) | v1::from_node::Frame::Output(_) => {}
                other => panic!("no report on {}: {other:?}", id(seq)),
            }
        }
    }

    /// Ack, running and the result of a command.
    pub(crate) async fn whole_run(&mut self, seq: u64) -> Update {
        self.acked(seq).await;
        assert_eq!(self.report(seq).await.report, Report::Running);
        self.report(seq).await
    }

    /// Waits until the session is over, whatever is said before.
    pub(crate) async fn over(mut self) {
        while self.any_frame().await.is_some() {}
    }
}

/// What the gateway holds and has seen.
#[derive(Default)]
pub(crate) struct Desk {
    /// Join requests.
    pub(crate) joins: Vec<v1::JoinRequest>,
    /// The token that is good.
    pub(crate) token: String,
    /// What a join is told to trust.
    pub(crate) trust_bundle: Vec<u8>,
    /// What it gives for a digest.
    pub(crate) components: HashMap<Vec<u8>, Vec<u8>>,
    /// Who signed it: the publisher's key, and the signature.
    pub(crate) signatures: HashMap<Vec<u8>, (Vec<u8>, Vec<u8>)>,
    /// The digests that were asked for.
    pub(crate) fetches: Vec<Vec<u8>>,
    /// How long its certificates hold; `None` for as good as ever.
    pub(crate) validity: Option<(OffsetDateTime, OffsetDateTime)>,
    /// The only kinds that its certificates allow.
    pub(crate) allowed_kinds: Option<Vec<String>>,
    /// Renewals that were asked for, and the certificates that asked.
    pub(crate) renewals: Vec<Vec<u8>>,
    /// Whether it does not renew, the next time that it is asked.
    pub(crate) renews_not: bool,
    /// Where uploads go, for whoever asks for a fresh URL.
    pub(crate) upload: Option<wire::Upload>,
    /// The commands for which one was asked.
    pub(crate) refreshes: Vec<String>,
    /// Whether it knows the node no more.
    pub(crate) rejects: bool,
}

struct Served {
    authority: Arc<Authority>,
    desk: Arc<Mutex<Desk>>,
    links: mpsc::UnboundedSender<Link>,
}

impl Served {
    fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl rpc::node_gateway_server::NodeGateway for Served {
    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinResponse>, Status> {
        let request = request.into_inner();
        let mut desk = self.desk();
        desk.joins.push(request.clone());
        if request.token != desk.token {
            return Err(Status::unauthenticated("the token is used up"));
        }
        let incarnation = desk.joins.len() as u64;
        let certificate = self.authority.node(&request.certificate_request, incarnation, &desk);
        let certificate = certificate.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Response::new(v1::JoinResponse {
            node_id: node_id().to_string(),
            incarnation,
            certificate_chain: vec![certificate, self.authority.der.clone()],
            server_time_ms: self.authority.server_time_ms,
            trust_bundle: desk.trust_bundle.clone(),
        }))
    }

    type SessionStream = ReceiverStream<Result<v1::ToNode, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::FromNode>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.desk().rejects {
            return Err(Status::unauthenticated("this node was deleted"));
        }
        let certificates = request.peer_certs().expect("TLS asks for one");
        let mut said = request.into_inner();
        let first = said.message().await?.expect("a Hello");
        let Some(v1::from_node::Frame::Hello(hello)) = first.frame else { panic!("no Hello: {first:?}") };
        let (say, saying) = mpsc::channel(64);
        let hello = Hello::try_from(hello).expect("it is right");
        let (certificate, server_time_ms) = (certificates[0].to_vec(), self.authority.server_time_ms);
        let link = Link { hello, certificate, epoch: 0, server_time_ms, said, say };
        // A test that is over listens no more.
        let _ = self.links.send(link);
        Ok(Response::new(ReceiverStream::new(saying)))
    }

    type FetchKindStream = ReceiverStream<Result<v1::KindChunk, Status>>;
    type FetchReleaseStream = Self::FetchKindStream;

    async fn fetch_kind(
        &self,
        request: Request<v1::FetchKindRequest>,
    ) -> Result<Response<Self::FetchKindStream>, Status> {
        assert!(request.peer_certs().is_some(), "only nodes get components");
        let digest = request.into_inner().digest;
        let (found, (mut publisher, mut publisher_sig)) = {
            let mut desk = self.desk();
            desk.fetches.push(digest.clone());
            let found = desk.components.get(&digest).cloned().ok_or_else(|| Status::not_found("no such kind"))?;
            (found, desk.signatures.get(&digest).cloned().unwrap_or_default())
        };
        let (chunks, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            for chunk in found.chunks(64 * 1024) {
                let (publisher, publisher_sig) = (std::mem::take(&mut publisher), std::mem::take(&mut publisher_sig));
                if chunks.send(Ok(v1::KindChunk { bytes: chunk.to_vec(), publisher, publisher_sig })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewResponse>, Status> {
        let certificates = request.peer_certs().expect("TLS asks for one");
        let mut desk = self.desk();
        desk.renewals.push(certificates[0].to_vec());
        if std::mem::take(&mut desk.renews_not) {
            return Err(Status::unavailable("not now"));
        }
        let incarnation = desk.joins.len() as u64;
        let certificate = self.authority.node(&request.get_ref().certificate_request, incarnation, &desk);
        let certificate = certificate.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let certificate_chain = vec![certificate, self.authority.der.clone()];
        Ok(Response::new(v1::RenewResponse { certificate_chain }))
    }

    async fn refresh_upload(&self, request: Request<v1::UploadRequest>) -> Result<Response<v1::Upload>, Status> {
        assert!(request.peer_certs().is_some(), "only nodes get URLs");
        let mut desk = self.desk();
        desk.refreshes.push(request.into_inner().command_id);
        let upload = desk.upload.clone().ok_or_else(|| Status::not_found("no such upload"))?;
        Ok(Response::new(upload.into()))
    }

    async fn fetch_release(
        &self,
        _: Request<v1::FetchReleaseRequest>,
    ) -> Result<Response<Self::FetchReleaseStream>, Status> {
        Err(Status::unimplemented("there are no releases yet"))
    }

    async fn exchange_secret(&self, _: Request<v1::SecretRequest>) -> Result<Response<v1::SealedSecret>, Status> {
        Err(Status::unimplemented("there are no secrets yet"))
    }
}

/// A gateway, until it is dropped: then its connections are gone as if it had been killed.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) desk: Arc<Mutex<Desk>>,
    links: mpsc::UnboundedReceiver<Link>,
    /// Its own, so that all of it can end at once.
    runtime: Option<Runtime>,
}

impl Gateway {
    pub(crate) async fn start(authority: &Arc<Authority>) -> Self {
        Self::start_at(authority, (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    pub(crate) async fn start_at(authority: &Arc<Authority>, at: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (links, opened) = mpsc::unbounded_channel();
        let desk = Arc::new(Mutex::new(Desk::default()));
        let served = Served { authority: Arc::clone(authority), desk: Arc::clone(&desk), links };
        let tls = ServerTlsConfig::new()
            .identity(authority.gateway())
            .client_ca_root(Certificate::from_pem(&authority.pem))
            .client_auth_optional(true);
        let (ready, listens) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let listener = TcpListener::bind(at).await.expect("a free port");
            ready.send(listener.local_addr().expect("it is bound")).expect("the test waits");
            let mut tonic = Server::builder().tls_config(tls).expect("the certificates fit");
            let router = tonic.add_service(rpc::node_gateway_server::NodeGatewayServer::new(served));
            router.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("it serves");
        });
        let address = soon(listens).await.expect("it listens");
        Self { address, desk, links: opened, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next session that is opened, before its Welcome.
    pub(crate) async fn link(&mut self) -> Link {
        soon(self.links.recv()).await.expect("the gateway runs")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A command of a kind, by the name and digest of its component.
pub(crate) fn deliver(kind: &str, digest: &str, seq: u64, payload: serde_json::Value) -> Deliver {
    wire::Deliver {
        command: id(seq),
        seq,
        node: node_id(),
        incarnation: 1,
        kind: kind.to_owned(),
        kind_digest: digest.to_owned(),
        payload,
        not_after_ms: SERVER_TIME_MS + 600_000,
        timeout_ms: 50_000,
        min_generation: None,
        signature: None,
        batch: None,
        approved: None,
        upload: None,
    }
}
