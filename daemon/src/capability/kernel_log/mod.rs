//! The kernel's log of this boot, read for GPU errors.
//!
//! NVML tells only of errors that happen while somebody listens, so those before the daemon's start, and those of a GPU that
//! NVML no longer reaches, are in the kernel's log alone.
//!
//! **Invariant:** a log that cannot be read is an error and never an empty list, and a log whose start is gone says so.

mod file;
mod journald;
mod kmsg;
mod lines;

use std::{ffi::OsString, fmt, io, path::PathBuf};

use bc_proto::xid::{Findings, Report};
use bc_runtime::capability::Error;
use serde::Deserialize;

/// Where to read the kernel's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// journald, which keeps the longer log; `/dev/kmsg` where that has nothing or lost the start of the boot.
    #[default]
    Auto,
    /// journald, through `journalctl`.
    Journald,
    /// The kernel's ring buffer, `/dev/kmsg`.
    Kmsg,
    /// A text file of kernel lines, with dmesg's `[   12.345678] ` before them or without: for simulated nodes. It is taken
    /// to be the whole log of this boot.
    File(PathBuf),
}

/// Reads the kernel's log anew at every call.
#[derive(Clone, Debug)]
pub struct KernelLog {
    source: Source,
    /// The program and its first arguments.
    journalctl: Vec<OsString>,
    kmsg: PathBuf,
}

/// What one source gave.
#[derive(Debug)]
struct Reading {
    source: &'static str,
    complete: bool,
    problems: Vec<String>,
    findings: Findings,
}

/// Why a source gave nothing.
#[derive(Debug)]
struct Unreadable {
    why: String,
    errno: Option<i32>,
}

impl Unreadable {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), errno: None }
    }

    fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self { why: format!("{what}: {error}"), errno: error.raw_os_error() }
    }
}

impl KernelLog {
    /// Opens nothing yet.
    pub fn new(source: Source) -> Self {
        Self { source, journalctl: vec!["journalctl".into()], kmsg: "/dev/kmsg".into() }
    }

    /// The GPU errors since boot: the JSON document of `better-compute:host/nvml.xids`. `uuid_of` names the GPU at an address
    /// of the form `dddd:bb:dd`, lower case; lines of drivers that print no domain are taken to be of domain 0000.
    ///
    /// Blocks for as long as reading takes, at most half a minute with journald. Errors: `kernel-log-unreadable`.
    pub fn xids(&self, uuid_of: &dyn Fn(&str) -> Option<String>) -> Result<String, Error> {
        let reading = self.read().map_err(|unreadable| Error {
            code: "kernel-log-unreadable".to_owned(),
            native: unreadable.errno,
            message: unreadable.why,
        })?;
        let report = Report::new(reading.findings, reading.source, reading.complete, reading.problems, uuid_of);
        Ok(serde_json::to_string(&report).expect("a report has only string keys and finite numbers"))
    }

    fn read(&self) -> Result<Reading, Unreadable> {
        match &self.source {
            Source::Auto => self.auto(),
            Source::Journald => journald::read(&self.journalctl),
            Source::Kmsg => kmsg::read(&self.kmsg),
            Source::File(path) => file::read(path),
        }
    }

    fn auto(&self) -> Result<Reading, Unreadable> {
        let journal = match journald::read(&self.journalctl) {
            Ok(reading) if reading.complete => return Ok(reading),
            other => other,
        };
        match (journal, kmsg::read(&self.kmsg)) {
            (Ok(journal), Ok(mut ring)) if ring.complete => {
                ring.problems.splice(
                    0..0,
                    journal.problems.iter().map(|problem| format!("journald was passed over: {problem}")),
                );
                Ok(ring)
            }
            // Both have gaps: the journal's is the longer memory.
            (Ok(journal), _) => Ok(journal),
            (Err(journal), Ok(mut ring)) => {
                ring.problems.insert(0, format!("journald was passed over: {}", journal.why));
                Ok(ring)
            }
            (Err(journal), Err(ring)) => {
                Err(Unreadable { why: format!("{}; {}", journal.why, ring.why), errno: ring.errno.or(journal.errno) })
            }
        }
    }
}

#[cfg(test)]
mod tests;
