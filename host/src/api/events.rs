//! `GET /v1/events.watch`: what happens, as server-sent events.
//!
//! **Invariant:** the id of an event is the place after it. A watcher that comes back with the last id it saw gets every later
//! event that it asked for, once and in order.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bc_proto::id::{CommandId, NodeId};
use futures_util::stream;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::App;
use super::auth::{Caller, EVENTS_READ};
use super::error::Failure;
use super::extract::{Ask, Rules};
use super::openapi::Errors;
use super::outbox::Batch;
use super::types::{self, WatchEvents};
use crate::bus::{Progress, Signal};
use crate::store::commands;
use crate::store::events::{self, Cursor, Event, Filter};

/// The name of events that say how far a run is.
const PROGRESS: &str = "command.progress";

/// The most events that are read at once.
const PAGE: u32 = 200;

/// How often a comment is sent where nothing happens, so that nobody in between takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How often the caller of a stream is looked at again: a token that is revoked ends its streams as well.
const RECHECK: Duration = Duration::from_secs(5);

/// Watch what happens, as server-sent events.
///
/// An event's name is its topic, its id where to resume after it, its data an `Event`. Events named `command.progress` have no
/// id and are not on record; their data is a `Progress`. The first frame has an id and no data: where the watch begins.
#[utoipa::path(get, path = "/v1/events.watch", operation_id = "events.watch", tag = "events",
    params(WatchEvents, ("Last-Event-ID" = Option<String>, Header, description = "As `after`, and before it")),
    responses((status = 200, description = "The stream", content_type = "text/event-stream", body = types::Event), Errors))]
pub(super) async fn watch(
    State(app): State<App>,
    caller: Caller,
    Ask(ask): Ask<WatchEvents>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: Option<NodeId> = ask.node_id.as_deref().map(|text| rules.id("nodeId", text));
    let command: Option<CommandId> = ask.command_id.as_deref().map(|text| rules.id("commandId", text));
    let resumed = headers.get("last-event-id").map(|value| ("Last-Event-ID", value.to_str().unwrap_or("?")));
    let after = resumed.or(ask.after.as_deref().map(|text| ("after", text)));
    let after = after.map(|(field, text)| {
        let cursor = if text == "0" { Some(Cursor::default()) } else { text.parse().ok() };
        rules.rule(cursor.is_some(), field, "must be the id of an event, or 0");
        cursor.unwrap_or_default()
    });
    rules.check()?;
    caller.on_tenant(EVENTS_READ, tenant)?;
    let at = {
        let mut db = app.db().await?;
        if let Some(id) = command {
            let found = commands::find(&mut db, tenant, id).await?;
            found
                .filter(|it| node.is_none_or(|node| node == it.node))
                .ok_or_else(|| Failure::not_found("command", id))?;
        }
        match after {
            Some(cursor) => cursor,
            None => events::end(&mut db).await?,
        }
    };
    let begin = sse::Event::default().id(at.to_string()).comment("watching");
    let watch = Watch {
        batches: app.0.outbox.follow(&app.pool, &app.bus, &app.stop),
        progress: command.map(|id| (id, app.bus.subscribe())),
        filter: Filter { tenant: Some(tenant), node, command },
        unsent: VecDeque::from([begin]),
        is_behind: true,
        recheck_at: Instant::now() + RECHECK,
        at,
        app,
        caller,
    };
    let events = stream::unfold(watch, |mut watch| async {
        let event = watch.next().await?;
        Some((Ok::<_, Infallible>(event), watch))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// One who watches.
struct Watch {
    app: App,
    caller: Caller,
    filter: Filter,
    /// All that is wanted up to here was sent or stands in `unsent`.
    at: Cursor,
    /// Whether to read from the database rather than wait for the reader's next batch.
    is_behind: bool,
    batches: broadcast::Receiver<Arc<Batch>>,
    progress: Option<(CommandId, broadcast::Receiver<Signal>)>,
    unsent: VecDeque<sse::Event>,
    recheck_at: Instant,
}

impl Watch {
    /// The next event; `None` ends the stream, and the watcher comes back to where it was.
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            if let Some(event) = self.unsent.pop_front() {
                return Some(event);
            }
            if self.app.stop.is_cancelled() {
                return None;
            }
            if self.is_behind {
                // What cannot be read is logged where it becomes an answer.
                self.catch_up().await.ok()?;
                continue;
            }
            tokio::select! {
                () = self.app.stop.cancelled() => return None,
                batch = self.batches.recv() => match batch {
                    Ok(batch) => self.take(&batch),
                    Err(RecvError::Lagged(_)) => self.is_behind = true,
                    Err(RecvError::Closed) => return None,
                },
                progress = progressed(&mut self.progress) => {
                    let event = sse::Event::default().event(PROGRESS).json_data(progress);
                    self.unsent.extend(event.ok());
                }
                () = tokio::time::sleep_until(self.recheck_at) => {
                    let caller = self.caller.again(&self.app).await.ok()??;
                    caller.on_tenant(EVENTS_READ, caller.holder.tenant).ok()?;
                    self.recheck_at = Instant::now() + RECHECK;
                }
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), Failure> {
        let mut db = self.app.db().await?;
        let page = events::page(&mut db, self.at, self.filter, PAGE).await?;
        self.unsent.extend(page.events.into_iter().filter_map(sent));
        self.at = page.end;
        self.is_behind = page.is_full;
        Ok(())
    }

    fn take(&mut self, batch: &Batch) {
        if batch.from > self.at {
            self.is_behind = true;
            return;
        }
        let news = batch.events.iter().filter(|event| event.cursor > self.at && self.filter.wants(event));
        self.unsent.extend(news.cloned().filter_map(sent));
        self.at = self.at.max(batch.to);
    }
}

impl From<Event> for types::Event {
    fn from(event: Event) -> Self {
        Self {
            id: event.cursor.to_string(),
            topic: event.topic,
            tenant_id: event.tenant.to_string(),
            node_id: event.node.map(|id| id.to_string()),
            body: event.body,
            at: event.at,
        }
    }
}

fn sent(event: Event) -> Option<sse::Event> {
    let document = types::Event::from(event);
    sse::Event::default().id(&document.id).event(&document.topic).json_data(&document).ok()
}

/// The next progress of a command; never where none is asked for.
async fn progressed(from: &mut Option<(CommandId, broadcast::Receiver<Signal>)>) -> Progress {
    let Some((id, signals)) = from else { return std::future::pending().await };
    loop {
        match signals.recv().await {
            Ok(Signal::Progress(progress)) if progress.command_id == *id => return progress,
            // What was missed is out of date.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}
