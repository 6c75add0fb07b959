//! What a request is made of, in WASI's words: `wasi:http/types`, `wasi:io` and the one type of `wasi:clocks` that they name.
//!
//! The resources are those of wasmtime's own crates, and live in memory. Two things are this crate's: sending, in
//! [`super::http`], and waiting, here. A guest that waits for an answer waits in `wasi:io/poll`; that is when its requests go
//! through the gate, as soon as their bodies are whole.
//!
//! **Invariant:** nothing here has power over the node: whatever leaves it leaves through [`super::http`] and the gate.

use std::future::Future;
use std::sync::Arc;

use ::http::HeaderName;
use bc_proto::rules::ask;
use wasmtime::StoreContextMut;
use wasmtime::component::{HasData, HasSelf, Linker, Resource, ResourceTable};
use wasmtime_wasi_http::p2::bindings::http::types;
use wasmtime_wasi_http::{ForbiddenHeaderFilter, WasiBody, WasiHttp, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks};
use wasmtime_wasi_io::bindings::wasi::io::{error, poll, streams};
use wasmtime_wasi_io::poll::DynPollable;

use super::http::{Budget, Pending};
use crate::gate::{Gate, Stop};
use crate::store::RunState;

/// Resources that the host keeps for one guest: requests, answers, bodies, streams and their parents.
const RESOURCES: usize = 256;

/// Room for the headers of one message, bytes, with what keeping them takes.
const FIELDS_BYTES: usize = 64 * 1024;

/// The WASI side of a run.
pub(crate) struct Wasi {
    pub(super) table: ResourceTable,
    http: WasiHttpCtx,
    hooks: Hooks,
    /// Requests that were handed over and not yet sent.
    pub(super) pending: Vec<Pending>,
    /// For answers that the guest has not read.
    pub(super) budget: Budget,
}

impl Default for Wasi {
    fn default() -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(FIELDS_BYTES);
        Self { table, http, hooks: Hooks, pending: Vec::new(), budget: Budget::default() }
    }
}

/// What wasmtime's implementation of the types asks its embedder.
struct Hooks;

impl WasiHttpHooks for Hooks {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(|name: &HeaderName| ask::is_the_hosts(name.as_str()))
    }

    /// Never called: `outgoing-handler` is not wasmtime's here.
    fn send_request(
        &mut self,
        _: ::http::Request<WasiBody>,
        _: Option<wasmtime_wasi_http::RequestOptions>,
        _: Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>,
    ) -> Box<dyn Future<Output = wasmtime_wasi_http::Result<Sent>> + Send> {
        Box::new(async { Err(wasmtime_wasi_http::Error::HttpRequestDenied) })
    }
}

type Sent = (::http::Response<WasiBody>, Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>);

/// Streams and errors need the table alone.
struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
}

/// Links `outgoing-handler`, the one door.
pub(super) fn link_outgoing(linker: &mut Linker<RunState>) -> wasmtime::Result<()> {
    // By hand, since the generated trait wants the types implemented by the same type.
    linker.instance("wasi:http/outgoing-handler@0.2.0")?.func_wrap(
        "handle",
        |mut store: StoreContextMut<'_, RunState>, (request, options): (Resource<_>, Option<Resource<_>>)| match store
            .data_mut()
            .hand_over(request, options)
        {
            Ok(future) => Ok((Ok(future),)),
            Err(error) => error.downcast().map(|code: types::ErrorCode| (Err(code),)),
        },
    )
}

/// Links what has no power by itself.
pub(super) fn link_ambient(linker: &mut Linker<RunState>) -> wasmtime::Result<()> {
    fn table(state: &mut RunState) -> &mut ResourceTable {
        &mut state.wasi.table
    }

    fn http(state: &mut RunState) -> WasiHttpCtxView<'_> {
        let Wasi { table, http, hooks, .. } = &mut state.wasi;
        WasiHttpCtxView { hooks, table, ctx: http }
    }
    error::add_to_linker::<_, Table>(linker, table)?;
    streams::add_to_linker::<_, Table>(linker, table)?;
    poll::add_to_linker::<_, HasSelf<RunState>>(linker, |state| state)?;
    // Its functions are `better-compute:host/clock`'s, which a replay knows; of this one only a type is named.
    linker.instance("wasi:clocks/monotonic-clock@0.2.0")?;
    types::add_to_linker::<_, WasiHttp>(linker, &types::LinkOptions::default(), http)
}

/// `wasi:io/poll`, where a guest waits.
impl poll::Host for RunState {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        let Self { gate, wasi: Wasi { table, pending, budget, .. }, .. } = self;
        answering(gate, pending, budget, poll::Host::poll(table, pollables)).await
    }
}

impl poll::HostPollable for RunState {
    async fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        let Self { gate, wasi: Wasi { table, pending, budget, .. }, .. } = self;
        answering(gate, pending, budget, poll::HostPollable::block(table, pollable)).await
    }

    async fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        poll::HostPollable::ready(&mut self.wasi.table, pollable).await
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::drop(&mut self.wasi.table, pollable)
    }
}

/// Waits, and meanwhile sends the requests whose bodies are whole.
async fn answering<T>(
    gate: &mut Gate,
    pending: &mut Vec<Pending>,
    budget: &Budget,
    waited: impl Future<Output = wasmtime::Result<T>>,
) -> wasmtime::Result<T> {
    let mut waited = std::pin::pin!(waited);
    loop {
        gate.still_wanted()?;
        gate.meter.pause();
        let whole = tokio::select! {
            biased;
            done = &mut waited => {
                gate.meter.resume();
                return done;
            }
            whole = Pending::next_whole(pending), if !pending.is_empty() => whole,
            () = gate.cancel.cancelled() => return Err(Stop::Cancelled.into()),
            () = tokio::time::sleep_until(gate.deadline) => {
                return Err(Stop::Deadline { during: Some("poll.poll".into()) }.into());
            }
        };
        gate.meter.resume();
        pending.swap_remove(whole).send(gate, budget).await?;
    }
}
