//! `bundles.list`, `download`, `files` and `read`: the files that commands uploaded.
//!
//! **Invariant:** however large a bundle is, little of it is in memory at a time; what is answered of its content is what the
//! node wrote, and is sent as data that no browser runs.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bc_proto::id::{CommandId, NodeId, TenantId};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::auth::{Caller, NODES_READ};
use super::error::Failure;
use super::extract::{Ask, Body, Rules};
use super::openapi::Errors;
use super::types::{self, BundleFiles, BundleRef, BundleState, Code, ListBundles, Page, ReadBundle};
use super::{App, cursor};
use crate::bundles::{Failed, Store, archive, support_bundle_key};
use crate::store::{commands, uploads};

/// How many bundles a page has where nothing is said.
const DEFAULT_PAGE: u32 = 20;

/// How many bundles the store is asked about at once.
const AT_ONCE: usize = 8;

/// How many bundles are expanded at once: each takes a thread, and the memory of a window.
const READERS: usize = 8;

/// How long somebody who reads a file may take none of it.
const STALLED: Duration = Duration::from_mins(1);

/// Pieces of a file that wait to be sent, 64 KiB each.
const PIECES: usize = 4;

static READING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(READERS)));

/// List a node's support bundles, newest first, and whether they are in the store.
#[utoipa::path(post, path = "/v1/bundles.list", operation_id = "bundles.list", tag = "bundles",
    request_body = ListBundles,
    responses((status = 200, description = "A page of them", body = Page<types::Bundle>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListBundles>,
) -> Result<Json<Page<types::Bundle>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    let limit = rules.number("limit", ask.limit, 1, uploads::MAX_PAGE, DEFAULT_PAGE);
    let below = ask.cursor.as_deref().map(cursor::open::<u64>);
    rules.rule(below != Some(None), "cursor", cursor::RULE);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_READ, node)?;
    let mut found = {
        let mut db = app.db().await?;
        let found = uploads::list(&mut db, tenant, node, below.flatten(), limit + 1).await?;
        if found.is_empty() && !commands::had_node(&mut db, tenant, node).await? {
            return Err(Failure::not_found("node", node));
        }
        found
    };
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next_cursor = found.last().filter(|_| has_more).map(|last| cursor::seal(&last.seq));
    let (store, now) = (app.bundles.as_ref(), app.now());
    let looked = found.into_iter().map(|bundle| looked_for(store, node, bundle, now));
    Ok(Json(Page { items: stream::iter(looked).buffered(AT_ONCE).collect().await, next_cursor }))
}

async fn looked_for(
    store: Option<&Store>,
    node: NodeId,
    bundle: uploads::Bundle,
    now: OffsetDateTime,
) -> types::Bundle {
    let key = support_bundle_key(node, &bundle.idempotency_key);
    let found = match store {
        Some(store) => store.find(&key, now).await,
        None => Err(Failed::Away("this server has no [support-bundles]".into())),
    };
    let (state, found) = match found {
        Ok(found) => (BundleState::Stored, Some(found)),
        Err(Failed::Missing) => (BundleState::Missing, None),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, key, "a bundle cannot be looked for");
            (BundleState::Unknown, None)
        }
    };
    types::Bundle {
        command_id: bundle.command.to_string(),
        node_id: node.to_string(),
        sha256: sha256(&bundle),
        kind: bundle.kind,
        command_state: bundle.state,
        bundle_key: key,
        state,
        bytes: found.map(|it| it.bytes),
        max_bytes: bundle.max_bytes,
        stored_at: found.and_then(|it| it.stored_at),
        created_at: bundle.created_at,
    }
}

