//! Gateways over a real Postgres, and nodes that speak to them over real TLS.

mod adversary;
mod attest;
mod desired;
mod identity;
mod join;
mod replicas;
mod secrets;
mod session;
mod uploads;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine as _;
use bc_proto::id::CommandId;
use bc_proto::sign::SecretKey;
use bc_proto::wire::{GATEWAY_NAME, SESSION_EPOCH};
use rcgen::{CertificateParams, KeyPair};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Streaming};
use v1::{from_node, to_node};

use super::*;
use crate::bus::Signal;
use crate::grpc::node_gateway_client::NodeGatewayClient;
use crate::queue;
use crate::queue::enqueue::{NewCommand, Outcome};
use crate::store::join_tokens::{self, NewJoinToken};
use crate::store::kinds::Digest;
use crate::store::nodes;
use crate::testing::{Fleet, command, uuid};

/// A control plane: a database, an authority and a clock, for any number of replicas.
struct Site {
    fleet: Fleet,
    authority: Arc<Authority>,
    /// How far its clock is ahead, in seconds. Certificates are verified by the real one.
    ahead: Arc<AtomicI64>,
    /// Where support bundles go, of replicas that are started from now on.
    bundles: Option<Store>,
}

impl Site {
    async fn new() -> Self {
        let authority = Authority::create([1; 16], OffsetDateTime::now_utc()).expect("an authority").0;
        Self { fleet: Fleet::new().await, authority: Arc::new(authority), ahead: Arc::default(), bundles: None }
    }

    fn world(&self) -> World {
        let ahead = self.ahead.clone();
        let clock = move || OffsetDateTime::now_utc() + time::Duration::seconds(ahead.load(Ordering::Relaxed));
        World::new(clock, |bytes| getrandom::fill(bytes).expect("random bytes"))
    }

    async fn replica(&self, name: &str) -> Replica {
        let stop = CancellationToken::new();
        let bus = Bus::connect(&self.fleet.pool, name, stop.clone());
        let mut signals = bus.subscribe();
        while signals.recv().await.expect("a bus") != Signal::Missed {}
        let hosts = vec!["localhost".into()];
        let settings = Settings { replica: name.into(), hosts, heartbeat: HEARTBEAT, bundles: self.bundles.clone() };
        let (pool, authority) = (self.fleet.pool.clone(), self.authority.clone());
        let gateway = Gateway::start(settings, pool, bus.clone(), authority, self.world(), stop.clone()).await;
        let gateway = gateway.expect("a database");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (serving, ended) = (gateway.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, ended).await.expect("it serves") });
        Replica { gateway, bus, stop, address }
    }

    /// A token, good for an hour.
    async fn token(&self, node: Option<NodeId>, allowed_kinds: Option<Vec<String>>) -> String {
        let secret = uuid().to_string();
        let expires_at = self.world().now() + Duration::from_hours(1);
        let (hash, tenant) = (join_tokens::hash(&secret), self.fleet.tenant);
        let token = NewJoinToken { hash, tenant, node, allowed_kinds, expires_at };
        join_tokens::create(&mut *self.fleet.db().await, token, self.world().now()).await.expect("a new token");
        join_tokens::text(&secret, &Sha256::digest(self.authority.certificate_der()).into())
    }

    /// A machine that has joined.
    async fn machine(&self, replica: &Replica) -> Machine {
        let token = self.token(None, None).await;
        Machine::join(&self.authority, replica, &token).await.expect("it may join")
    }

    /// Queues a command and tells nobody.
    async fn enqueue(&self, node: NodeId, kind: Digest) -> CommandId {
        self.queue(command(&node, kind)).await
    }

    /// Queues a command that stays pending, whoever looks for work.
    async fn hold(&self, node: NodeId, kind: Digest) -> CommandId {
        self.queue(NewCommand { is_held: true, ..command(&node, kind) }).await
    }

    async fn queue(&self, mut new: NewCommand) -> CommandId {
        new.not_after = self.world().now() + Duration::from_mins(10);
        let id = new.id;
        let outcome =
            queue::enqueue(&mut *self.fleet.db().await, &crate::trust::Signer::none(), new, self.world().now())
                .await
                .expect("a database");
        assert!(matches!(outcome, Outcome::Queued(_)), "{outcome:?}");
        id
    }

    async fn state(&self, command: CommandId) -> String {
        self.fleet.state(&command).await.0
    }

    /// Waits for a command to stand in a state.
    async fn reaches(&self, command: CommandId, state: &str) {
        while self.state(command).await != state {
            tokio::task::yield_now().await;
        }
    }

    async fn find(&self, node: NodeId) -> nodes::Node {
        let found = nodes::find(&mut *self.fleet.db().await, self.fleet.tenant, node).await;
        found.expect("a database").expect("it is there")
    }
}

