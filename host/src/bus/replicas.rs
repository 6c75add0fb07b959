//! What replicas tell each other: NOTIFY out, LISTEN in.
//!
//! **Invariant:** signals gather while the last ones are on their way, and each is told once however often it was given: what
//! crosses the database grows with the nodes concerned, never with the commands.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bc_proto::id::{CommandId, NodeId};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::types::Uuid;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Bus, Progress, Signal};
use crate::metrics;

/// The channel that replicas listen to.
const CHANNEL: &str = "better_compute";

/// Postgres refuses a payload of 8000 bytes.
const MAX_PAYLOAD: usize = 7_900;

/// The most progress that waits; more is dropped, since the next one says the same and more.
const MAX_PROGRESS: usize = 1_000;

/// The wait before the database is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What has still to be told.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    gathered: Mutex<Gathered>,
    grew: Notify,
}

#[derive(Debug, Default)]
struct Gathered {
    work: HashSet<NodeId>,
    cancel: HashSet<NodeId>,
    spec: HashSet<NodeId>,
    events: bool,
    trust: bool,
    secret: bool,
    progress: HashMap<CommandId, Progress>,
    output: HashSet<CommandId>,
}

impl Outgoing {
    pub(super) fn add(&self, signal: &Signal) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        match signal {
            Signal::Work { node } => {
                gathered.work.insert(*node);
            }
            Signal::Cancel { node } => {
                gathered.cancel.insert(*node);
            }
            Signal::Spec { node } => {
                gathered.spec.insert(*node);
            }
            Signal::Events => gathered.events = true,
            Signal::TrustChanged => gathered.trust = true,
            Signal::Secret => gathered.secret = true,
            Signal::Progress(progress) if gathered.progress.len() < MAX_PROGRESS => {
                gathered.progress.insert(progress.command_id, progress.clone());
            }
            Signal::Output { command } => {
                gathered.output.insert(*command);
            }
            Signal::Progress(_) | Signal::Missed => return,
        }
        drop(gathered);
        self.grew.notify_one();
    }

    fn take(&self) -> Gathered {
        mem::take(&mut self.gathered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts back what could not be told.
    fn put_back(&self, told: Gathered) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.work.extend(told.work);
        gathered.cancel.extend(told.cancel);
        gathered.spec.extend(told.spec);
        gathered.events |= told.events;
        gathered.trust |= told.trust;
        gathered.secret |= told.secret;
        gathered.output.extend(told.output);
        for (command, progress) in told.progress {
            gathered.progress.entry(command).or_insert(progress);
        }
    }
}

/// One payload.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Message {
    from: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    work: Vec<NodeId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cancel: Vec<NodeId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spec: Vec<NodeId>,
    events: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    trust: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    secret: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    progress: Vec<Progress>,
    /// UUIDs of commands: a runner's SQL tells it too, and knows no other form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output: Vec<String>,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.work.is_empty()
            && self.cancel.is_empty()
            && self.spec.is_empty()
            && !self.events
            && !self.trust
            && !self.secret
            && self.progress.is_empty()
            && self.output.is_empty()
    }

    /// As few payloads as hold it.
    fn payloads(&self, from: &str) -> Vec<String> {
        let empty = || Message { from: from.to_owned(), ..Message::default() };
        let mut messages = vec![Message { events: self.events, trust: self.trust, secret: self.secret, ..empty() }];
        let (overhead, mut bytes) = (from.len() + 96, from.len() + 96);
        let mut room = |messages: &mut Vec<Message>, needed: usize| {
            if bytes + needed > MAX_PAYLOAD {
                messages.push(empty());
                bytes = overhead;
            }
            bytes += needed;
        };
        // An id, its quotes and a comma.
        let id = NodeId::from_uuid(sqlx::types::Uuid::nil()).to_string().len() + 3;
        for node in &self.cancel {
            room(&mut messages, id);
            messages.last_mut().expect("there is one").cancel.push(*node);
        }
        for node in &self.spec {
            room(&mut messages, id);
            messages.last_mut().expect("there is one").spec.push(*node);
        }
        for node in &self.work {
            room(&mut messages, id);
            messages.last_mut().expect("there is one").work.push(*node);
        }
        for command in &self.output {
            // A UUID, its quotes and a comma.
            room(&mut messages, 39);
            messages.last_mut().expect("there is one").output.push(command.uuid().to_string());
        }
        for progress in self.progress.values() {
            let needed = serde_json::to_string(progress).map_or(MAX_PAYLOAD, |text| text.len() + 1);
            if overhead + needed > MAX_PAYLOAD {
                continue;
            }
            room(&mut messages, needed);
            messages.last_mut().expect("there is one").progress.push(progress.clone());
        }
        messages.iter().map(|it| serde_json::to_string(it).expect("text and numbers are JSON")).collect()
    }
}