/// SHA-256 as the node told it, if it did.
fn sha256(bundle: &uploads::Bundle) -> Option<String> {
    let result: Value = serde_json::from_slice(bundle.result.as_deref()?).ok()?;
    digest(result["sha256"].as_str()?).map(hex::encode)
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

/// Which bundle, checked.
struct Named {
    tenant: TenantId,
    node: NodeId,
    command: CommandId,
}

impl Named {
    fn check(mut rules: Rules, caller: &Caller, tenant: &str, node: &str, command: &str) -> Result<Self, Failure> {
        let tenant = rules.tenant(tenant);
        let node = rules.id("nodeId", node);
        let command = rules.id("commandId", command);
        rules.check()?;
        tracing::Span::current().record("command", tracing::field::display(command));
        caller.tenant(tenant)?;
        caller.on_node(NODES_READ, node)?;
        Ok(Self { tenant, node, command })
    }

    /// What is known of it, and its key; an error for a command without one.
    async fn find(&self, app: &App) -> Result<(uploads::Bundle, String), Failure> {
        let mut db = app.db().await?;
        let found = uploads::get(&mut db, self.tenant, self.node, self.command).await?;
        let bundle = found.ok_or_else(|| Failure::not_found("support bundle of", self.command))?;
        let key = support_bundle_key(self.node, &bundle.idempotency_key);
        Ok((bundle, key))
    }
}

fn store(app: &App) -> Result<&Store, Failure> {
    app.bundles.as_ref().ok_or_else(|| {
        let message =
            "this server has no store of support bundles; its operator adds [support-bundles] to its settings";
        Failure::state("no-support-bundles", message)
    })
}

fn failed(error: &Failed, command: CommandId) -> Failure {
    match error {
        Failed::Missing => {
            let message = format!("the bundle of {command} is not in the store: not yet, not at all, or no longer");
            Failure::new(Code::NotFound, message).because("not-stored")
        }
        Failed::Range => Failure::field("Range", "must begin within the bundle"),
        Failed::Refused(_) => {
            tracing::error!(error = error as &dyn std::error::Error, "a bundle cannot be read");
            Failure::state("store-refuses", error.to_string())
        }
        Failed::Away(_) => {
            tracing::warn!(error = error as &dyn std::error::Error, "a bundle cannot be read");
            Failure::new(Code::Unavailable, "the store of support bundles does not answer; try again")
        }
    }
}

/// Download a support bundle as it was stored: a tar, compressed with Zstandard.
///
/// `Range` with one range of bytes answers 206 and that part of it. `Repr-Digest` is the whole bundle's SHA-256 as the node told
/// it in its result; it is absent where the node told none.
#[utoipa::path(get, path = "/v1/bundles.download", operation_id = "bundles.download", tag = "bundles",
    params(BundleRef, ("Range" = Option<String>, Header, description = "`bytes=FIRST-`, `bytes=FIRST-LAST` or `bytes=-COUNT`")),
    responses(
        (status = 200, description = "The bundle", content_type = "application/zstd", body = Vec<u8>),
        (status = 206, description = "The range of it", content_type = "application/zstd", body = Vec<u8>), Errors))]
pub(super) async fn download(
    State(app): State<App>,
    caller: Caller,
    Ask(ask): Ask<BundleRef>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let named = Named::check(Rules::default(), &caller, &ask.tenant_id, &ask.node_id, &ask.command_id)?;
    let (bundle, key) = named.find(&app).await?;
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok()).filter(|text| is_range(text));
    let object = store(&app)?.get(&key, range, app.now()).await.map_err(|error| failed(&error, named.command))?;
    let mut response =
        Bytes::from_stream(object.body.bytes_stream().map_err(reqwest::Error::without_url)).into_response();
    let headers = described(&mut response, "application/zstd", &format!("{}.tar.zst", named.command));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(bytes) = object.bytes {
        headers.insert(header::CONTENT_LENGTH, bytes.into());
    }
    if let Some(told) = sha256(&bundle) {
        digested(headers, &told);
    }
    if let Some(range) = object.range.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(header::CONTENT_RANGE, range);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// One range of bytes; whatever else there is counts as none, as HTTP allows.
fn is_range(text: &str) -> bool {
    let ends = text.strip_prefix("bytes=").and_then(|rest| rest.split_once('-'));
    ends.is_some_and(|(first, last)| {
        let is_number = |text: &str| text.len() < 19 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number(first) && is_number(last) && !(first.is_empty() && last.is_empty())
    })
}

/// Data to keep, and nothing that a browser shows or runs.
fn described<'a>(response: &'a mut Response, content_type: &'static str, name: &str) -> &'a mut HeaderMap {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let safe: String =
        name.chars().map(|it| if it.is_ascii_alphanumeric() || "._-".contains(it) { it } else { '_' }).collect();
    if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{safe}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    headers
}

/// RFC 9530.
fn digested(headers: &mut HeaderMap, sha256: &str) {
    let value = digest(sha256).and_then(|it| HeaderValue::try_from(format!("sha-256=:{}:", STANDARD.encode(it))).ok());
    if let Some(value) = value {
        headers.insert("repr-digest", value);
    }
}

/// List the files of a support bundle, as its own manifest describes them.
#[utoipa::path(post, path = "/v1/bundles.files", operation_id = "bundles.files", tag = "bundles",
    request_body = BundleRef, responses((status = 200, description = "Its files", body = BundleFiles), Errors))]
pub(super) async fn files(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<BundleRef>,
) -> Result<Json<BundleFiles>, Failure> {
    let named = Named::check(Rules::default(), &caller, &ask.tenant_id, &ask.node_id, &ask.command_id)?;
    let reading = Reading::begin(&app, &named).await?;
    // Nobody takes pieces; the channel tells whether somebody still waits.
    let (waits, waiting) = mpsc::channel::<()>(1);
    let read = tokio::task::spawn_blocking(move || {
        let most = reading.most;
        archive::manifest(reading.until(move || waits.is_closed()), most)
    });
    let manifest = read.await?.map_err(|bad| unreadable(&bad, named.command))?;
    drop(waiting);
    let archive::Manifest { files, skipped, problems, .. } = manifest;
    let files = files.into_iter().map(|archive::File { path, bytes, sha256, truncated, source }| types::BundleFile {
        path,
        bytes,
        sha256,
        truncated,
        source,
    });
    Ok(Json(BundleFiles { files: files.collect(), skipped, problems }))
}

