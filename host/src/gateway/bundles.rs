//! Trust bundles on their way to nodes: read from the database, relayed as they are.
//!
//! A node takes a bundle by the word of a root that it trusts already, so one that was away is led through all that it missed, in
//! their order.
//!
//! **Invariant:** nothing here signs, and no byte of a bundle is changed.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bc_proto::wire::v1;
use sqlx::PgConnection;

use super::Inner;
use super::sessions::Session;
use crate::store::Error;
use crate::store::trust_bundles::{self, Stored};

/// All bundles that there are, lowest version first. They are few: each is a change of the operator's settings.
#[derive(Debug, Default)]
pub(super) struct Bundles(Mutex<Vec<Stored>>);

impl Bundles {
    fn known(&self) -> MutexGuard<'_, Vec<Stored>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads those that are not known yet.
    pub(super) async fn read(&self, db: &mut PgConnection) -> Result<(), Error> {
        let newest = self.known().last().map_or(0, |it| it.version);
        let read = trust_bundles::above(db, newest).await?;
        if read.is_empty() {
            return Ok(());
        }
        let mut known = self.known();
        // Two may have read at the same time.
        let newest = known.last().map_or(0, |it| it.version);
        known.extend(read.into_iter().filter(|it| it.version > newest));
        Ok(())
    }

    /// What a session was not told of yet; it counts as told from now on.
    pub(super) fn news(&self, session: &Session) -> Vec<Vec<u8>> {
        news(&self.known(), session)
    }

    /// Tells a session what it was not told of yet.
    pub(super) fn tell(&self, session: &Session) {
        // Held while they are sent, so that two who tell keep the order.
        let known = self.known();
        for trust_bundle in news(&known, session) {
            session.send(v1::to_node::Frame::TrustChanged(v1::TrustChanged { trust_bundle }));
        }
    }
}

fn news(known: &[Stored], session: &Session) -> Vec<Vec<u8>> {
    let newest = known.last().map_or(0, |it| it.version);
    let told = session.trust_version.fetch_max(newest, Ordering::Relaxed);
    known.iter().filter(|it| it.version > told).map(|it| it.document.clone()).collect()
}

/// Reads, and tells all sessions. Without sessions there is nobody to read for: a hello reads for itself.
pub(super) async fn tell_all(gateway: &Inner) {
    if gateway.sessions.len() == 0 {
        return;
    }
    let read = async {
        let mut db = gateway.pool.acquire().await?;
        gateway.bundles.read(&mut db).await
    };
    if let Err(error) = read.await {
        // The slow reconcile tries again.
        tracing::error!(error = &error as &dyn std::error::Error, "trust bundles cannot be read for now");
        return;
    }
    for session in gateway.sessions.all() {
        gateway.bundles.tell(&session);
    }
}