/// Starts the two tasks.
pub(super) fn start(bus: &Bus, pool: &PgPool, replica: &str, stop: CancellationToken) {
    let Some(outgoing) = bus.elsewhere.clone() else { return };
    let options = (*pool.connect_options()).clone();
    let teller = tell_others(outgoing, options.clone(), replica.to_owned());
    let listener = hear_others(bus.clone(), options, replica.to_owned());
    tokio::spawn(stop.clone().run_until_cancelled_owned(teller));
    tokio::spawn(stop.run_until_cancelled_owned(listener));
}

/// Tells other replicas. What gathers while one NOTIFY is on its way goes with the next.
async fn tell_others(outgoing: Arc<Outgoing>, options: PgConnectOptions, replica: String) {
    // A NOTIFY that a crash of the server forgets is of no use after it, so nothing waits for the disk.
    let options = options.options([("synchronous_commit", "off")]);
    let mut connection: Option<PgConnection> = None;
    loop {
        outgoing.grew.notified().await;
        let gathered = outgoing.take();
        if gathered.is_empty() {
            continue;
        }
        if let Err(error) = notify(&mut connection, &options, &gathered.payloads(&replica)).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "other replicas cannot be told for now");
            connection = None;
            outgoing.put_back(gathered);
            outgoing.grew.notify_one();
            tokio::time::sleep(RETRY).await;
        }
    }
}

async fn notify(
    connection: &mut Option<PgConnection>,
    options: &PgConnectOptions,
    payloads: &[String],
) -> Result<(), sqlx::Error> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(PgConnection::connect_with(options).await?),
    };
    sqlx::query!(
        r#"select pg_notify($1, payload)::text as "told" from unnest($2::text[]) as p (payload)"#,
        CHANNEL,
        payloads
    )
    .fetch_all(connection)
    .await?;
    Ok(())
}

/// Hears other replicas, and passes on what they said.
async fn hear_others(bus: Bus, options: PgConnectOptions, replica: String) {
    loop {
        // A pool for each try: the dead connection of the last one would take the place of the new one.
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options.clone());
        let heard = hear(&bus, &pool, &replica).await;
        metrics::hears(false);
        if let Err(error) = heard {
            tracing::warn!(error = &error as &dyn std::error::Error, "other replicas cannot be heard for now");
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn hear(bus: &Bus, pool: &PgPool, replica: &str) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    metrics::hears(true);
    // Whatever was said before anybody listened.
    bus.tell_here(Signal::Missed);
    while let Some(notification) = listener.try_recv().await? {
        match serde_json::from_str::<Message>(notification.payload()) {
            Ok(message) if message.from == replica => {}
            Ok(message) => pass_on(bus, message),
            Err(error) => tracing::warn!(%error, "another replica said something that is no signal"),
        }
    }
    Ok(())
}

fn pass_on(bus: &Bus, message: Message) {
    for node in message.cancel {
        bus.tell_here(Signal::Cancel { node });
    }
    for node in message.spec {
        bus.tell_here(Signal::Spec { node });
    }
    for node in message.work {
        bus.tell_here(Signal::Work { node });
    }
    if message.events {
        bus.tell_here(Signal::Events);
    }
    if message.trust {
        bus.tell_here(Signal::TrustChanged);
    }
    if message.secret {
        bus.tell_here(Signal::Secret);
    }
    for command in message.output.iter().filter_map(|text| Uuid::parse_str(text).ok()) {
        bus.tell_here(Signal::Output { command: CommandId::from_uuid(command) });
    }
    for progress in message.progress {
        bus.tell_here(Signal::Progress(progress));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_fit_and_hold_everything_once() {
        let outgoing = Outgoing::default();
        let node = |n| NodeId::from_uuid(Uuid::from_u128(n));
        for n in 0..1_000 {
            outgoing.add(&Signal::Work { node: node(n % 500) });
            outgoing.add(&Signal::Cancel { node: node(1_000 + n % 10) });
            outgoing.add(&Signal::Spec { node: node(2_000 + n % 30) });
            outgoing.add(&Signal::Events);
            let command_id = CommandId::from_uuid(Uuid::from_u128(n % 20));
            let message = "\u{1}".repeat(200);
            let unit = String::new();
            let progress = Progress { command_id, node_id: node(0), done: 1, total: None, unit, message };
            outgoing.add(&Signal::Progress(progress));
        }
        let payloads = outgoing.take().payloads("replica");
        assert!(payloads.iter().all(|payload| payload.len() < 8_000));
        assert!(payloads.len() < 10, "{}", payloads.len());
        let messages: Vec<Message> =
            payloads.iter().map(|payload| serde_json::from_str(payload).expect("a message")).collect();
        let count = |of: fn(&Message) -> usize| messages.iter().map(of).sum::<usize>();
        let counts = [
            count(|it| it.work.len()),
            count(|it| it.cancel.len()),
            count(|it| it.spec.len()),
            count(|it| it.progress.len()),
        ];
        assert_eq!(counts, [500, 10, 30, 20]);
        assert_eq!(messages.iter().filter(|it| it.events).count(), 1);
        assert!(outgoing.take().is_empty());
    }
}
