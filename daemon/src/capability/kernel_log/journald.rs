//! journald, through `journalctl -o json`.
//!
//! Whether its log of this boot is complete is judged by its first kernel message: the kernel logs its first ones before
//! its clock runs, at time 0, so a journal that begins later lost the start (it was vacuumed, or the ring buffer had turned
//! over before journald started). A loss further on leaves journald's own message about it, which is asked for as well.
//!
//! **Invariant:** only entries of transport `kernel` *and* facility 0 count. What a user writes to `/dev/kmsg` has the
//! transport too, and journald takes the text up to the first colon off it, but the kernel does not let it have facility 0.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use bc_proto::xid::Scanner;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Reading, Unreadable,
    lines::{self, Extent, Timed},
};

/// How long journalctl may take. Ours: a journal on a slow disk takes seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The latest that a boot's first kernel message may be, in microseconds since boot. Ours: they are logged at 0.
const BOOT_START_US: u64 = 1_000_000;

/// The id of journald's message about kernel messages that it missed (`SD_MESSAGE_JOURNAL_MISSED`).
const MISSED: &str = "e9bf28e6e834481bb6f48f548ad13606";

/// The most of what journalctl prints to standard error that is told.
const MAX_STDERR_BYTES: u64 = 512;

/// One line of `journalctl -o json`.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "_TRANSPORT")]
    transport: Option<String>,
    #[serde(rename = "SYSLOG_FACILITY")]
    facility: Option<String>,
    #[serde(rename = "MESSAGE_ID")]
    message_id: Option<String>,
    /// Text; an array of bytes where it is none.
    #[serde(rename = "MESSAGE", default)]
    message: Value,
    /// The kernel's own time of the message, in microseconds since boot.
    #[serde(rename = "_SOURCE_MONOTONIC_TIMESTAMP")]
    logged_us: Option<String>,
    /// When journald received it.
    #[serde(rename = "__MONOTONIC_TIMESTAMP")]
    received_us: Option<String>,
}

/// Asks journald. The program comes with its first arguments.
pub(super) fn read(program: &[OsString]) -> Result<Reading, Unreadable> {
    let mut child = start(program).map_err(|error| Unreadable::io("journalctl", &error))?;
    let stdout = child.stdout.take().expect("it is piped");
    let mut stderr = child.stderr.take().expect("it is piped");
    let mut running = Running(Some(child));
    let deadline = Instant::now() + TIMEOUT;
    let mut journal = Journal::default();
    let extent = journal
        .take_all(BufReader::new(Timed::new(stdout, deadline)))
        .map_err(|error| Unreadable::io("reading from journalctl", &error))?;
    if !extent.cut_off {
        let status = running.end(deadline).map_err(|error| Unreadable::io("waiting for journalctl", &error))?;
        if !status.success() {
            let mut words = String::new();
            // Its words are a courtesy: where they cannot be had, the status has to do.
            let _ = Timed::new(&mut stderr, deadline).take(MAX_STDERR_BYTES).read_to_string(&mut words);
            return Err(Unreadable::new(format!("journalctl ended with {status}: {}", words.trim())));
        }
    }
    journal.finish(&extent)
}

#[expect(clippy::disallowed_methods, reason = "journald is read through journalctl")]
fn start(program: &[OsString]) -> io::Result<Child> {
    let fields = "MESSAGE,MESSAGE_ID,SYSLOG_FACILITY,_TRANSPORT,_SOURCE_MONOTONIC_TIMESTAMP,__MONOTONIC_TIMESTAMP";
    let (program, first) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(first)
        // `-k` would leave out journald's own message about missed ones; without `--all`, long messages are null.
        .args(["-b", "-o", "json", "--no-pager", "--all", &format!("--output-fields={fields}")])
        .args(["_TRANSPORT=kernel", "+", &format!("MESSAGE_ID={MISSED}")])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// A started program. Dropping it kills it and leaves the reaping to a thread: a process that hangs in the kernel dies when
/// it likes.
struct Running(Option<Child>);

impl Running {
    /// Waits for its end, which is near: its output ended.
    fn end(&mut self, deadline: Instant) -> io::Result<ExitStatus> {
        loop {
            let child = self.0.as_mut().expect("only dropping takes it");
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        if matches!(child.try_wait(), Ok(None)) && child.kill().is_ok() {
            std::thread::spawn(move || child.wait());
        }
    }
}

#[derive(Default)]
struct Journal {
    scanner: Scanner,
    /// Kernel messages.
    messages: u64,
    /// The first one's time.
    first_us: Option<u64>,
    missed: Option<String>,
    malformed: u64,
}

impl Journal {
    fn take_all(&mut self, reader: impl BufRead) -> io::Result<Extent> {
        lines::each(reader, |line| match serde_json::from_slice(line) {
            Ok(entry) => self.take(&entry),
            Err(_) => self.malformed += 1,
        })
    }

    fn take(&mut self, entry: &Entry) {
        let message = text(&entry.message);
        if entry.message_id.as_deref() == Some(MISSED) {
            self.missed = Some(message);
            return;
        }
        if entry.transport.as_deref() != Some("kernel")
            || entry.facility.as_deref().is_some_and(|facility| facility != "0")
        {
            return;
        }
        let time_us = [&entry.logged_us, &entry.received_us].into_iter().flatten().find_map(|us| us.parse().ok());
        if self.messages == 0 {
            self.first_us = time_us;
        }
        self.messages += 1;
        self.scanner.record(&message, time_us);
    }

    fn finish(self, extent: &Extent) -> Result<Reading, Unreadable> {
        if self.messages == 0 {
            return Err(Unreadable::new("the journal holds no kernel messages of this boot"));
        }
        let starts_at_boot = self.first_us.is_some_and(|us| us <= BOOT_START_US);
        let mut problems = extent.problems();
        match self.first_us {
            _ if starts_at_boot => {}
            Some(us) => {
                problems.push(format!("the journal of this boot begins only {} s after its start", us / 1_000_000));
            }
            None => problems.push("the journal's first kernel message has no time".to_owned()),
        }
        if let Some(missed) = &self.missed {
            problems.push(format!("journald: {missed}"));
        }
        if self.malformed > 0 {
            problems.push(format!("{} lines of journalctl's output could not be read", self.malformed));
        }
        let complete = starts_at_boot && self.missed.is_none() && self.malformed == 0 && !extent.cut_off;
        Ok(Reading { source: "journald", complete, problems, findings: self.scanner.finish() })
    }
}

/// A field's text. journald gives an array of bytes for what is not text, and of texts for a field given several times.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let texts: Option<Vec<_>> = values.iter().map(Value::as_str).collect();
            texts.map_or_else(|| bytes(values), |texts| texts.join("\n"))
        }
        _ => String::new(),
    }
}

fn bytes(values: &[Value]) -> String {
    let bytes: Vec<u8> =
        values.iter().filter_map(|value| value.as_u64().and_then(|byte| u8::try_from(byte).ok())).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