/// Read one file of a support bundle.
///
/// `Repr-Digest` is the file's SHA-256 as the bundle's manifest tells it.
#[utoipa::path(get, path = "/v1/bundles.read", operation_id = "bundles.read", tag = "bundles", params(ReadBundle),
    responses((status = 200, description = "The file", content_type = "application/octet-stream", body = Vec<u8>), Errors))]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    Ask(ask): Ask<ReadBundle>,
) -> Result<Response, Failure> {
    let mut rules = Rules::default();
    rules.text("path", &ask.path, 1, 4096);
    let named = Named::check(rules, &caller, &ask.tenant_id, &ask.node_id, &ask.command_id)?;
    let reading = Reading::begin(&app, &named).await?;
    let (found, was_found) = oneshot::channel();
    let (pieces, sent) = mpsc::channel(PIECES);
    let (command, path) = (named.command, ask.path);
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    tokio::task::spawn_blocking(move || read_file(reading, &path, found, &pieces));
    let gone = |_| Failure::new(Code::Unavailable, "reading the bundle ended early; try again");
    let file = was_found.await.map_err(gone)?.map_err(|bad| unreadable(&bad, command))?;
    let mut response = Bytes::from_stream(ReceiverStream::new(sent)).into_response();
    let headers = described(&mut response, "application/octet-stream", &name);
    headers.insert(header::CONTENT_LENGTH, file.bytes.into());
    digested(headers, &file.sha256);
    Ok(response)
}

/// Hands out a file, on a thread of its own.
fn read_file(
    reading: Reading,
    path: &str,
    found: oneshot::Sender<Result<archive::File, archive::Bad>>,
    pieces: &mpsc::Sender<io::Result<Vec<u8>>>,
) {
    let handle = Handle::current();
    let send =
        |piece| handle.block_on(tokio::time::timeout(STALLED, pieces.send(piece))).is_ok_and(|sent| sent.is_ok());
    let watched = pieces.clone();
    let most = reading.most;
    let mut found = Some(found);
    let read = archive::file(
        reading.until(move || watched.is_closed()),
        most,
        path,
        |file| found.take().is_some_and(|found| found.send(Ok(file.clone())).is_ok()),
        |piece| send(Ok(piece)),
    );
    if let Err(bad) = read {
        match found {
            // Whoever asked may be gone, which is as well.
            Some(found) => drop(found.send(Err(bad))),
            // The answer has begun: it breaks off, and its length says so.
            None => drop(send(Err(io::Error::other(bad)))),
        }
    }
}

fn unreadable(bad: &archive::Bad, command: CommandId) -> Failure {
    let reason = match bad {
        archive::Bad::NoFile(_) => return Failure::new(Code::NotFound, bad.to_string()),
        archive::Bad::Source(_) | archive::Bad::Gone => {
            tracing::warn!(error = bad as &dyn std::error::Error, "a bundle cannot be read");
            return Failure::new(Code::Unavailable, "the store of support bundles stopped sending; try again");
        }
        archive::Bad::Format(_) => "not-a-bundle",
        archive::Bad::Bomb(_) => "bundle-too-large",
    };
    Failure::state(reason, format!("{command}: {bad}"))
}

/// A bundle on its way from the store.
struct Reading {
    source: Box<dyn Read + Send>,
    /// The most that it may expand to.
    most: u64,
    _permit: OwnedSemaphorePermit,
}

impl Reading {
    async fn begin(app: &App, named: &Named) -> Result<Self, Failure> {
        let (_, key) = named.find(app).await?;
        let store = store(app)?;
        let permit = READING.clone().acquire_owned().await.expect("it is never closed");
        let object = store.get(&key, None, app.now()).await.map_err(|error| failed(&error, named.command))?;
        let bytes = object.body.bytes_stream().map_err(|error| io::Error::other(error.without_url()));
        let source = SyncIoBridge::new_with_handle(StreamReader::new(Box::pin(bytes)), Handle::current());
        Ok(Self { source: Box::new(source), most: archive::most_expanded(store.max_bytes()), _permit: permit })
    }

    /// Reads no more once nobody waits for it.
    fn until(self, is_over: impl Fn() -> bool + Send) -> impl Read + Send {
        Until { reading: self, is_over }
    }
}

struct Until<F> {
    reading: Reading,
    is_over: F,
}

impl<F: Fn() -> bool> Read for Until<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.is_over)() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.reading.source.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_one_and_nothing_else_is() {
        for text in ["bytes=0-", "bytes=5-9", "bytes=-100"] {
            assert!(is_range(text), "{text}");
        }
        for text in [
            "",
            "bytes=",
            "bytes=-",
            "bytes=a-",
            "bytes=1-2,4-5",
            "items=0-1",
            "bytes=1",
            "bytes=0-99999999999999999999",
        ] {
            assert!(!is_range(text), "{text}");
        }
    }
}
