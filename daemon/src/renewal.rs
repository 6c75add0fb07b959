//! Renewing the node's certificate before it ends.
//!
//! The node makes a new key, has it certified over the certificate that it has, and writes both down; the next session uses them.
//! Results that the old key signed stay verifiable, since the control plane keeps every certificate.
//!
//! **Invariant:** the identity on the disk is replaced as a whole, under a lock, and only while it is still the one that was
//! renewed: a machine that joined again meanwhile keeps its new life.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bc_proto::certificate::NodeCertificate;
use bc_proto::rules::renewal::{RETRY, Standing, standing};
use bc_proto::wire::v1;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::credentials::Credentials;
use crate::gateway::rpc::node_gateway_client::NodeGatewayClient;
use crate::gateway::{self, Address, Verifier, chain};
use crate::identity::{self, Draft, Identity};
use crate::join::pem;
use crate::server_time::ServerTime;
use crate::session::Random;

/// How long a certificate's standing is relied on: server time may have been learned, or stepped, meanwhile.
const LOOK: Duration = Duration::from_secs(10);
/// How long one gateway may take for it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What it takes.
pub(crate) struct Renewal {
    pub(crate) state_dir: PathBuf,
    pub(crate) gateways: Vec<Address>,
    pub(crate) verifier: Arc<Verifier>,
    pub(crate) credentials: Credentials,
    pub(crate) time: ServerTime,
    /// Server time of the join: it is at least that late.
    pub(crate) joined_ms: u64,
    pub(crate) status: Box<dyn Fn(&str) + Send + Sync>,
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NotRenewed {
    #[error("no key can be made: {0}")]
    Key(rcgen::Error),
    #[error("no gateway renewed it: {}", .0.join("; "))]
    Unreachable(Vec<String>),
    #[error("the gateway refuses: {0}")]
    Refused(String),
    #[error("the gateway gave a certificate that is of no use: {0}")]
    BadAnswer(String),
    #[error("it cannot be kept: {0}")]
    NotKept(std::io::Error),
    #[error("the identity on the disk is another one by now; restart bcd to use it")]
    Replaced,
    #[error("the identity on the disk cannot be read: {0}")]
    Identity(#[from] identity::Unusable),
}

impl Renewal {
    /// Renews whenever it is due, until the daemon stops.
    pub(crate) async fn run(self, mut random: Random, stop: CancellationToken) {
        let mut failures = 0;
        let mut is_over = false;
        loop {
            let now_ms = self.time.at(Instant::now()).max(self.joined_ms);
            let certificate = self.credentials.now().certificate.clone();
            let wait = match standing(certificate.not_before_ms, certificate.not_after_ms, now_ms) {
                Standing::Good { due_in_ms } => Duration::from_millis(due_in_ms).min(LOOK),
                Standing::Over => {
                    if !std::mem::replace(&mut is_over, true) {
                        self.complain(
                            "it has expired. Take a new join token, run `bcd join --again`, and restart bcd",
                            LOOK,
                        );
                    }
                    LOOK
                }
                Standing::Due => match self.renew().await {
                    Ok(not_after_ms) => {
                        failures = 0;
                        tracing::info!(not_after_ms, "this node's certificate is renewed; the next session uses it");
                        LOOK
                    }
                    Err(error) => {
                        let wait = RETRY.wait(failures, random());
                        failures = failures.saturating_add(1);
                        self.complain(&chain(&error), wait);
                        wait
                    }
                },
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn complain(&self, why: &str, wait: Duration) {
        tracing::error!(wait_ms = wait.as_millis(), "this node's certificate is not renewed: {why}");
        (self.status)(&format!("certificate not renewed: {why}"));
    }

    /// Answers the end of the new certificate.
    async fn renew(&self) -> Result<u64, NotRenewed> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(NotRenewed::Key)?;
        let request = CertificateParams::default().serialize_request(&key).map_err(NotRenewed::Key)?;
        // Before anybody certifies it: a disk that does not take it costs nothing. Kept until the end, it keeps others away.
        let (state_dir, key_pem) = (self.state_dir.clone(), key.serialize_pem());
        let (draft, present, key_pem) = blocking(move || {
            let draft = Draft::begin(&state_dir, &key_pem).map_err(NotRenewed::NotKept)?;
            Ok((draft, identity::read(&state_dir)?, key_pem))
        })
        .await?;
        if present.certificate != self.credentials.now().certificate {
            return Err(NotRenewed::Replaced);
        }
        let answer = self.ask(&v1::RenewRequest { certificate_request: request.der().to_vec() }).await?;
        let chain_pem = checked(&answer, &present, &key_pem).map_err(NotRenewed::BadAnswer)?;
        let state_dir = self.state_dir.clone();
        let renewed = blocking(move || {
            let authority_pem = pem(&present.authority);
            draft.commit(&key_pem, &chain_pem, &authority_pem, &present.card).map_err(NotRenewed::NotKept)?;
            Ok(identity::read(&state_dir)?)
        })
        .await?;
        self.credentials.replace(&renewed);
        Ok(renewed.certificate.not_after_ms)
    }

    /// Asks one gateway after the other. One that refuses speaks for all.
    async fn ask(&self, request: &v1::RenewRequest) -> Result<v1::RenewResponse, NotRenewed> {
        let mut unreachable = Vec::new();
        for address in &self.gateways {
            let tls = Some(self.credentials.tls());
            let asked = async {
                let endpoint = gateway::endpoint(address, Arc::clone(&self.verifier), tls).map_err(|it| chain(&it))?;
                let channel = endpoint.connect().await.map_err(|it| chain(&it))?;
                Ok::<_, String>(NodeGatewayClient::new(channel).renew(request.clone()).await)
            };
            match tokio::time::timeout(TIMEOUT, asked).await {
                Ok(Ok(Ok(answer))) => return Ok(answer.into_inner()),
                Ok(Ok(Err(status))) if is_final(&status) => {
                    return Err(NotRenewed::Refused(status.message().to_owned()));
                }
                Ok(Ok(Err(status))) => unreachable.push(format!("{address}: {}", chain(&status))),
                Ok(Err(error)) => unreachable.push(format!("{address}: {error}")),
                Err(_) => unreachable.push(format!("{address}: there was no answer in time")),
            }
        }
        Err(NotRenewed::Unreachable(unreachable))
    }
}

fn is_final(status: &Status) -> bool {
    use tonic::Code;
    matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument)
}

/// The chain, PEM, if it is one for this key, by the same authority, for the same node, life and kinds.
fn checked(answer: &v1::RenewResponse, present: &Identity, key_pem: &str) -> Result<String, String> {
    let [own, authority] = answer.certificate_chain.as_slice() else {
        return Err("it does not hold a certificate and its authority's".into());
    };
    if authority[..] != present.authority[..] {
        return Err("its authority is another one".into());
    }
    let (old, new) = (&present.certificate, NodeCertificate::read(own).map_err(|error| error.to_string())?);
    if (new.node, new.incarnation, &new.allowed_kinds) != (old.node, old.incarnation, &old.allowed_kinds) {
        return Err("it is for another node, another life or other kinds".into());
    }
    let chain_pem = pem(own) + &pem(authority);
    identity::fits(key_pem, &chain_pem)?;
    Ok(chain_pem)
}

async fn blocking<T: Send + 'static>(
    what: impl FnOnce() -> Result<T, NotRenewed> + Send + 'static,
) -> Result<T, NotRenewed> {
    tokio::task::spawn_blocking(what).await.expect("writing files does not panic")
}
