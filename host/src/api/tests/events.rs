//! `events.watch`.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode, header};
use bc_proto::id::CommandId;
use bc_proto::manifest::Lane;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::{Answer, Api};
use crate::bus::{Progress, Signal};
use crate::queue;
use crate::store::events::{self, Cursor};
use crate::testing::{at, command};

/// Longer than anything here takes: a test that waits for ever says so.
const PATIENCE: Duration = Duration::from_mins(1);

/// One server-sent event.
#[derive(Debug, Clone, Default, PartialEq)]
struct Frame {
    id: String,
    event: String,
    data: String,
}

struct Stream {
    body: BodyDataStream,
    text: String,
}

impl Stream {
    /// The next event that has data; `None` at the end.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if !frame.data.is_empty() {
                return Some(frame);
            }
        }
    }

    async fn frame(&mut self) -> Option<Frame> {
        while !self.text.contains("\n\n") {
            let chunk = tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event comes")?;
            self.text += std::str::from_utf8(&chunk.expect("the stream is whole")).expect("it is text");
        }
        let (text, rest) = self.text.split_once("\n\n").expect("looked at above");
        let mut frame = Frame::default();
        for line in text.lines() {
            match line.split_once(": ") {
                Some(("id", value)) => value.clone_into(&mut frame.id),
                Some(("event", value)) => value.clone_into(&mut frame.event),
                Some(("data", value)) => value.clone_into(&mut frame.data),
                _ => {}
            }
        }
        self.text = rest.to_owned();
        Some(frame)
    }

    async fn ids(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        while ids.len() < count {
            ids.push(self.next().await.expect("more events").id);
        }
        ids
    }
}

fn request(api: &Api, query: &str, last: Option<&str>) -> Request<Body> {
    let uri = format!("/v1/events.watch?tenantId={}{query}", api.tenant());
    let request = Request::get(uri).header(header::AUTHORIZATION, format!("Bearer {}", api.token));
    let request = last.into_iter().fold(request, |request, id| request.header("Last-Event-ID", id));
    request.body(Body::empty()).expect("a request")
}

async fn watch_from(api: &Api, query: &str, last: Option<&str>) -> Stream {
    let response = api.router().oneshot(request(api, query, last)).await.expect("a router does not fail");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    Stream { body: response.into_body().into_data_stream(), text: String::new() }
}

async fn watch(api: &Api, query: &str) -> Stream {
    watch_from(api, query, None).await
}

async fn refused(api: &Api, query: &str, last: Option<&str>) -> Answer {
    api.send(request(api, query, last)).await
}

/// All events, once they can be seen.
async fn all(api: &Api) -> Vec<String> {
    api.fleet.events().await;
    let all = events::after(&mut *api.fleet.db().await, Cursor::default(), 100_000).await.expect("a database");
    all.into_iter().map(|event| event.cursor.to_string()).collect()
}

#[tokio::test]
async fn a_stream_tells_what_happens_and_resumes_where_it_was_cut() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    api.kind("diag.nvml").await;
    let mut stream = watch(&api, "").await;
    let begin = stream.frame().await.expect("where it begins");
    assert!(begin.data.is_empty() && !begin.id.is_empty(), "{begin:?}");
    let run = api.call("commands.run", api.ask(&node, "diag.nvml", "k")).await.ok();
    let queued = stream.next().await.expect("an event");
    assert_eq!(queued.event, "node.command.queued");
    let data: Value = serde_json::from_str(&queued.data).expect("JSON");
    let body = json!({ "kind": "diag.nvml", "seq": 1, "nodeId": node.to_string(), "commandId": run["id"] });
    let expected = json!({ "id": queued.id, "topic": "node.command.queued", "tenantId": api.tenant(),
                           "nodeId": node.to_string(), "at": "2027-01-15T08:01:40Z", "body": body });
    assert_eq!(data, expected);
    drop(stream);

    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string(), "commandId": run["id"] });
    api.call("commands.cancel", reference).await.ok();
    for mut resumed in [
        watch_from(&api, "", Some(&queued.id)).await,
        watch(&api, &format!("&after={}", queued.id)).await,
        watch_from(&api, "&after=0", Some(&queued.id)).await,
    ] {
        let settled = resumed.next().await.expect("an event");
        assert_eq!(settled.event, "command.settled");
        assert_eq!(resumed.next().await.expect("an event").event, "node.command.cancel-requested");
    }
    let mut before_the_first = watch_from(&api, "", Some(&begin.id)).await;
    assert_eq!(before_the_first.next().await.expect("an event").id, queued.id);
    let mut from_the_beginning = watch(&api, "&after=0").await;
    assert_eq!(from_the_beginning.ids(3).await, all(&api).await);
}

