//! A program that runs beside the test.
//!
//! **Invariant:** it ends with its handle, by `SIGKILL` to the child that this test started.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::{oneshot, watch};

use super::PATIENCE;

/// The program.
pub struct Process {
    name: String,
    child: Child,
    said: Arc<Mutex<String>>,
    /// Changes with each line, and closes when the program has closed its output.
    lines: watch::Receiver<u64>,
}

impl Process {
    /// Starts it. What it says on standard error is kept.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let output = BufReader::new(child.stderr.take().expect("it is piped"));
        let said = Arc::new(Mutex::new(String::new()));
        let (told, lines) = watch::channel(0);
        let kept = Arc::clone(&said);
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                writeln!(kept, "{line}").expect("text takes everything");
                drop(kept);
                told.send_modify(|count| *count += 1);
            }
        });
        Self { name: name.into(), child, said, lines }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when it has said this.
    ///
    /// # Panics
    /// When it ends without having said it, or takes too long.
    pub async fn has_said(&mut self, text: &str) {
        let heard = tokio::time::timeout(PATIENCE, async {
            while !self.said().contains(text) {
                if self.lines.changed().await.is_err() && !self.said().contains(text) {
                    return false;
                }
            }
            true
        });
        assert_eq!(heard.await, Ok(true), "{} does not say {text:?}", self.name);
    }

    /// Returns how it ended, when it has.
    ///
    /// # Panics
    /// When it takes too long.
    pub async fn ended(&mut self) -> ExitStatus {
        let closed = tokio::time::timeout(PATIENCE, async { while self.lines.changed().await.is_ok() {} });
        assert!(closed.await.is_ok(), "{} does not end", self.name);
        self.child.wait().expect("it was not waited for")
    }

    /// Returns when a crash point has killed it.
    ///
    /// # Panics
    /// When it ends otherwise.
    pub async fn crashed(&mut self) {
        let status = self.ended().await;
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{} ended with {status}", self.name);
    }

    /// Returns when it has stopped itself, and stands there until it gets `CONT`.
    ///
    /// # Panics
    /// When it ends, or takes too long.
    pub async fn stopped(&mut self) {
        let pid = self.pid();
        let (tell, told) = oneshot::channel();
        // A thread of its own, which ends with the child at the latest. Nothing is reaped: the handle does that.
        thread::spawn(move || {
            let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let status = waitid(WaitId::Pid(pid), options);
            let _ = tell.send(status.is_ok_and(|status| status.is_some_and(|status| status.stopped())));
        });
        let stopped = tokio::time::timeout(PATIENCE, told).await;
        assert!(matches!(stopped, Ok(Ok(true))), "{} does not stop: {stopped:?}", self.name);
    }

    /// Kills it as `kill -9` does, and returns when it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to stop, and returns when it has.
    ///
    /// # Panics
    /// When it does not.
    pub async fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Sends it a signal, for example `STOP` and `CONT`.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid(), signal);
    }

    /// The handle has not been waited for, so the id is still this child's.
    fn pid(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child has an id")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let shown = format!("---- {}\n{}", self.name, self.said());
            let _ = std::io::stderr().write_all(shown.as_bytes());
        }
    }
}