struct Replica {
    gateway: Gateway,
    bus: Bus,
    stop: CancellationToken,
    address: SocketAddr,
}

impl Replica {
    fn tell_work(&self, node: NodeId) {
        self.bus.tell(Signal::Work { node });
    }

    fn client(&self, authority: &Authority, identity: Option<&Identity>) -> NodeGatewayClient<Channel> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority.certificate_pem()))
            .domain_name(GATEWAY_NAME);
        if let Some(identity) = identity {
            tls = tls.identity(identity.clone());
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).expect("a URL");
        NodeGatewayClient::new(endpoint.tls_config(tls).expect("TLS").connect_lazy())
    }
}

/// The replica dies: nothing is drained, closed or noted.
impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn pem(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

fn request(token: &str, key: &KeyPair) -> v1::JoinRequest {
    let csr = CertificateParams::new(Vec::new()).expect("params").serialize_request(key).expect("a request");
    v1::JoinRequest {
        token: token.into(),
        certificate_request: csr.der().to_vec(),
        role: v1::Role::Host.into(),
        bcd_version: "1.0.0".into(),
        name: "machine".into(),
    }
}

/// A machine with a certificate.
#[derive(Clone)]
struct Machine {
    peer: Peer,
    fingerprint: Fingerprint,
    der: Vec<u8>,
    key: SecretKey,
    identity: Identity,
    journal: u128,
    boot: u32,
}

impl Machine {
    async fn join(authority: &Authority, replica: &Replica, token: &str) -> Result<Self, Status> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let mut client = replica.client(authority, None);
        let answer = client.join(request(token, &key)).await?.into_inner();
        assert_eq!(answer.certificate_chain[1], authority.certificate_der());
        let node = answer.node_id.parse().expect("an id");
        Ok(Self::with(Peer { node, incarnation: answer.incarnation }, &answer.certificate_chain[0], &key))
    }

    fn with(peer: Peer, der: &[u8], key: &KeyPair) -> Self {
        let identity = Identity::from_pem(pem(der), key.serialize_pem());
        let der = der.to_vec();
        let secret = SecretKey::from_pem(&key.serialize_pem()).expect("an Ed25519 key");
        Self { peer, fingerprint: Sha256::digest(&der).into(), der, key: secret, identity, journal: 1, boot: 1 }
    }

    /// The same machine with its next certificate, for a new key.
    async fn renew(&self, authority: &Authority, replica: &Replica) -> Result<Self, Status> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let certificate_request = request("", &key).certificate_request;
        let mut client = replica.client(authority, Some(&self.identity));
        let answer = client.renew(v1::RenewRequest { certificate_request }).await?.into_inner();
        assert_eq!(answer.certificate_chain[1], authority.certificate_der());
        Ok(Self::with(self.peer, &answer.certificate_chain[0], &key))
    }

    fn node(&self) -> NodeId {
        self.peer.node
    }

    fn hello(&self, last_epoch: u64) -> v1::FromNode {
        let hello = v1::Hello {
            journal_id: bc_proto::id::JournalId::from_uuid(sqlx::types::Uuid::from_u128(self.journal)).to_string(),
            boot_id: format!("boot {}", self.boot),
            role: v1::Role::Host.into(),
            incarnation: self.peer.incarnation,
            bcd_version: "1.2.3".into(),
            host_abi: "1.0.0".into(),
            kinds: vec![v1::LoadedKind { name: "test".into(), version: "1.0.0".into(), digest: vec![7; 32] }],
            last_epoch,
            ..v1::Hello::default()
        };
        v1::FromNode { epoch: 0, frame: Some(from_node::Frame::Hello(hello)) }
    }

    /// Opens a session over TLS and is welcomed.
    async fn open(&self, authority: &Authority, replica: &Replica) -> Result<Link, Status> {
        match self.open_after(0, authority, replica).await {
            Err(status) if status.code() == Code::FailedPrecondition => {
                let epoch = status.metadata().get(SESSION_EPOCH).expect("the newest epoch");
                let epoch = epoch.to_str().expect("text").parse().expect("a number");
                self.open_after(epoch, authority, replica).await
            }
            answer => answer,
        }
    }

    /// Says hello once, knowing of a session.
    async fn open_after(&self, epoch: u64, authority: &Authority, replica: &Replica) -> Result<Link, Status> {
        let mut client = replica.client(authority, Some(&self.identity));
        let (says, said) = mpsc::channel(64);
        says.send(self.hello(epoch)).await.expect("room");
        let mut frames = client.session(ReceiverStream::new(said)).await?.into_inner();
        let welcome = frames.message().await?.expect("a frame");
        let Some(to_node::Frame::Welcome(it)) = welcome.frame else { panic!("not welcome: {welcome:?}") };
        assert_eq!((it.epoch, it.heartbeat_ms), (welcome.epoch, 15_000));
        Ok(Link { says, frames, epoch: welcome.epoch, settled_below: it.settled_below_seq })
    }
}

