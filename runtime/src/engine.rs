//! One engine per process: wasmtime's settings, the epoch ticker, the compiled-code cache and the limit on parallel runs.
//!
//! **Invariant:** an idle engine does nothing: the ticker sleeps from the first tick that finds no guest running.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::sync::Semaphore;
use wasmtime::OptLevel;

use crate::cache::{Cache, CacheCounts};

/// How often a running guest is interrupted to look at its budget. Bounds how late a limit is noticed; at 100 a second the
/// cost is not measurable.
const TICK: Duration = Duration::from_millis(10);

/// A guest's own stack. A Rust guest that needs more recurses without end; wasmtime's default is the same.
const GUEST_STACK_BYTES: usize = 512 * 1024;

/// The fiber's whole stack: the guest's and the host call on top of it.
const FIBER_STACK_BYTES: usize = 1024 * 1024;

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where compiled code is kept; none compiles anew every time.
    pub cache_dir: Option<PathBuf>,
    /// How many guests run at once; more wait. On-demand instances cost memory only while they run, so this bounds it.
    pub max_runs: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { cache_dir: None, max_runs: 32 }
    }
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SetUpError {
    #[error("WebAssembly cannot run on this machine: {0}")]
    Wasmtime(String),
}

/// The shared engine; clones are handles to one.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    wasm: wasmtime::Engine,
    cache: Option<Cache>,
    runs: Arc<Semaphore>,
    ticker: Arc<Ticker>,
}

impl Engine {
    /// Builds an engine. Errors when the machine lacks what wasmtime needs. A cache directory that cannot be used, or cannot
    /// be made private, is logged and leaves it without a cache.
    pub fn new(config: &Config) -> Result<Self, SetUpError> {
        let mut settings = wasmtime::Config::new();
        settings
            .wasm_component_model(true)
            .wasm_memory64(false)
            .concurrency_support(false)
            .epoch_interruption(true)
            .cranelift_opt_level(OptLevel::Speed)
            .max_wasm_stack(GUEST_STACK_BYTES)
            .async_stack_size(FIBER_STACK_BYTES);
        let wasm = wasmtime::Engine::new(&settings).map_err(|error| SetUpError::Wasmtime(format!("{error:#}")))?;
        let cache = config.cache_dir.as_ref().and_then(|dir| {
            let unusable = |error: &_| tracing::warn!(dir = %dir.display(), %error, "no compiled-code cache");
            Cache::open(dir, &wasm).inspect_err(unusable).ok()
        });
        let ticker = Ticker::start(wasm.clone());
        Ok(Self(Arc::new(Inner { wasm, cache, runs: Arc::new(Semaphore::new(config.max_runs)), ticker })))
    }

    /// What the compiled-code cache did so far; `None` without a cache, also when its directory was of no use.
    pub fn cache_counts(&self) -> Option<CacheCounts> {
        self.0.cache.as_ref().map(Cache::counts)
    }

    pub(crate) fn wasm(&self) -> &wasmtime::Engine {
        &self.0.wasm
    }

    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.0.cache.as_ref()
    }

    pub(crate) fn runs(&self) -> &Semaphore {
        &self.0.runs
    }

    /// Keeps the epoch moving for as long as the answer lives.
    pub(crate) fn ticking(&self) -> Ticking {
        self.0.ticker.begin()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.ticker.stop();
    }
}

/// Advances the epoch while guests run. It falls asleep at the first tick that finds none, not when the last one ends: runs
/// that follow each other closely would wake it each time, and a thread that has just run on another core makes every
/// unmapping of a guest's memory interrupt that core.
struct Ticker {
    /// Guests that run now; [`STOPPED`] ends the thread.
    running: AtomicUsize,
    /// Whether the thread has to be woken. Sequentially consistent together with `running`: of a run that begins and the thread
    /// that falls asleep, one sees the other.
    asleep: AtomicBool,
    thread: std::sync::OnceLock<Thread>,
}

const STOPPED: usize = usize::MAX;

pub(crate) struct Ticking(Arc<Ticker>);

impl Ticker {
    fn start(engine: wasmtime::Engine) -> Arc<Self> {
        let ticker = Arc::new(Self {
            running: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            thread: std::sync::OnceLock::new(),
        });
        let seen = Arc::clone(&ticker);
        let handle = thread::Builder::new()
            .name("bc-epoch".into())
            .spawn(move || {
                while seen.running.load(Ordering::SeqCst) != STOPPED {
                    thread::park_timeout(TICK);
                    engine.increment_epoch();
                    seen.sleep_while_idle();
                }
            })
            .expect("a thread can be started while the process sets itself up");
        ticker.thread.set(handle.thread().clone()).expect("set once, here");
        ticker
    }

    fn sleep_while_idle(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        // Only now that whoever begins would wake it.
        while self.running.load(Ordering::SeqCst) == 0 {
            thread::park();
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn begin(self: &Arc<Self>) -> Ticking {
        if self.running.fetch_add(1, Ordering::SeqCst) == 0 && self.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
        Ticking(Arc::clone(self))
    }

    fn stop(&self) {
        self.running.store(STOPPED, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}