#[tokio::test]
async fn a_filter_leaves_the_rest_out_before_and_after_the_switch() {
    let api = Api::new().await;
    let (node, other) = (api.fleet.node().await, api.fleet.node().await);
    let kind = api.fleet.kind(Lane::Control, &[]).await;
    let mut commands: Vec<CommandId> = Vec::new();
    for _ in 0..2 {
        commands.push(api.fleet.enqueue(&other, kind).await.id);
        commands.push(api.fleet.enqueue(&node, kind).await.id);
    }
    let mut of_node = watch(&api, &format!("&after=0&nodeId={node}")).await;
    let mut of_command = watch(&api, &format!("&after=0&commandId={}", commands[3])).await;
    let told = |frame: Frame| -> (String, String) {
        let data: Value = serde_json::from_str(&frame.data).expect("JSON");
        (frame.event, data["body"]["commandId"].as_str().expect("an id").to_owned())
    };
    let queued = |which: usize| ("node.command.queued".to_owned(), commands[which].to_string());
    for which in [1, 3] {
        assert_eq!(told(of_node.next().await.expect("an event")), queued(which));
    }
    assert_eq!(told(of_command.next().await.expect("an event")), queued(3));
    for which in [0, 3] {
        let mut db = api.fleet.db().await;
        queue::cancel(&mut db, &crate::trust::Signer::none(), api.fleet.tenant, commands[which], at(5))
            .await
            .expect("a database");
    }
    api.app.bus.tell(Signal::Events);
    let settled = ("command.settled".to_owned(), commands[3].to_string());
    assert_eq!(told(of_node.next().await.expect("an event")), settled);
    assert_eq!(told(of_command.next().await.expect("an event")), settled);
}

#[tokio::test]
async fn what_commits_late_is_told_in_its_place() {
    let api = Api::new().await;
    let (early, late) = (api.fleet.node().await, api.fleet.node().await);
    let kind = api.fleet.kind(Lane::Control, &[]).await;
    let mut stream = watch(&api, "").await;
    stream.frame().await.expect("where it begins");
    let mut open = api.fleet.pool.begin().await.expect("a transaction");
    queue::enqueue(&mut open, &crate::trust::Signer::none(), command(&early, kind), at(0)).await.expect("a database");
    api.fleet.enqueue(&late, kind).await;
    api.app.bus.tell(Signal::Events);
    open.commit().await.expect("a commit");
    api.app.bus.tell(Signal::Events);
    for node in [early, late] {
        let data: Value = serde_json::from_str(&stream.next().await.expect("an event").data).expect("JSON");
        assert_eq!(data["nodeId"], node.to_string(), "in the order of their transactions");
    }
}

