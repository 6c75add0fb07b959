//! Secrets on their way to nodes: a gateway passes requests and answers on, and can open neither.
//!
//! **Invariant:** there is no vault and no signer in here. What the gateway checks spares the vault work; the vault checks all of
//! it again.

use std::time::Duration;

use bc_proto::id::CommandId;
use bc_proto::secret;
use bc_proto::wire::v1;
use sqlx::types::Uuid;
use tokio::sync::broadcast::Receiver;
use tonic::Status;

use super::{Caller, Inner, away};
use crate::bus::{self, Signal};
use crate::store::secret_exchanges::{self, Answer, Failure, NewExchange};
use crate::store::{Error, node_certificates};

/// How long a node waits for its secret.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the answer is looked for by itself: what a lost signal costs at most.
const PERIOD: Duration = Duration::from_secs(1);

/// The most requests of one node at once: as many as it has workers, and some.
const OPEN: u64 = 64;

impl Inner {
    /// A secret that a command names, sealed.
    pub(super) async fn exchange_secret(
        &self,
        caller: Caller,
        request: v1::SecretRequest,
    ) -> Result<v1::SealedSecret, Status> {
        let command = self.check(caller, &request).await?;
        let signals = self.bus.subscribe();
        let now = self.world.now();
        let id = self.world.uuid();
        let new = NewExchange {
            id,
            node: caller.peer.node,
            command,
            secret_ref: &request.secret_ref,
            one_time_key: &request.one_time_key,
            node_sig: &request.node_sig,
            fingerprint: caller.fingerprint,
            expires_at: now + PATIENCE,
        };
        let create = async { secret_exchanges::create(&mut *self.pool.acquire().await?, new, now).await };
        create.await.map_err(|error| away(&error))?;
        self.bus.tell(Signal::Secret);
        let answered = tokio::time::timeout(PATIENCE, self.answered(id, signals)).await;
        let delete = async { secret_exchanges::delete(&mut *self.pool.acquire().await?, id).await };
        if let Err(error) = delete.await {
            // It expires, and goes with a later one.
            tracing::warn!(error = &error as &dyn std::error::Error, "a request for a secret was not removed");
        }
        let late = |_| Status::deadline_exceeded("no replica with a vault answered in time; try again");
        match answered.map_err(late)?.map_err(|error| away(&error))? {
            Answer::Sealed(sealed, signature) => Ok(v1::SealedSecret {
                encapsulated_key: sealed.encapsulated_key,
                ciphertext: sealed.ciphertext,
                signature: signature.map(|it| (*it).into()),
            }),
            Answer::Failed(Failure::NotFound) => Err(Status::not_found("there is no such secret")),
            Answer::Failed(Failure::Refused) => {
                Err(Status::permission_denied("the vault refused; its log on the control plane says why"))
            }
        }
    }

    async fn check(&self, caller: Caller, request: &v1::SecretRequest) -> Result<CommandId, Status> {
        let invalid = |what: &str| Status::invalid_argument(format!("SecretRequest.{what}"));
        let command: CommandId = request.command_id.parse().map_err(|_| invalid("command_id: must be cmd_…"))?;
        if !secret::is_ref(&request.secret_ref) {
            return Err(invalid("secret_ref: must be a reference"));
        }
        if request.one_time_key.len() != 32 {
            return Err(invalid("one_time_key: must have 32 bytes"));
        }
        if request.node_sig.len() != 64 {
            return Err(invalid("node_sig: must have 64 bytes"));
        }
        let node = caller.peer.node;
        let known = async {
            let mut db = self.pool.acquire().await?;
            let certificates = node_certificates::find_many(&mut db, &[caller.fingerprint]).await?;
            if certificates.is_empty() {
                return Ok(None);
            }
            Ok::<_, Error>(Some(secret_exchanges::in_flight(&mut db, node, command).await?))
        };
        let Some(found) = known.await.map_err(|error| away(&error))? else {
            return Err(Status::unauthenticated(
                "this certificate was revoked, or its node was deleted or enrolled again",
            ));
        };
        let found = found.ok_or_else(|| Status::failed_precondition("the command is not in flight at this node"))?;
        if !secret::names(&found.payload, &request.secret_ref) {
            return Err(Status::not_found("the command does not name this secret"));
        }
        if found.open >= OPEN {
            return Err(Status::resource_exhausted("the node asks for too many secrets at once; try again"));
        }
        Ok(command)
    }

    async fn answered(&self, id: Uuid, mut signals: Receiver<Signal>) -> Result<Answer, Error> {
        loop {
            bus::told(&mut signals, &Signal::Secret, PERIOD).await;
            let answer = secret_exchanges::answer(&mut *self.pool.acquire().await?, id).await?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }
}
