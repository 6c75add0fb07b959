//! The trust bundle: made of a replica's settings, kept in the database, told to nodes by gateways.
//!
//! **Invariant:** a version is given once, to one content. The same content is the same version, whichever replica says it and
//! however often; a change gets a higher one.

use bc_proto::rules::trust::{SignedBundle, TrustBundle};
use sqlx::PgPool;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::Settings;
use crate::bus::{Bus, Signal};
use crate::store::trust_bundles::{self, Stored};
use crate::store::{Error, corrupt};
use crate::world::World;

/// How long until it is looked at again, where the database is away.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// What became of a replica's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// Nothing is configured, and nodes were never told anything.
    Nothing,
    /// Nodes are told so already, at this version.
    Known(u64),
    /// It is a new version.
    New(u64),
    /// Nodes are told of roots, and these settings have none to sign a change with: nothing was changed.
    CannotSign {
        /// What nodes are told.
        version: u64,
        /// Whose settings that was made of.
        replica: String,
    },
}

impl Settings {
    /// What nodes are to trust by these settings, without a version; `None` where nothing is configured.
    pub fn bundle(&self) -> Option<TrustBundle> {
        let own = self.command_signing.as_ref().map(bc_proto::sign::SecretKey::public);
        let mut roots: Vec<_> = own.into_iter().chain(self.command_signing_roots.iter().copied()).collect();
        // Which of them signs is no part of what is trusted.
        roots.sort_unstable();
        roots.dedup();
        let bundle = TrustBundle {
            version: 0,
            roots,
            approvers: self.approvers.clone(),
            unbatched_destructive_per_hour: self.unbatched_destructive_per_hour,
            publishers: self.publishers.clone(),
            ..TrustBundle::NONE
        };
        (bundle != TrustBundle::NONE).then_some(bundle)
    }
}

/// Sees to it that nodes are told what these settings say.
pub async fn publish(
    pool: &PgPool,
    bus: &Bus,
    settings: &Settings,
    replica: &str,
    world: &World,
) -> Result<Published, Error> {
    let mut tx = pool.begin().await?;
    trust_bundles::lock(&mut tx).await?;
    let latest = match trust_bundles::latest(&mut tx).await? {
        Some(stored) => Some((parse(&stored)?, stored)),
        None => None,
    };
    let wanted = settings.bundle();
    let (Some(wanted), root) = (wanted.or(latest.as_ref().map(|_| TrustBundle::NONE)), &settings.command_signing)
    else {
        return Ok(Published::Nothing);
    };
    let mut version = settings.trust_version.max(1);
    if latest.is_none() && root.is_none() && !wanted.roots.is_empty() {
        return Ok(Published::CannotSign { version: 0, replica: String::new() });
    }
    if let Some((SignedBundle { bundle, .. }, stored)) = &latest {
        let same = TrustBundle { version: 0, ..bundle.clone() } == wanted;
        if same && bundle.version >= settings.trust_version {
            return Ok(Published::Known(bundle.version));
        }
        if root.is_none() && !bundle.roots.is_empty() {
            return Ok(Published::CannotSign { version: stored.version, replica: stored.replica.clone() });
        }
        version = version.max(bundle.version + 1);
    }
    let bundle = TrustBundle { version, ..wanted };
    let signed = SignedBundle::sign(bundle, &root.iter().collect::<Vec<_>>());
    let document = serde_json::to_vec(&signed).expect("keys and numbers are JSON");
    let stored = Stored { version, document, replica: replica.to_owned() };
    trust_bundles::create(&mut tx, &stored, world.now()).await?;
    tx.commit().await?;
    bus.tell(Signal::TrustChanged);
    Ok(Published::New(version))
}

/// Publishes, and says in the log what came of it.
pub async fn publish_and_say(
    pool: &PgPool,
    bus: &Bus,
    settings: &Settings,
    replica: &str,
    world: &World,
) -> Result<(), Error> {
    match publish(pool, bus, settings, replica, world).await? {
        Published::Nothing => {}
        Published::Known(version) => tracing::info!(version, "nodes trust what this replica's [pki] says"),
        Published::New(version) => tracing::info!(version, "nodes are told to trust what this replica's [pki] says"),
        Published::CannotSign { version, replica } => tracing::error!(
            version,
            replica,
            "nodes are not told what this replica's [pki] says: it has no pki.command-signing to sign that with, and nodes trust \
             the roots of version {version}. Start a replica with these settings and the root's key once; give all replicas \
             the same [pki]"
        ),
    }
    Ok(())
}

/// Says it in the log when another replica's settings become what nodes trust, until `stop`.
pub async fn watch(pool: PgPool, bus: Bus, settings: Settings, stop: CancellationToken) {
    let mut signals = bus.subscribe();
    let watching = async {
        loop {
            match signals.recv().await {
                Ok(Signal::TrustChanged | Signal::Missed) | Err(RecvError::Lagged(_)) => {}
                Ok(_) => continue,
                Err(RecvError::Closed) => return,
            }
            match other(&pool, &settings).await {
                Ok(None) => {}
                Ok(Some(stored)) => tracing::error!(
                    version = stored.version,
                    replica = stored.replica,
                    "nodes are told to trust what that replica's [pki] says, and this one's says something else. Give all \
                     replicas the same [pki]"
                ),
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the trust bundle cannot be read for now"
                    );
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    };
    stop.run_until_cancelled(watching).await;
}

/// The bundle that counts, if it says something else than these settings.
pub async fn other(pool: &PgPool, settings: &Settings) -> Result<Option<Stored>, Error> {
    let mut db = pool.acquire().await?;
    let Some(stored) = trust_bundles::latest(&mut db).await? else { return Ok(None) };
    let says = TrustBundle { version: 0, ..parse(&stored)?.bundle };
    Ok((says != settings.bundle().unwrap_or(TrustBundle::NONE)).then_some(stored))
}

fn parse(stored: &Stored) -> Result<SignedBundle, Error> {
    serde_json::from_slice(&stored.document).map_err(|_| corrupt("trust_bundles", "document", stored.version))
}

#[cfg(test)]
mod tests;