#[tokio::test]
async fn no_event_is_missed_or_doubled_whoever_commits_when_and_whoever_joins_when() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 40;
    let api = Api::new().await;
    let kind = api.fleet.kind(Lane::Control, &[]).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (pool, bus, node) = (api.fleet.pool.clone(), api.app.bus.clone(), api.fleet.node().await);
        writers.spawn(async move {
            for round in 0..ROUNDS {
                let mut tx = pool.begin().await.expect("a transaction");
                queue::enqueue(&mut tx, &crate::trust::Signer::none(), command(&node, kind), at(0))
                    .await
                    .expect("a database");
                // Each commits after another number of turns of the others.
                for _ in 0..(writer * 7 + round * 3) % 11 {
                    tokio::task::yield_now().await;
                }
                tx.commit().await.expect("a commit");
                bus.tell(Signal::Events);
            }
        });
    }
    let mut watchers = Vec::new();
    let mut joined = 0;
    while joined < 6 {
        let mut watcher = watch(&api, "&after=0").await;
        let seen = watcher.ids(joined * 10).await;
        watchers.push((watcher, seen));
        joined += 1;
    }
    let cut = watchers[5].1.last().cloned().expect("it saw fifty");
    let mut resumed = watch_from(&api, "", Some(&cut)).await;
    writers.join_all().await;
    let all = all(&api).await;
    assert_eq!(all.len(), WRITERS * ROUNDS);
    for (mut watcher, mut seen) in watchers {
        seen.extend(watcher.ids(all.len() - seen.len()).await);
        assert_eq!(seen, all);
    }
    assert_eq!(resumed.ids(all.len() - 50).await, all[50..]);
    // One more is the next one for all: nobody has a second copy of anything waiting.
    let node = api.fleet.node().await;
    api.fleet.enqueue(&node, kind).await;
    api.app.bus.tell(Signal::Events);
    let last = resumed.ids(1).await;
    assert_eq!(self::all(&api).await.last(), last.first());
}

#[tokio::test]
async fn one_who_lags_far_behind_catches_up_from_the_database() {
    let api = Api::new().await;
    let kind = api.fleet.kind(Lane::Control, &[]).await;
    let node = api.fleet.node().await;
    let mut slow = watch(&api, "").await;
    slow.frame().await.expect("where it begins");
    let mut quick = watch(&api, "").await;
    // More batches than the reader keeps, each of one event that the quick one waits for.
    for _ in 0..300 {
        api.fleet.enqueue(&node, kind).await;
        api.app.bus.tell(Signal::Events);
        quick.next().await.expect("an event");
    }
    assert_eq!(slow.ids(300).await, all(&api).await);
}

#[tokio::test]
async fn progress_of_the_watched_command_is_passed_on_without_an_id() {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    let kind = api.fleet.kind(Lane::Control, &[]).await;
    let (id, other) = (api.fleet.enqueue(&node, kind).await.id, api.fleet.enqueue(&node, kind).await.id);
    let mut stream = watch(&api, &format!("&commandId={id}")).await;
    stream.frame().await.expect("where it begins");
    let progress = |command_id, done| Progress {
        command_id,
        node_id: node,
        done,
        total: Some(8),
        unit: "gpus".into(),
        message: "asking".into(),
    };
    api.app.bus.tell(Signal::Progress(progress(other, 1)));
    api.app.bus.tell(Signal::Progress(progress(id, 2)));
    let told = loop {
        let frame = stream.next().await.expect("an event");
        if frame.event == "command.progress" {
            break frame;
        }
    };
    assert_eq!(told.id, "");
    assert_eq!(serde_json::from_str::<Progress>(&told.data).expect("JSON"), progress(id, 2));
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let api = Api::new().await;
    let mut stream = watch(&api, "").await;
    stream.frame().await.expect("where it begins");
    api.app.stop.cancel();
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_stream_that_may_not_begin_says_why() {
    let api = Api::new().await;
    let reader = api.token_with("reader", &[("compute:nodes:*", "compute-node/*")]).await;
    let as_reader = Api { token: reader, ..api };
    assert_eq!(refused(&as_reader, "", None).await.code(), "PERMISSION_DENIED");
    let token = super::auth::token([1; 32]);
    let api = Api { token, ..as_reader };
    let mut seen = String::new();
    let unknown = CommandId::from_uuid(sqlx::types::Uuid::from_u128(7));
    for (query, last) in [
        ("&nodeId=x".to_owned(), None),
        ("&after=x".to_owned(), None),
        ("&after=-1-2".to_owned(), None),
        (String::new(), Some("y")),
        ("&more=1".to_owned(), None),
        (format!("&commandId={unknown}"), None),
    ] {
        seen += &format!("{query} {last:?}: {}\n", refused(&api, &query, last).await.words());
    }
    insta::assert_snapshot!(seen);
}
