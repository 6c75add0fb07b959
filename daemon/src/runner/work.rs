//! The loop of a runner: leases what waits, and sleeps until it is woken.
//!
//! **Invariant:** while nothing waits, the database is asked once a poll interval and when it says that something is there, and never
//! else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::bail;
use bc_proto::rules::lease::Refusal;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::command::{Command, Common, wait};
use super::postgres::{Database, Failed, Told};

/// How long the ends of killed programs may take to be told.
const TO_TELL: Duration = Duration::from_secs(10);

/// The loop.
pub(super) struct Work {
    pub(super) common: Arc<Common>,
    pub(super) concurrency: usize,
    pub(super) poll: Duration,
    pub(super) grace: Duration,
}

/// Whom the database's word wakes.
#[derive(Default)]
struct Wakes {
    commands: Notify,
    cancels: Mutex<HashMap<Uuid, Arc<Notify>>>,
}

impl Wakes {
    fn cancels(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Notify>>> {
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, told: Told) {
        match told {
            Told::Command => self.commands.notify_one(),
            Told::Cancel(command) => {
                if let Some(running) = self.cancels().get(&command) {
                    running.notify_one();
                }
            }
            Told::Nothing => {}
        }
    }
}

impl Work {
    /// Works until it is stopped. Errs when the gateway is not this login's.
    pub(super) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let wakes = Arc::new(Wakes::default());
        let listening = tokio::spawn(listen(self.common.db.clone(), Arc::clone(&wakes)));
        let mut running = JoinSet::new();
        let done = self.lease_until_stopped(&stop, &wakes, &mut running).await;
        listening.abort();
        self.finish(running).await;
        done
    }

    async fn lease_until_stopped(
        &self,
        stop: &CancellationToken,
        wakes: &Arc<Wakes>,
        running: &mut JoinSet<()>,
    ) -> anyhow::Result<()> {
        let mut failures = 0;
        let mut was_answered = false;
        while !stop.is_cancelled() {
            let mut rest = self.poll;
            while running.len() < self.concurrency && !stop.is_cancelled() {
                match self.common.db.lease(self.common.lease).await {
                    Ok(Some(leased)) => {
                        (failures, was_answered) = (0, true);
                        let (id, cancelled) = (leased.id, Arc::new(Notify::new()));
                        wakes.cancels().insert(id, Arc::clone(&cancelled));
                        let (command, wakes) =
                            (Command::new(Arc::clone(&self.common), leased, cancelled), Arc::clone(wakes));
                        running.spawn(async move {
                            command.run().await;
                            wakes.cancels().remove(&id);
                        });
                    }
                    Ok(None) => {
                        if !was_answered {
                            tracing::info!("waiting for commands");
                        }
                        (failures, was_answered) = (0, true);
                        break;
                    }
                    Err(Failed::Refused(Refusal::UnknownGateway, message)) if !was_answered => {
                        bail!(
                            "{message}\n  → name the gateway's slug with --gateway, and let this login act for it (runner_logins)"
                        );
                    }
                    Err(failed) => {
                        failures += 1;
                        rest = wait(failures).min(self.poll);
                        tracing::warn!(%failed, "nothing could be leased; the database is asked again");
                        break;
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = wakes.commands.notified() => {}
                Some(ended) = running.join_next(), if !running.is_empty() => report(ended),
                () = sleep(rest) => {}
            }
        }
        Ok(())
    }

    /// Waits for what runs, then kills it and waits until its end was told.
    async fn finish(&self, mut running: JoinSet<()>) {
        if running.is_empty() {
            return;
        }
        tracing::info!(running = running.len(), grace = ?self.grace, "stopping: nothing new is leased");
        let all = async |running: &mut JoinSet<()>| {
            while let Some(ended) = running.join_next().await {
                report(ended);
            }
        };
        if timeout(self.grace, all(&mut running)).await.is_ok() {
            return;
        }
        self.common.stop.cancel();
        if timeout(TO_TELL, all(&mut running)).await.is_err() {
            self.common.leave.cancel();
            all(&mut running).await;
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(panic) = ended {
        tracing::error!(%panic, "a command was given up on; its lease runs out");
    }
}

/// Listens for ever. After each time without a connection commands are looked for, since nobody heard of them.
async fn listen(db: Database, wakes: Arc<Wakes>) {
    let mut failures = 0;
    loop {
        match db.listen().await {
            Ok(mut listener) => {
                failures = 0;
                wakes.wake(Told::Command);
                loop {
                    match listener.hear().await {
                        Ok(told) => wakes.wake(told),
                        Err(failed) => {
                            tracing::warn!(%failed, "nothing is heard of the database");
                            break;
                        }
                    }
                }
            }
            Err(failed) => tracing::warn!(%failed, "the database cannot be listened to; it is polled meanwhile"),
        }
        failures += 1;
        sleep(wait(failures)).await;
    }
}
