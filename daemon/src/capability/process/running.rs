//! One program that runs, below its supervisor.
//!
//! **Invariant:** its pipes are always read, so that it never stands still because nobody listens, but for a stream that the guest
//! reads piece by piece and has not read yet.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bc_runtime::capability::process::{Exit, Outcome, OutputStream, Request};
use bc_runtime::capability::{Answer, Error};

use super::capture::Capture;
use super::{Heard, MAX_BYTES};
use crate::supervise::{Ended, Order};

/// How much of a stream waits for a guest that reads it, bytes. A program that says more stands still until it is read.
const UNREAD: usize = 4 * 1024 * 1024;

/// The size of one read from a pipe.
const PIECE: usize = 64 * 1024;

pub(super) struct Running {
    program: String,
    control: UnixStream,
    shared: Arc<Shared>,
    deadline: Option<Instant>,
}

struct Shared {
    /// Hears what is written; `None` where nobody follows it.
    heard: Option<Heard>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    streams: [Stream; 2],
    ended: Option<Result<Ended, String>>,
    timed_out: bool,
}

struct Stream {
    capture: Capture,
    /// What the guest has not read; `None` once nobody will.
    unread: Option<VecDeque<u8>>,
    is_over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Option<Instant>) -> MutexGuard<'a, State> {
        match until {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

const fn index(output: OutputStream) -> usize {
    match output {
        OutputStream::Stdout => 0,
        OutputStream::Stderr => 1,
    }
}

fn io(what: &str, error: &std::io::Error) -> Error {
    let message = format!("{what}: {error}");
    error.raw_os_error().map_or_else(|| Error::new("io", &message), |number| Error::native("io", number, &message))
}

impl Running {
    /// Starts it. `is_read`: the guest reads its output piece by piece.
    pub(super) fn start(
        supervisor: &Path,
        program: &Path,
        env: BTreeMap<String, String>,
        request: &Request,
        is_read: bool,
        heard: Option<Heard>,
    ) -> Answer<Self> {
        let input = request.stdin.as_deref().unwrap_or_default();
        let order = Order { program: program.to_owned(), argv: request.argv.clone(), env, stdin_bytes: input.len() };
        let failed = |error: std::io::Error| io("the program's supervisor cannot be started", &error);
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        let mut child = spawn(supervisor, theirs).map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut line = serde_json::to_vec(&order).expect("text is JSON");
        line.push(b'\n');
        let said = (&control).write_all(&line).and_then(|()| (&control).write_all(input));
        said.map_err(|error| io("the program's supervisor does not listen", &error))?;

        let keep = usize::try_from(request.capture_bytes).unwrap_or(MAX_BYTES).min(MAX_BYTES);
        let stream = || Stream { capture: Capture::new(keep), unread: is_read.then(VecDeque::new), is_over: false };
        let state = State { streams: [stream(), stream()], ended: None, timed_out: false };
        let shared = Arc::new(Shared { heard, state: Mutex::new(state), changed: Condvar::new() });
        for (at, pipe) in [(0, stdout.map(OwnedFd::from)), (1, stderr.map(OwnedFd::from))] {
            let shared = Arc::clone(&shared);
            thread::spawn(move || follow(&shared, at, pipe.map(std::fs::File::from)));
        }
        let answers = control.try_clone().map_err(failed)?;
        let waiting = Arc::clone(&shared);
        thread::spawn(move || await_end(&waiting, answers, child));
        let deadline = (request.timeout_ms > 0)
            .then(|| Instant::now().checked_add(Duration::from_millis(request.timeout_ms)))
            .flatten();
        Ok(Self { program: request.program.clone(), control, shared, deadline })
    }

    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// Has its tree killed. Does not wait.
    pub(super) fn kill(&self) {
        // The supervisor may be gone already.
        let _ = self.control.shutdown(Shutdown::Write);
    }

    /// Whether its tree is gone within that time.
    pub(super) fn wait_gone(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut state = self.shared.state();
        while state.ended.is_none() && Instant::now() < until {
            state = self.shared.wait(state, Some(until));
        }
        state.ended.is_some()
    }

    /// New output of a stream; `None` at its end.
    pub(super) fn read(&self, output: OutputStream, most: usize) -> Option<Vec<u8>> {
        let mut state = self.shared.state();
        loop {
            state = self.check_deadline(state);
            let stream = &mut state.streams[index(output)];
            let waiting = stream.unread.as_mut().filter(|unread| !unread.is_empty());
            if let Some(unread) = waiting {
                let taken = unread.drain(..most.min(unread.len())).collect();
                self.shared.changed.notify_all();
                return Some(taken);
            }
            if stream.is_over || stream.unread.is_none() {
                return None;
            }
            let until = self.until(state.timed_out);
            state = self.shared.wait(state, until);
        }
    }

    /// Waits for its end, and its tree's.
    pub(super) fn wait(&self) -> Answer<Outcome> {
        let mut state = self.shared.state();
        for stream in &mut state.streams {
            stream.unread = None;
        }
        self.shared.changed.notify_all();
        loop {
            state = self.check_deadline(state);
            let is_over = state.streams.iter().all(|stream| stream.is_over);
            if let Some(ended) = state.ended.clone()
                && is_over
            {
                return self.outcome(&state, ended);
            }
            let until = self.until(state.timed_out);
            state = self.shared.wait(state, until);
        }
    }

    /// The same, but leaves it alone when it is not gone so long after its time was over and it was killed: it hangs in the
    /// kernel. `None` then.
    pub(super) fn wait_or_leave(&self, grace: Duration) -> Option<Answer<Outcome>> {
        let leave = self.deadline.and_then(|deadline| deadline.checked_add(grace));
        let mut state = self.shared.state();
        for stream in &mut state.streams {
            stream.unread = None;
        }
        self.shared.changed.notify_all();
        loop {
            state = self.check_deadline(state);
            let is_over = state.streams.iter().all(|stream| stream.is_over);
            if let Some(ended) = state.ended.clone()
                && is_over
            {
                return Some(self.outcome(&state, ended));
            }
            if leave.is_some_and(|leave| Instant::now() >= leave) {
                return None;
            }
            let until = if state.timed_out { leave } else { self.deadline };
            state = self.shared.wait(state, until);
        }
    }

    /// When to look at the deadline again.
    fn until(&self, timed_out: bool) -> Option<Instant> {
        self.deadline.filter(|_| !timed_out)
    }

    fn check_deadline<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_late && !state.timed_out && state.ended.is_none() {
            state.timed_out = true;
            self.kill();
        }
        state
    }

    fn outcome(&self, state: &State, ended: Result<Ended, String>) -> Answer<Outcome> {
        let ended = ended.map_err(|message| Error::new("supervisor", message))?;
        let exit = match ended {
            Ended::NotStarted(number, message) => {
                let message = format!("{} cannot be started: {message}", self.program);
                return Err(match number {
                    Some(number) => Error::native("not-started", number, message),
                    None => Error::new("not-started", message),
                });
            }
            _ if state.timed_out => Exit::TimedOut,
            Ended::Code(code) => Exit::Code(code),
            Ended::Signal(signal) => Exit::Signal(signal),
        };
        let [stdout, stderr] = &state.streams;
        Ok(Outcome { exit, stdout: stdout.capture.output(), stderr: stderr.capture.output() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        // Nobody reads on, and the threads that follow it need not wait for that.
        for stream in &mut self.shared.state().streams {
            stream.unread = None;
        }
        self.shared.changed.notify_all();
    }
}

#[expect(clippy::disallowed_methods, reason = "the daemon starts its own supervisor here, and nothing else")]
fn spawn(supervisor: &Path, control: UnixStream) -> std::io::Result<Child> {
    Command::new(supervisor)
        .arg("supervise")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(control)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Reads a stream to its end.
fn follow(shared: &Shared, at: usize, pipe: Option<std::fs::File>) {
    let mut piece = vec![0; PIECE];
    if let Some(mut pipe) = pipe {
        while let Ok(count @ 1..) = pipe.read(&mut piece) {
            if let Some(heard) = &shared.heard {
                heard([OutputStream::Stdout, OutputStream::Stderr][at], &piece[..count]);
            }
            let mut state = shared.state();
            state.streams[at].capture.add(&piece[..count]);
            while state.streams[at].unread.as_ref().is_some_and(|unread| unread.len() >= UNREAD) {
                state = shared.wait(state, None);
            }
            if let Some(unread) = &mut state.streams[at].unread {
                unread.extend(&piece[..count]);
            }
            shared.changed.notify_all();
        }
    }
    shared.state().streams[at].is_over = true;
    shared.changed.notify_all();
}

/// Waits for the supervisor's word, and for the supervisor.
fn await_end(shared: &Shared, answers: UnixStream, mut child: Child) {
    let mut line = String::new();
    let read = BufReader::new(answers).read_line(&mut line);
    let ended = match read {
        Ok(0) => Err("the program's supervisor ended without a word".to_owned()),
        Ok(_) => serde_json::from_str(&line).map_err(|error| format!("the supervisor's word cannot be read: {error}")),
        Err(error) => Err(format!("the supervisor cannot be heard: {error}")),
    };
    // It has said its last word, so this does not take long.
    let _ = child.wait();
    shared.state().ended = Some(ended);
    shared.changed.notify_all();
}
