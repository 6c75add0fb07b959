//! The one constructor of stores, with every limit that a guest has.
//!
//! **Invariant:** one fresh store per call of a guest, dropped with it: nothing of one run is left for the next.

use wasmtime::{ResourceLimiter, Store, UpdateDeadline};

use crate::engine::Engine;
use crate::gate::{Gate, Stop};
use crate::v1::Wasi;

/// The most bytes that a guest may pass to the host in one call, its result included: upload chunks and log lines are far
/// smaller, and what is larger should be streamed.
const HOSTCALL_BYTES: usize = 4 * 1024 * 1024;

/// Elements of all tables of a component. Function tables of a 12 MiB interpreter have about 20,000.
const TABLE_ELEMENTS: usize = 200_000;

/// Modules, memories and tables in one component: a composed component has a handful of each.
const INSTANCES: usize = 64;

/// What a guest's store holds.
pub(crate) struct RunState {
    pub(crate) gate: Gate,
    pub(crate) limiter: Limiter,
    pub(crate) wasi: Wasi,
}

/// Counts linear memory over all memories of a component, and elements over all its tables.
pub(crate) struct Limiter {
    limit_bytes: usize,
    bytes: usize,
    peak_bytes: usize,
    table_elements: usize,
}

impl Limiter {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            bytes: 0,
            peak_bytes: 0,
            table_elements: 0,
        }
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes as u64
    }
}

/// Growing past a limit ends the run instead of failing in the guest: every guest gets the same typed outcome, however its
/// allocator takes a refusal.
impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let bytes = self.bytes.saturating_add(desired.saturating_sub(current));
        if bytes > self.limit_bytes {
            return Err(Stop::Memory.into());
        }
        self.bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(bytes);
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.table_elements = self.table_elements.saturating_add(desired.saturating_sub(current));
        if self.table_elements > TABLE_ELEMENTS { Err(Stop::Memory.into()) } else { Ok(true) }
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        INSTANCES
    }

    fn memories(&self) -> usize {
        INSTANCES
    }
}

/// Makes a store for one call of a guest.
pub(crate) fn new(engine: &Engine, state: RunState) -> Store<RunState> {
    let mut store = Store::new(engine.wasm(), state);
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(HOSTCALL_BYTES);
    // Our own interfaces pass no resources; an HTTP request takes a dozen while it lasts.
    store.set_max_component_handles(INSTANCES);
    // One tick, again and again: a first deadline further away would not be noticed before it has passed.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut context| {
        let gate = &mut context.data_mut().gate;
        gate.still_wanted()?;
        gate.meter.pause();
        let resume = gate.meter.resumer();
        let others = async move {
            tokio::task::yield_now().await;
            resume.now();
        };
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(others)))
    });
    store
}
