//! Raw wasmtime: what an embedding without a gate, limits, checks and reports would cost.
//!
//! **Invariant:** the settings are those of `bc_runtime::Engine`, so that the difference is what the runtime adds and nothing
//! else. No limiter, no tracked CPU time, a deadline that is never reached, imports that do the least they can.

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, OptLevel, Store, StoreContextMut};

use self::bindings::KindPre;
use self::bindings::exports::better_compute::kind::command::{Failure, RunContext};

mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit/kind/1.0.0",
        world: "better-compute:kind/kind@1.0.0",
        exports: { default: async },
    });
}

/// A component that is linked and can be run.
pub(crate) struct Raw {
    engine: Engine,
    kind: KindPre<Instant>,
}

/// An engine with the settings of ours.
pub(crate) fn engine() -> anyhow::Result<Engine> {
    let mut settings = Config::new();
    settings
        .wasm_component_model(true)
        .wasm_memory64(false)
        .concurrency_support(false)
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(512 * 1024)
        .async_stack_size(1024 * 1024);
    Engine::new(&settings).map_err(in_words)
}

/// What `Component::new` takes.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> anyhow::Result<Component> {
    Component::new(engine, bytes).map_err(in_words)
}

/// Compiled code, as [`deserialize`] takes it.
pub(crate) fn artifact(engine: &Engine, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    compile(engine, bytes)?.serialize().map_err(in_words)
}

/// What `Component::deserialize` takes, from bytes in memory.
#[expect(unsafe_code, reason = "the bytes come from this process, or from the one that started it for this")]
pub(crate) fn deserialize(engine: &Engine, artifact: &[u8]) -> anyhow::Result<Component> {
    unsafe { Component::deserialize(engine, artifact) }.map_err(in_words)
}

impl Raw {
    /// Compiles and links. The one import that is called answers; the others are there and would trap.
    pub(crate) fn new(bytes: &[u8]) -> anyhow::Result<Self> {
        let engine = engine()?;
        let component = compile(&engine, bytes)?;
        let kind = link(&engine, &component).map_err(in_words)?;
        Ok(Self { engine, kind })
    }

    /// Store, instance, call and drop, `ops` times.
    pub(crate) async fn run(&self, payload: &str, ops: usize) -> anyhow::Result<Vec<Duration>> {
        let context = RunContext {
            command_id: "cmd_00000000000000000000000000".into(),
            node_id: "node_00000000000000000000000000".into(),
            attempt: 1,
            deadline_ms: 0,
        };
        let mut took = Vec::with_capacity(ops);
        for _ in 0..ops {
            let started = Instant::now();
            let answer = self.once(&context, payload).await.map_err(in_words)?;
            took.push(started.elapsed());
            if let Err(failure) = answer {
                bail!("the kind failed: {}", failure.message);
            }
        }
        Ok(took)
    }

    async fn once(&self, context: &RunContext, payload: &str) -> wasmtime::Result<Result<String, Failure>> {
        let mut store = Store::new(&self.engine, Instant::now());
        store.set_epoch_deadline(u64::MAX / 2);
        let kind = self.kind.instantiate_async(&mut store).await?;
        kind.better_compute_kind_command().call_run(&mut store, context, payload).await
    }
}

fn link(engine: &Engine, component: &Component) -> wasmtime::Result<KindPre<Instant>> {
    let mut linker = Linker::new(engine);
    let elapsed_us = |store: StoreContextMut<'_, Instant>, (): ()| {
        Ok((u64::try_from(store.data().elapsed().as_micros()).unwrap_or(u64::MAX),))
    };
    linker.instance("better-compute:host/clock@1.0.0")?.func_wrap("elapsed-us", elapsed_us)?;
    linker.define_unknown_imports_as_traps(component)?;
    KindPre::new(linker.instantiate_pre(component)?)
}

/// wasmtime's errors are its own kind.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes by value")]
fn in_words(error: wasmtime::Error) -> anyhow::Error {
    anyhow!("{error:#}")
}
