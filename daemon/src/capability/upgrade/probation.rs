//! The probation of a release: it is confirmed when a session with the control plane has lasted, and goes back when none did in time.
//!
//! **Invariant:** a confirmation is on the disk before anything is said of it.

use std::io;
use std::time::Duration;

use bc_proto::rules::daemon::Input;
use tokio::time::sleep;

use super::{Inner, Upgrades};
use crate::faults::crash_at;
use crate::node::now_ms;
use crate::shell::{Handle, Terminal};
use crate::slots::VERSION;

impl Upgrades {
    /// The running release stays. Nothing changes where it is not on trial.
    pub(super) fn confirm(&self) -> io::Result<()> {
        let Inner { store, running, confirmed, .. } = &*self.0;
        let Some(sha256) = running.sha256.as_ref().filter(|_| self.on_trial()) else { return Ok(()) };
        crash_at("confirm.before");
        let slots = store.change::<io::Error>(|slots| Ok(slots.confirm(sha256)))?;
        if slots.trial.is_none() {
            tracing::info!(version = VERSION, "this version stays");
            confirmed.cancel();
        }
        Ok(())
    }

    /// Watches over the probation to its end; returns at once where there is none.
    pub(crate) async fn watch(self, handle: Handle) {
        let Inner { store, running, confirmed, restart, settings, .. } = &*self.0;
        if let Some(deadline_ms) = running.deadline_ms {
            let left = Duration::from_millis(deadline_ms.saturating_sub(now_ms()));
            tracing::info!(version = VERSION, left_ms = left.as_millis(), "this version is on probation");
            tokio::select! {
                biased;
                () = confirmed.cancelled() => {}
                () = self.sessions_last(settings.confirm_after) => {}
                () = sleep(left) => return self.give_up(restart),
            }
            // The loop is gone only when the daemon ends; the next one finds it confirmed.
            handle.input(Input::Confirmed).await;
        }
        match store.read() {
            Ok(Some(slots)) => {
                if let Err(error) = store.tidy(&slots, None) {
                    tracing::warn!(%error, "old releases are not removed for now");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "what is remembered of the daemon's binaries cannot be read"),
        }
    }

    /// Returns when a session has lasted so long and the release was confirmed for it.
    async fn sessions_last(&self, long: Duration) {
        let mut opened = self.0.opened.subscribe();
        loop {
            let session = *opened.borrow_and_update();
            let changed = async {
                // The sender is in here.
                let _ = opened.changed().await;
            };
            if session.is_none() {
                changed.await;
                continue;
            }
            tokio::select! {
                () = changed => {}
                () = sleep(long) => match self.confirm() {
                    Ok(()) => return,
                    Err(error) => tracing::error!(%error, "this version cannot be confirmed; it is tried again"),
                },
            }
        }
    }

    /// Goes back to the version before.
    fn give_up(&self, restart: &tokio_util::sync::CancellationToken) {
        tracing::error!(version = VERSION, "no session lasted in time: going back to the version before");
        // Where this cannot be written, the next start finds the time over.
        let back = self.0.store.change::<io::Error>(|slots| Ok(slots.clone().roll_back().unwrap_or(slots)));
        if let Err(error) = back {
            tracing::error!(%error, "the way back is not written down");
        }
        restart.cancel();
    }
}
