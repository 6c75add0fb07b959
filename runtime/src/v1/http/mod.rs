//! `wasi:http/outgoing-handler`: requests of a guest, one by one, whole, through the gate.
//!
//! A request's body is taken in first, up to a limit; then the gate sees method, address, headers and body together, so that a
//! plan lists them and an approval binds them. The answer is taken in whole as well, and the guest reads it from memory.
//!
//! **Invariant:** the guest never has the value of a secret that it names as credentials: the host adds it behind the gate, and
//! takes it out of what the server answers.

mod asked;
mod message;
mod sent;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::http::Response as WireResponse;
use bc_proto::grants::Need;
use bc_proto::rules::ask;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wasmtime::component::Resource;
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;
use wasmtime_wasi_http::p2::HttpResult;
use wasmtime_wasi_http::p2::bindings::http::types;
use wasmtime_wasi_http::p2::body::{HyperIncomingBody, HyperOutgoingBody};
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, HostOutgoingRequest};
use wasmtime_wasi_http::{Error as WasiError, RequestOptions};

use self::asked::Asked;
pub use self::message::{Body, Credentials, Request, Response};
use crate::capability::{Answer, Error};
use crate::gate::{Action, Call, Gate};
use crate::store::RunState;

/// The most bytes of a request's body: what is larger belongs into an upload.
const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// The most bytes of an answer's body.
pub const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// The most bytes of answers that a guest may leave unread at a time.
const MAX_UNREAD_BYTES: usize = 16 * 1024 * 1024;

/// The most requests that a guest may have handed over and not waited for.
const MAX_PENDING: usize = 8;

type WasiAnswer = Result<(WireResponse<HyperIncomingBody>, AbortOnDropJoinHandle<()>), WasiError>;

/// A request that was handed over.
pub(crate) struct Pending {
    asked: Asked,
    collecting: JoinHandle<Answer<Bytes>>,
    body: Option<Answer<Bytes>>,
    answer: oneshot::Sender<WasiAnswer>,
}

/// Bytes of answers in memory.
#[derive(Clone, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

/// A part of the budget, given back when it is dropped.
struct Taken {
    budget: Budget,
    bytes: usize,
}

impl RunState {
    /// `handle`: takes a request, whose body may still be to come. It is answered while the guest waits, in `wasi:io/poll`.
    pub(super) fn hand_over(
        &mut self,
        request: Resource<HostOutgoingRequest>,
        options: Option<Resource<RequestOptions>>,
    ) -> HttpResult<Resource<HostFutureIncomingResponse>> {
        let table = &mut self.wasi.table;
        let options = options.map(|options| table.delete(options)).transpose()?;
        let HostOutgoingRequest { method, scheme, authority, path_with_query, headers, body } =
            table.delete(request)?;
        if self.wasi.pending.len() >= MAX_PENDING {
            return Err(types::ErrorCode::ConnectionLimitReached.into());
        }
        let asked = Asked::read(
            &method,
            scheme.as_ref(),
            authority.as_deref(),
            path_with_query.as_deref(),
            &headers,
            options.as_ref(),
        );
        let asked = asked.map_err(|refused| types::ErrorCode::InternalError(Some(words(&refused))))?;
        let (answer, answered) = oneshot::channel::<WasiAnswer>();
        self.wasi.pending.push(Pending { asked, collecting: tokio::spawn(whole(body)), body: None, answer });
        let answered = wasmtime_wasi::runtime::spawn(async move {
            answered.await.unwrap_or_else(|_| Err(WasiError::ConnectionTerminated))
        });
        Ok(self.wasi.table.push(HostFutureIncomingResponse::Pending(answered))?)
    }
}

/// All of a request's body.
async fn whole(body: Option<HyperOutgoingBody>) -> Answer<Bytes> {
    let Some(body) = body else { return Ok(Bytes::new()) };
    match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Error::new(
            "request-too-large",
            format!("a request's body has at most {MAX_REQUEST_BYTES} bytes; upload what is larger"),
        )),
        Err(error) => Err(Error::new("request-unfinished", format!("the request's body was not finished: {error}"))),
    }
}

