//! `events.watch`: a stream that comes back after it was cut, where the last event left off.
//!
//! **Invariant:** nothing decides by the stream alone: events may be late or lost, and whoever waits asks as well.

use std::time::Duration;

use bc_host::api::types::{Event, WatchEvents};
use bc_host::bus::Progress;
use bc_proto::rules::backoff::Backoff;
use eventsource_stream::Eventsource;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{CallError, Client};
use crate::shell;

/// Between connections: 0.25 to 10 s.
const BACKOFF: Backoff = Backoff { min: Duration::from_millis(250), max: Duration::from_secs(10) };

/// Events that a slow reader may leave unread before the stream waits for it.
const UNREAD: usize = 64;

/// The topic of events that say how far a run is.
const PROGRESS: &str = "command.progress";

/// What the stream said.
#[derive(Debug)]
pub enum Said {
    /// Something happened, and is on record.
    Happened(Event),
    /// How far a run is.
    Progress(Progress),
    /// The stream was cut and is being opened again.
    Interrupted(CallError),
}

/// The stream. It ends only when the server refuses it, or when this value goes away.
pub struct Events {
    said: mpsc::Receiver<Result<Said, CallError>>,
    _task: AbortOnDropHandle<()>,
}

impl Events {
    /// Opens it.
    pub fn watch(client: std::sync::Arc<Client>, query: WatchEvents) -> Self {
        let (tell, said) = mpsc::channel(UNREAD);
        let task = tokio::spawn(follow(client, query, tell));
        Self { said, _task: AbortOnDropHandle::new(task) }
    }

    /// The next thing said; `None` when the stream is over for good, after the error that says why.
    pub async fn next(&mut self) -> Option<Result<Said, CallError>> {
        self.said.recv().await
    }
}

async fn follow(client: std::sync::Arc<Client>, mut query: WatchEvents, tell: mpsc::Sender<Result<Said, CallError>>) {
    let mut attempt = 0;
    loop {
        let seen = query.after.clone();
        let error = match once(&client, &mut query, &tell).await {
            Ok(()) => return,
            Err(error) => error,
        };
        if !error.is_transient() {
            let _ = tell.send(Err(error)).await;
            return;
        }
        attempt = if query.after == seen { attempt + 1 } else { 0 };
        if tell.send(Ok(Said::Interrupted(error))).await.is_err() {
            return;
        }
        tokio::time::sleep(BACKOFF.wait(attempt, shell::jitter())).await;
    }
}

/// One connection. `Ok` when nobody listens any more.
async fn once(
    client: &Client,
    query: &mut WatchEvents,
    tell: &mpsc::Sender<Result<Said, CallError>>,
) -> Result<(), CallError> {
    let answer = client.watch(query).send().await.map_err(|source| client.unreachable(source))?;
    let status = answer.status();
    if !status.is_success() {
        let body = answer.bytes().await.map_err(|source| client.unreachable(source))?;
        return Err(client.refused(status, &body));
    }
    let mut stream = answer.bytes_stream().eventsource();
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => event,
            Err(eventsource_stream::EventStreamError::Transport(source)) => return Err(client.unreachable(source)),
            Err(other) => return Err(client.foreign(status, &other.to_string())),
        };
        let Some(said) = read(&event.event, &event.data) else {
            continue;
        };
        if let Said::Happened(event) = &said {
            query.after = Some(event.id.clone());
        }
        if tell.send(Ok(said)).await.is_err() {
            return Ok(());
        }
    }
    // The server closed it: it is stopping.
    Err(client.foreign(reqwest::StatusCode::BAD_GATEWAY, "the stream of events ended"))
}

/// Reads one event. What this program does not know is left out, so that a newer server can say more.
fn read(topic: &str, data: &str) -> Option<Said> {
    if topic == PROGRESS {
        let data: Value = serde_json::from_str(data).ok()?;
        let body = if data["body"].is_object() { data["body"].clone() } else { data };
        return serde_json::from_value(body).ok().map(Said::Progress);
    }
    serde_json::from_str(data).ok().map(Said::Happened)
}
