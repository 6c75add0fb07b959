//! Secrets of commands: asked for through the open session, sealed to a key that is made for each request.
//!
//! **Invariant:** a reference that the command's payload does not name never leaves the node; and where the node trusts roots, a
//! value counts only with a worker key's signature over exactly what was asked for.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bc_proto::id::{CommandId, NodeId};
use bc_proto::secret::{self, OneTimeKey, Purpose, Sealed, SecretValue};
use bc_proto::sign::body::{SealedSecretBody, SecretRequestBody};
use bc_proto::sign::{self, WorkerSignature};
use bc_proto::wire::{Deliver, Invalid, v1};
use bc_runtime::capability::{Answer, Capabilities, Error, Secrets};
use serde_json::Value;
use tonic::transport::Channel;
use tonic::{Code, Status};
use zeroize::Zeroizing;

use super::commanded::{Commanded, Provider};
use crate::credentials::Credentials;
use crate::gateway::rpc::node_gateway_client::NodeGatewayClient;
use crate::server_time::ServerTime;
use crate::session::way::Way;
use crate::trust::Trust;

/// How long the answer may take: the gateway waits ten seconds for a vault.
const PATIENCE: Duration = Duration::from_secs(15);

/// The WIT's codes.
const NOT_FOUND: &str = "not-found";
const SEALED_EXCHANGE: &str = "sealed-exchange";

/// The way to the control plane's secrets; clones are handles to one.
#[derive(Clone)]
pub struct Exchange(Arc<Inner>);

struct Inner {
    /// Sign requests.
    credentials: Credentials,
    trust: Trust,
    time: ServerTime,
    way: Way,
}

/// Why there is no value. No message holds one.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the command does not name a secret `{0}` in its `{field}`", field = secret::FIELD)]
    NotNamed(String),
    #[error("the control plane has no such secret")]
    NotFound,
    #[error("there is no session with a control plane")]
    Offline,
    #[error("the system gives no random numbers")]
    Random,
    #[error("the control plane did not answer in time")]
    Late,
    #[error("the control plane does not give it: {0}")]
    Refused(String),
    #[error(transparent)]
    Answer(#[from] Invalid),
    #[error("the answer is not to be believed: {0}")]
    Distrusted(#[from] sign::Error),
    #[error(transparent)]
    Sealed(#[from] secret::Error),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::NotFound => Self::NotFound,
            _ => Self::Refused(status.message().to_owned()),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        let code = match failed {
            Failed::NotNamed(_) | Failed::NotFound => NOT_FOUND,
            _ => SEALED_EXCHANGE,
        };
        Self::new(code, failed.to_string())
    }
}

impl Exchange {
    /// Asks by the node's key of the time, and believes whom the node trusts. There is no session yet.
    pub fn new(credentials: Credentials, trust: Trust, time: ServerTime) -> Self {
        Self(Arc::new(Inner { credentials, trust, time, way: Way::default() }))
    }

    /// The way that its sessions make.
    pub fn way(&self) -> &Way {
        &self.0.way
    }

    /// From now on through this session.
    pub(crate) fn attach(&self, epoch: u64, channel: Channel) {
        self.0.way.attach(epoch, channel);
    }

    /// Through this session no more, if it still is the one.
    pub(crate) fn detach(&self, epoch: u64) {
        self.0.way.detach(epoch);
    }

    /// The secrets of one command.
    fn of(&self, deliver: &Deliver) -> Arc<dyn Secrets> {
        let Deliver { command, node, payload, .. } = deliver;
        Arc::new(OfCommand { exchange: self.clone(), command: *command, node: *node, payload: payload.clone() })
    }

    async fn get(&self, purpose: Purpose<'_>) -> Result<SecretValue, Failed> {
        let inner = &self.0;
        let channel = inner.way.channel().ok_or(Failed::Offline)?;
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(|_| Failed::Random)?;
        let one_time = OneTimeKey::from_seed(&seed);
        let one_time_key = hex::encode(one_time.public());
        let Purpose { command, node, secret_ref } = purpose;
        let body = SecretRequestBody { command, node, secret_ref, one_time_key: &one_time_key };
        let request = v1::SecretRequest {
            command_id: command.to_string(),
            secret_ref: secret_ref.to_owned(),
            one_time_key: one_time.public().to_vec(),
            node_sig: inner.credentials.sign(&body).as_bytes().to_vec(),
        };
        let mut client = NodeGatewayClient::new(channel);
        let answer = tokio::time::timeout(PATIENCE, client.exchange_secret(request)).await;
        let v1::SealedSecret { encapsulated_key, ciphertext, signature } =
            answer.map_err(|_| Failed::Late)??.into_inner();
        let signature = signature.map(WorkerSignature::try_from).transpose()?;
        let sealed = Sealed { encapsulated_key, ciphertext };
        let sealed_sha256 = sealed.sha256_hex();
        let body =
            SealedSecretBody { command, node, secret_ref, one_time_key: &one_time_key, sealed_sha256: &sealed_sha256 };
        inner.trust.now().sealed_secret(&body, signature.as_ref(), inner.time.at(Instant::now()))?;
        Ok(one_time.open(&sealed, purpose)?)
    }
}

impl Provider for Exchange {
    fn provide(&self, command: &Commanded<'_>, capabilities: &mut Capabilities) {
        capabilities.secrets.get_or_insert_with(|| self.of(command.deliver));
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("credentials", &self.0.credentials).finish_non_exhaustive()
    }
}

/// The secrets of one command.
struct OfCommand {
    exchange: Exchange,
    command: CommandId,
    node: NodeId,
    payload: Value,
}

impl Secrets for OfCommand {
    fn get(&self, secret_ref: &str) -> Answer<String> {
        if !secret::is_ref(secret_ref) || !secret::names(&self.payload, secret_ref) {
            return Err(Failed::NotNamed(secret_ref.to_owned()).into());
        }
        let purpose = Purpose { command: self.command, node: self.node, secret_ref };
        // The gate gives this call a thread that may block.
        let value = tokio::runtime::Handle::current().block_on(self.exchange.get(purpose))?;
        Ok(value.expose().to_owned())
    }
}

/// For runs that no control plane asked for: they have no secrets.
#[derive(Debug, Clone, Copy)]
pub struct NoSecrets;

impl Secrets for NoSecrets {
    fn get(&self, _: &str) -> Answer<String> {
        Err(Error::new(SEALED_EXCHANGE, "only a command that a control plane sent has secrets"))
    }
}