impl Pending {
    /// Waits for one whose body is whole; its place. Safe to give up.
    pub(super) async fn next_whole(pending: &mut [Self]) -> usize {
        std::future::poll_fn(|context| {
            for (place, it) in pending.iter_mut().enumerate() {
                if it.body.is_none()
                    && let std::task::Poll::Ready(body) =
                        std::future::Future::poll(std::pin::Pin::new(&mut it.collecting), context)
                {
                    let lost = |error: tokio::task::JoinError| Err(Error::new("request-unfinished", error.to_string()));
                    it.body = Some(body.unwrap_or_else(lost));
                }
                if it.body.is_some() {
                    return std::task::Poll::Ready(place);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Passes it through the gate, and gives its guest the answer.
    pub(super) async fn send(self, gate: &mut Gate, budget: &Budget) -> wasmtime::Result<()> {
        let Self { asked, body, answer, .. } = self;
        let given = match body.unwrap_or_else(|| Ok(Bytes::new())) {
            Ok(body) => through(gate, asked, body).await?,
            Err(error) => Err(error),
        };
        let given = given.and_then(|response| {
            let taken = budget.take(response.body.len_bytes())?;
            response.into_wire(taken)
        });
        // A guest that dropped the future no longer wants it.
        let _ = answer.send(match given {
            Ok(response) => Ok((response, wasmtime_wasi::runtime::spawn(async {}))),
            Err(error) => Err(WasiError::InternalError(Some(words(&error)))),
        });
        Ok(())
    }
}

async fn through(gate: &mut Gate, asked: Asked, body: Bytes) -> wasmtime::Result<Answer<Response>> {
    let request = asked.request(body);
    let (http, secrets) = (gate.capabilities.http.clone(), gate.capabilities.secrets.clone());
    let need = Need::Ask { origin: &asked.origin, write: asked.write, credentials: asked.credentials.as_deref() };
    let action = if asked.write { Action::Effect } else { Action::Read };
    let call = Call { interface: "http", function: "request", need: Some(need), action, secret: false };
    let args = asked.described(&request);
    let dry = asked.write.then(|| Ok(Response::planned()));
    let perform = sent::perform(http, secrets, request, asked.credentials.clone());
    gate.pass(call, || args.clone(), dry, perform).await
}

/// As a guest gets it: the code first, so that it can be told apart.
fn words(error: &Error) -> String {
    format!("{}: {}", error.code, error.message)
}

impl Budget {
    fn take(&self, bytes: usize) -> Answer<Taken> {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let taken = Taken { budget: self.clone(), bytes };
        if before + bytes > MAX_UNREAD_BYTES {
            let message =
                format!("more than {MAX_UNREAD_BYTES} bytes of answers wait to be read; read or drop them first");
            return Err(Error::new("response-too-large", message));
        }
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Response {
    /// What a plan answers in place of an effect.
    fn planned() -> Self {
        Self { status: 204, headers: vec![], body: Body::Text(String::new()), truncated: false, planned: true }
    }

    fn into_wire(self, taken: Taken) -> Answer<WireResponse<HyperIncomingBody>> {
        let unusable = |error: ::http::Error| Error::new("response-malformed", error.to_string());
        let mut wire = WireResponse::builder().status(self.status);
        for (name, value) in self.headers.iter().filter(|(name, _)| !name.starts_with(ask::OWN)) {
            wire = wire.header(name, value);
        }
        for (name, _) in [(ask::TRUNCATED, self.truncated), (ask::PLANNED, self.planned)].iter().filter(|own| own.1) {
            wire = wire.header(*name, "true");
        }
        let body = Full::new(self.body.into_bytes()?).map_frame(move |frame| {
            // Kept until the guest has it.
            let _ = &taken;
            frame
        });
        wire.body(body.map_err(|never| match never {}).boxed_unsync()).map_err(unusable)
    }
}
