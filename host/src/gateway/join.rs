//! Making a node of a machine.
//!
//! **Invariant:** token, node, life and certificate are one transaction: a token that is spent has made its node, and one that was
//! refused for any reason can be used again.

use bc_proto::id::{NodeId, TenantId};
use bc_proto::manifest::Role;
use bc_proto::wire::v1;
use sha2::{Digest as _, Sha256};
use sqlx::{Acquire, PgTransaction};
use time::OffsetDateTime;
use tonic::Status;

use super::{Inner, away};
use crate::bus::Signal;
use crate::faults::crash_at;
use crate::pki::Peer;
use crate::queue::life;
use crate::store::join_tokens::{self, JoinToken};
use crate::store::{Error, nodes, trust_bundles, unix_ms};

/// The longest name of a node.
const MAX_NAME: usize = 63;

/// How much of its id a node's name ends with when its host name is taken: the random end of a UUID of version 7.
const SUFFIX: usize = 6;

fn refused(why: &str) -> Status {
    Status::unauthenticated(why)
}

impl Inner {
    /// Enrols a machine.
    pub(super) async fn join(&self, request: &v1::JoinRequest) -> Result<v1::JoinResponse, Status> {
        let role = request.checked_role().map_err(|invalid| Status::invalid_argument(invalid.to_string()))?;
        let name = request.checked_name().map_err(|invalid| Status::invalid_argument(invalid.to_string()))?;
        let (secret, authority) =
            join_tokens::parse(&request.token).ok_or_else(|| refused("this is no join token; they begin with bcj_"))?;
        if authority != *Sha256::digest(self.authority.certificate_der()) {
            return Err(refused("this token was made by another control plane"));
        }
        let hash = join_tokens::hash(secret);
        let now = self.world.now();
        let mut tx = self.pool.begin().await.map_err(|error| away(&error.into()))?;
        let token = join_tokens::lock(&mut tx, hash).await.map_err(|error| away(&error))?;
        let token = check(token, now)?;
        let peer = match token.node {
            Some(node) => self.again(&mut tx, node, now).await?,
            None => self.create(&mut tx, token.tenant, name, role, now).await.map_err(|error| away(&error))?,
        };
        let certify = self.certify(&mut tx, peer, &request.certificate_request, token.allowed_kinds.as_deref(), now);
        let certificate = certify.await.map_err(|refused| refused.status("JoinRequest"))?;
        let written = async {
            join_tokens::spend(&mut tx, hash, now).await?;
            let trust_bundle = trust_bundles::latest(&mut tx).await?.map(|it| it.document).unwrap_or_default();
            crash_at("join.before-write");
            tx.commit().await?;
            crash_at("join.after-write");
            Ok(trust_bundle)
        };
        let trust_bundle = written.await.map_err(|error: Error| away(&error))?;
        tracing::info!(node = %peer.node, incarnation = peer.incarnation, "a node joined");
        if token.node.is_some() {
            // The life before may still have a session somewhere.
            self.bus.tell(Signal::Cancel { node: peer.node });
            self.bus.tell(Signal::Events);
        }
        Ok(v1::JoinResponse {
            node_id: peer.node.to_string(),
            incarnation: peer.incarnation,
            certificate_chain: vec![certificate, self.authority.certificate_der().to_vec()],
            server_time_ms: unix_ms(now),
            trust_bundle,
        })
    }

    /// The next life of a node.
    async fn again(&self, tx: &mut PgTransaction<'_>, node: NodeId, now: OffsetDateTime) -> Result<Peer, Status> {
        let life = life::replace(tx, node, now).await.map_err(|error| away(&error))?;
        let incarnation = life.ok_or_else(|| refused("the node that this token is for was deleted"))?;
        Ok(Peer { node, incarnation })
    }

    /// A new node, named after its host, with a part of its id if that name is taken.
    async fn create(
        &self,
        tx: &mut PgTransaction<'_>,
        tenant: TenantId,
        name: &str,
        role: Role,
        now: OffsetDateTime,
    ) -> Result<Peer, Error> {
        let id = NodeId::from_uuid(self.world.uuid());
        let id_text = id.to_string();
        let suffix = &id_text[id_text.len() - SUFFIX..];
        let longer = format!("{}-{suffix}", &name[..name.len().min(MAX_NAME - SUFFIX - 1)]);
        let of = |name: &str| nodes::NewNode { id, tenant, name: name.to_owned(), labels: [].into(), role };
        let mut attempt = tx.begin().await?;
        match nodes::create(&mut attempt, of(name), now).await {
            Ok(()) => attempt.commit().await?,
            Err(Error::Database(sqlx::Error::Database(error))) if error.is_unique_violation() => {
                attempt.rollback().await?;
                nodes::create(&mut *tx, of(&longer), now).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(Peer { node: id, incarnation: 1 })
    }
}

fn check(token: Option<JoinToken>, now: OffsetDateTime) -> Result<JoinToken, Status> {
    let token = token.ok_or_else(|| refused("this token is unknown here"))?;
    if token.used_at.is_some() {
        return Err(refused("this token was used already; each is good for one join"));
    }
    if token.expires_at <= now {
        return Err(refused("this token has expired; ask for a new one"));
    }
    Ok(token)
}
