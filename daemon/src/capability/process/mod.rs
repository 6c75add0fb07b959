//! Running programs: what stands behind `better-compute:host/process`.
//!
//! Each runs below a supervisor (`bcd supervise`), which keeps its whole tree together and takes it away.
//!
//! **Invariant:** a program and all its descendants are gone before its end is told, before the run is reported, and when this is
//! dropped. One that cannot be killed is named, and costs the run's worker and nothing else.

pub(crate) mod capture;
mod running;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bc_runtime::capability::process::{Outcome, OutputStream, Request};
use bc_runtime::capability::{Answer, Error, Process};
use tokio_util::sync::CancellationToken;

use self::running::Running;

/// Where programs are looked up that have no path.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How many programs one run may have at once.
const MAX_PROGRAMS: usize = 16;

/// The most bytes of one read, and of a captured stream.
pub(super) const MAX_BYTES: usize = 1024 * 1024;

/// How long a killed tree may take to be gone. What takes longer hangs in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// What supervises programs: this daemon's own file, or that of the daemon which is installed beside another program. `None` where
/// there is neither: then a node offers no programs.
pub fn supervisor() -> Option<PathBuf> {
    let this = std::env::current_exe().ok()?;
    let is_daemon = this.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"bcd"));
    if is_daemon {
        // The very one that runs, though another lies in its place by now.
        return Some("/proc/self/exe".into());
    }
    Some(this.with_file_name("bcd")).filter(|beside| beside.is_file())
}

/// Runs a kind that may start these programs: a cancel ends them, and none is left when it returns.
pub(crate) async fn with_programs<T>(
    programs: Option<Arc<Programs>>,
    cancel: CancellationToken,
    run: impl Future<Output = T>,
) -> T {
    let Some(programs) = programs else { return run.await };
    let cancelled = {
        let programs = Arc::clone(&programs);
        tokio::spawn(async move {
            cancel.cancelled().await;
            programs.kill_all();
        })
    };
    let done = run.await;
    cancelled.abort();
    match tokio::task::spawn_blocking(move || programs.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(stuck)) => tracing::error!(?stuck, "programs were killed and are not gone: they hang in the kernel"),
        Err(error) => tracing::error!(%error, "the programs of a run were not waited for"),
    }
    done
}

/// Hears what programs write, as they write it.
pub type Heard = Arc<dyn Fn(OutputStream, &[u8]) + Send + Sync>;

/// The programs of one run.
pub struct Programs {
    /// What supervises: the daemon's own file.
    supervisor: PathBuf,
    /// The folders in which programs are looked up, with colons between.
    path: String,
    /// What stands in their environment besides `PATH` and `LANG`.
    variables: BTreeMap<String, String>,
    heard: Option<Heard>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<u32, Arc<Running>>,
    next: u32,
    /// Nothing starts any more.
    is_closed: bool,
}

impl Programs {
    /// None runs yet. `supervisor` is the file of a program that has `supervise`; `path` as in [`PATH`].
    pub fn new(supervisor: PathBuf, path: impl Into<String>) -> Self {
        Self { supervisor, path: path.into(), variables: BTreeMap::new(), heard: None, state: Mutex::default() }
    }

    /// The same with somebody who hears what those programs write that run to their end. What a kind reads piece by piece is its own
    /// affair.
    #[must_use]
    pub fn heard_by(mut self, heard: Heard) -> Self {
        self.heard = Some(heard);
        self
    }

