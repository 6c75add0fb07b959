//! Waiting for a command to end.
//!
//! Events say at once what happened; a slow poll asks all the same, so that a wait ends although every event is lost.
//!
//! **Invariant:** only what `commands.get` answers ends a wait; an event merely makes it ask.

use std::sync::Arc;
use std::time::Duration;

use bc_host::api::types::{CommandRef, WatchEvents};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::progress::Progress;
use super::seen::Seen;
use crate::client::events::{Events, Said};
use crate::client::{CallError, Client};
use crate::exit::Ending;

/// How a wait goes about it.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two polls. Events make it ask earlier.
    pub poll: Duration,
    /// How long nobody may answer before contact counts as lost.
    pub lost_after: Duration,
    /// How long to wait at all; `None` for as long as it takes. By its deadline every command ends.
    pub wait: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { poll: Duration::from_secs(3), lost_after: Duration::from_mins(1), wait: None }
    }
}

/// How a wait ended.
#[derive(Debug)]
pub struct Followed {
    /// What is known.
    pub ending: Ending,
    /// The command as it was last seen; `None` if it never was.
    pub seen: Option<Seen>,
    /// Why contact was lost.
    pub error: Option<CallError>,
}

/// Waits until the command is over or waits for approval, `interrupt` resolves, the pace's time is over, or contact is lost.
pub async fn follow(
    client: Arc<Client>,
    command: &CommandRef,
    first: Option<Seen>,
    pace: Pace,
    progress: &mut Progress,
    interrupt: impl Future<Output = ()>,
) -> Followed {
    let mut followed = Followed { ending: Ending::Unknown, seen: None, error: None };
    if let Some(seen) = first
        && followed.take(seen, progress)
    {
        return followed;
    }
    let mut events = Some(Events::watch(
        Arc::clone(&client),
        WatchEvents {
            tenant_id: command.tenant_id.clone(),
            node_id: Some(command.node_id.clone()),
            command_id: Some(command.command_id.clone()),
            after: None,
        },
    ));
    let start = Instant::now();
    let mut heard = start;
    // The first poll comes at once: what happened before the stream was opened has no event.
    let mut polls = interval_at(start, pace.poll);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = pace.wait.map(|wait| start + wait);
    tokio::pin!(interrupt);
    loop {
        let asked = tokio::select! {
            biased;
            () = &mut interrupt => {
                followed.ending = Ending::Interrupted;
                return followed;
            }
            () = sleep_until(end.unwrap_or(start)), if end.is_some() => {
                followed.ending = Ending::TimedOut;
                return followed;
            }
            said = next(&mut events) => match said {
                Some(Ok(Said::Progress(step))) => {
                    progress.step(&step);
                    continue;
                }
                Some(Ok(Said::Interrupted(_))) => continue,
                Some(Ok(Said::Happened(_))) => get(&client, command).await,
                // Without events the polls go on.
                Some(Err(_)) | None => {
                    events = None;
                    continue;
                }
            },
            _ = polls.tick() => get(&client, command).await,
        };
        match asked {
            Ok(seen) => {
                heard = Instant::now();
                if followed.take(seen, progress) {
                    return followed;
                }
            }
            Err(error) if error.is_transient() && heard.elapsed() < pace.lost_after => {
                progress.note("no answer, trying on");
            }
            Err(error) => {
                followed.ending = Ending::Unknown;
                followed.error = Some(error);
                return followed;
            }
        }
    }
}

impl Followed {
    /// Takes note of the command; whether the wait is over with it.
    fn take(&mut self, seen: Seen, progress: &mut Progress) -> bool {
        progress.stands(&seen);
        self.ending = seen.ending();
        let over = seen.is_over() || self.ending == Ending::AwaitsApproval;
        self.seen = Some(seen);
        over
    }
}

async fn next(events: &mut Option<Events>) -> Option<Result<Said, CallError>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

/// The command as it stands.
pub async fn get(client: &Client, command: &CommandRef) -> Result<Seen, CallError> {
    client.call("commands.get", command).await
}