/// A node's end of a session.
struct Link {
    says: mpsc::Sender<v1::FromNode>,
    frames: Streaming<v1::ToNode>,
    epoch: u64,
    settled_below: u64,
}

impl Link {
    async fn next(&mut self) -> to_node::Frame {
        let frame = self.frames.message().await.expect("the session goes on").expect("a frame");
        assert_eq!(frame.epoch, self.epoch);
        frame.frame.expect("a frame")
    }

    async fn delivered(&mut self) -> v1::Deliver {
        match self.next().await {
            to_node::Frame::Deliver(deliver) => deliver,
            other => panic!("no delivery: {other:?}"),
        }
    }

    async fn acknowledged(&mut self) -> v1::UpdateAck {
        match self.next().await {
            to_node::Frame::UpdateAck(ack) => ack,
            other => panic!("no acknowledgement: {other:?}"),
        }
    }

    /// How the session ends.
    async fn end(&mut self) -> Code {
        loop {
            match self.frames.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    }

    async fn say(&self, frame: from_node::Frame) {
        self.say_of(self.epoch, frame).await;
    }

    async fn say_of(&self, epoch: u64, frame: from_node::Frame) {
        self.says.send(v1::FromNode { epoch, frame: Some(frame) }).await.expect("the session goes on");
    }

    async fn report(&self, command: CommandId, report: v1::Report) {
        self.say(update(command, report)).await;
    }
}

fn update(command: CommandId, report: v1::Report) -> from_node::Frame {
    from_node::Frame::Update(v1::Update {
        command_id: command.to_string(),
        report: report.into(),
        result: br#"{"n":1}"#.to_vec(),
        at_ms: 1_700_000_000_123,
        ..v1::Update::default()
    })
}

fn ack(command: CommandId) -> from_node::Frame {
    from_node::Frame::Ack(v1::Ack { command_id: command.to_string() })
}