    /// The same with one more variable in the environment of each. The host alone decides this: no kind and no payload can.
    #[must_use]
    pub(crate) fn with_variable(mut self, name: &str, value: String) -> Self {
        self.variables.insert(name.to_owned(), value);
        self
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let fixed = [("PATH".to_owned(), self.path.clone()), ("LANG".to_owned(), "C.UTF-8".to_owned())];
        self.variables.clone().into_iter().chain(fixed).collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills all of them, starts no more, and does not wait.
    pub fn kill_all(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for running in state.running.values() {
            running.kill();
        }
    }

    /// Kills all of them and returns when their trees are gone, or names the programs whose trees are not.
    pub fn close(&self) -> Result<(), Vec<String>> {
        self.kill_all();
        let running: Vec<_> = self.state().running.values().cloned().collect();
        let stuck: Vec<_> =
            running.iter().filter(|it| !it.wait_gone(KILL_TIMEOUT)).map(|it| it.program().to_owned()).collect();
        if stuck.is_empty() { Ok(()) } else { Err(stuck) }
    }

    fn begin(&self, request: &Request, is_read: bool) -> Answer<(u32, Arc<Running>)> {
        let program = self.find(&request.program)?;
        let mut state = self.state();
        if state.is_closed {
            return Err(Error::new("cancelled", "the run ends: nothing starts any more"));
        }
        if state.running.len() >= MAX_PROGRAMS {
            let message = format!("a run has at most {MAX_PROGRAMS} programs at once; wait for one");
            return Err(Error::new("too-many-programs", message));
        }
        let heard = self.heard.clone().filter(|_| !is_read);
        let running =
            Arc::new(Running::start(&self.supervisor, &program, self.environment(), request, is_read, heard)?);
        let handle = state.next;
        state.next += 1;
        state.running.insert(handle, Arc::clone(&running));
        Ok((handle, running))
    }

    /// Runs a program for the daemon itself: to its end, or until its time (`timeout_ms`, which must not be 0) is over and
    /// [`KILL_TIMEOUT`] after that. Errs `unkillable` when it was killed and is not gone, and does not wait for it any more.
    pub(crate) fn run_capped(&self, request: &Request) -> Answer<Outcome> {
        let (handle, running) = self.begin(request, false)?;
        let outcome = running.wait_or_leave(KILL_TIMEOUT);
        self.state().running.remove(&handle);
        outcome.unwrap_or_else(|| {
            let (program, ms) = (running.program(), request.timeout_ms);
            let message =
                format!("{program} did not end within {ms} ms, was killed and is not gone: it hangs in the kernel");
            Err(Error::new("unkillable", message))
        })
    }

    /// The file of a program: a path as it is, a name looked up.
    fn find(&self, program: &str) -> Answer<PathBuf> {
        let is_file = |path: &Path| path.is_file();
        let found = if program.contains('/') {
            Some(PathBuf::from(program)).filter(|path| path.is_absolute() && is_file(path))
        } else {
            self.path.split(':').map(|folder| Path::new(folder).join(program)).find(|path| is_file(path))
        };
        found.ok_or_else(|| Error::new("not-found", format!("there is no program `{program}` in {}", self.path)))
    }

    fn get(&self, handle: u32) -> Answer<Arc<Running>> {
        let found = self.state().running.get(&handle).cloned();
        found.ok_or_else(|| Error::new("not-found", format!("this run has no program with the handle {handle}")))
    }

    fn end(&self, handle: u32, running: &Running) -> Answer<Outcome> {
        let outcome = running.wait();
        self.state().running.remove(&handle);
        outcome
    }
}

impl Process for Programs {
    fn run(&self, request: &Request) -> Answer<Outcome> {
        let (handle, running) = self.begin(request, false)?;
        self.end(handle, &running)
    }

    fn start(&self, request: &Request) -> Answer<u32> {
        Ok(self.begin(request, true)?.0)
    }

    fn read(&self, handle: u32, output: OutputStream, max_bytes: u32) -> Answer<Option<Vec<u8>>> {
        let most = usize::try_from(max_bytes).unwrap_or(MAX_BYTES).clamp(1, MAX_BYTES);
        Ok(self.get(handle)?.read(output, most))
    }

    fn wait(&self, handle: u32) -> Answer<Outcome> {
        let running = self.get(handle)?;
        self.end(handle, &running)
    }

    fn kill(&self, handle: u32) -> Answer<()> {
        let running = self.get(handle)?;
        running.kill();
        if running.wait_gone(KILL_TIMEOUT) {
            return Ok(());
        }
        let message =
            format!("{} was killed and is not gone after {KILL_TIMEOUT:?}: it hangs in the kernel", running.program());
        Err(Error::new("unkillable", message))
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.kill_all();
    }
}
