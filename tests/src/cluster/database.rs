//! The cluster's Postgres.
//!
//! **Invariant:** it is this cluster's alone, so that it may be killed.

use std::fs;
use std::path::{Path, PathBuf};

use bc_host::postgres::PrivatePostgres;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A Postgres in a folder.
pub struct Database {
    folder: PathBuf,
    server: Option<PrivatePostgres>,
}

impl Database {
    /// Starts one.
    ///
    /// # Panics
    /// When there is no Postgres on this machine.
    pub fn start(folder: &Path) -> Self {
        let server = PrivatePostgres::start(folder).expect("Postgres starts");
        Self { folder: folder.to_owned(), server: Some(server) }
    }

    /// How programs connect to it, also while it is down.
    pub fn url(&self) -> String {
        format!("postgres:///postgres?host={}&user=postgres", self.folder.display())
    }

    /// Kills the postmaster as `kill -9` does, and returns when it is gone; its other processes end by themselves. What was not
    /// written to the log is lost.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        let file = self.folder.join("data/postmaster.pid");
        let text = fs::read_to_string(file).expect("a server that runs has written its id");
        let pid = text.lines().next().and_then(|line| line.parse().ok()).and_then(Pid::from_raw);
        let process = pidfd_open(pid.expect("the first line is the id"), PidfdFlags::empty()).expect("it runs");
        pidfd_send_signal(&process, Signal::KILL).expect("it runs");
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).expect("its end can be awaited");
        self.server.take().expect("it runs").keep_running();
    }

    /// Starts it again over what is on the disk.
    ///
    /// # Panics
    /// When it does not come back.
    pub fn restart(&mut self) {
        assert!(self.server.is_none(), "it runs");
        self.server = Some(PrivatePostgres::start(&self.folder).expect("Postgres recovers"));
    }
}
