//! The vault: seals secrets for the nodes that may have them. It runs in replicas with a folder of secrets.
//!
//! A gateway writes down what a node asks for; a vault that is told, or that looks, takes the open requests, believes none of
//! what the gateway says, and answers with what only that node can open. So a gateway that an attacker owns sees ciphertext for
//! a key that it does not have.
//!
//! **Invariant:** a value is sealed only for a request that the node itself signed, for a command that is in flight at that node,
//! whose payload names the reference, of the tenant that both belong to. Values are never logged, and wiped after use.

mod folder;

use std::path::PathBuf;
use std::time::Duration;

use bc_proto::certificate::NodeCertificate;
use bc_proto::secret::{self, Purpose};
use bc_proto::sign::Signature;
use bc_proto::sign::body::{SealedSecretBody, SecretRequestBody};
use sqlx::PgPool;
use sqlx::types::Uuid;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::bus::{self, Bus, Signal};
use crate::store;
use crate::store::secret_exchanges::{self, Answer, Failure, Open};
use crate::trust::Signer;
use crate::world::World;

/// How often a vault looks by itself: what a lost signal costs at most. Nodes wait for ten seconds.
const PERIOD: Duration = Duration::from_secs(2);

/// The wait before the database is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Why nothing was sealed. For the vault's log; the node hears `refused`.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("its certificate does not count")]
    Certificate,
    #[error("its certificate holds no Ed25519 key; renew it or join again")]
    KeyType,
    #[error(transparent)]
    Signature(#[from] bc_proto::sign::Error),
    #[error("the command is not in flight at the node, or belongs to another tenant")]
    NotInFlight,
    #[error("the command's payload does not name it")]
    NotNamed,
    #[error(transparent)]
    Folder(#[from] folder::Error),
    #[error(transparent)]
    Seal(#[from] secret::Error),
}

/// A vault. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Vault {
    pool: PgPool,
    bus: Bus,
    world: World,
    signer: Signer,
    dir: PathBuf,
}

impl Vault {
    /// Seals what lies in a folder.
    pub fn new(pool: PgPool, bus: Bus, world: World, signer: Signer, dir: PathBuf) -> Self {
        Self { pool, bus, world, signer, dir }
    }

    /// Answers requests until `stop`.
    pub fn start(self, stop: &CancellationToken) {
        tokio::spawn(stop.clone().run_until_cancelled_owned(self.run()));
    }

    async fn run(self) {
        let mut signals = self.bus.subscribe();
        loop {
            match self.answer().await {
                // There may be more.
                Ok(answered) if answered > 0 => continue,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "secrets cannot be sealed for now");
                    tokio::time::sleep(RETRY).await;
                }
            }
            bus::told(&mut signals, &Signal::Secret, PERIOD).await;
        }
    }

    /// Answers the requests that are open now; returns how many.
    pub async fn answer(&self) -> Result<usize, store::Error> {
        let mut tx = self.pool.begin().await?;
        let now = self.world.now();
        let open = secret_exchanges::take(&mut tx, now).await?;
        if open.is_empty() {
            return Ok(0);
        }
        let vault = self.clone();
        // Files are read.
        let sealing = tokio::task::spawn_blocking(move || {
            open.iter().map(|it| (it.id, vault.decide(it, now))).collect::<Vec<(Uuid, Answer)>>()
        });
        let answers = match sealing.await {
            Ok(answers) => answers,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        secret_exchanges::answer_many(&mut tx, &answers).await?;
        tx.commit().await?;
        self.bus.tell(Signal::Secret);
        Ok(answers.len())
    }

    fn decide(&self, open: &Open, now: OffsetDateTime) -> Answer {
        let (node, command, secret_ref) = (open.node, open.command, open.secret_ref.as_str());
        match self.seal(open, now) {
            Ok(answer) => {
                tracing::info!(%node, %command, secret_ref, "a secret was sealed");
                answer
            }
            Err(refused) => {
                tracing::warn!(%node, %command, secret_ref, "a secret was not sealed: {refused}");
                let is_missing = matches!(refused, Refused::Folder(folder::Error::NotFound));
                Answer::Failed(if is_missing { Failure::NotFound } else { Failure::Refused })
            }
        }
    }

    fn seal(&self, open: &Open, now: OffsetDateTime) -> Result<Answer, Refused> {
        let certificate = open.certificate.as_deref().ok_or(Refused::Certificate)?;
        let key = NodeCertificate::read(certificate).ok().and_then(|it| it.key).ok_or(Refused::KeyType)?;
        let one_time_key = hex::encode(&open.one_time_key);
        let (command, node, secret_ref) = (open.command, open.node, open.secret_ref.as_str());
        let asked = SecretRequestBody { command, node, secret_ref, one_time_key: &one_time_key };
        key.verify(&asked, &Signature::from_slice(&open.node_sig)?)?;
        let (tenant, payload) = open.command_of.as_ref().ok_or(Refused::NotInFlight)?;
        if !secret::names(payload, secret_ref) {
            return Err(Refused::NotNamed);
        }
        let value = folder::read(&self.dir, *tenant, secret_ref)?;
        let purpose = Purpose { command, node, secret_ref };
        let sealed = secret::seal(&value, &open.one_time_key, purpose, |bytes| self.fill(bytes))?;
        let sealed_sha256 = sealed.sha256_hex();
        let body =
            SealedSecretBody { command, node, secret_ref, one_time_key: &one_time_key, sealed_sha256: &sealed_sha256 };
        let signature = self.signer.sign(&body, now).map(Box::new);
        Ok(Answer::Sealed(sealed, signature))
    }

    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            chunk.copy_from_slice(&self.world.bytes::<32>()[..chunk.len()]);
        }
    }
}
