//! Where a program that reports by itself does so: a Unix socket of its own, on which it says a line of JSON and gets one back.
//!
//! **Invariant:** a report is answered when it was taken, and refused when the command is not the runner's any more: a program that
//! asks before it acts does nothing for a command that was called off.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bc_proto::rules::action::report::{End, MAX_LINE_BYTES, Report, Reported};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::live::Live;

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It was taken.
    Ok(bool),
    /// It was not.
    Error(String),
}

/// What one program reports.
pub(super) struct Reports {
    reported: Mutex<Reported>,
    live: Arc<Live>,
    /// Cancelled when the command is no longer to be run.
    halt: CancellationToken,
    /// Cancelled when it has reported its end.
    said_end: CancellationToken,
}

/// The socket; with it everything goes that it stands for.
pub(super) struct Socket {
    folder: TempDir,
    serving: tokio::task::JoinHandle<()>,
}

impl Reports {
    pub(super) fn new(live: Arc<Live>, halt: CancellationToken) -> Arc<Self> {
        Arc::new(Self { reported: Mutex::default(), live, halt, said_end: CancellationToken::new() })
    }

    /// Opens its socket, in a folder that nobody else enters.
    pub(super) fn serve(self: &Arc<Self>) -> io::Result<Socket> {
        let folder =
            tempfile::Builder::new().prefix("bcd-report-").permissions(Permissions::from_mode(0o700)).tempdir()?;
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let reports = Arc::clone(self);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let reports = Arc::clone(&reports);
                tokio::spawn(async move {
                    // A program that goes away in the middle has said what it has said.
                    let _ = reports.hear(stream).await;
                });
            }
        });
        Ok(Socket { folder, serving })
    }

    /// The end that it reported.
    pub(super) fn end(&self) -> Option<End> {
        self.reported().end().cloned()
    }

    /// Returns when it has reported its end.
    pub(super) async fn ended(&self) {
        self.said_end.cancelled().await;
    }

    fn reported(&self) -> std::sync::MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn hear(&self, stream: UnixStream) -> io::Result<()> {
        let (reading, mut writing) = stream.into_split();
        let mut reading = BufReader::new(reading);
        loop {
            let mut line = Vec::new();
            let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
            (&mut reading).take(most).read_until(b'\n', &mut line).await?;
            if line.is_empty() {
                return Ok(());
            }
            let is_whole = line.ends_with(b"\n");
            let answer = match self.take(&line, is_whole) {
                Ok(()) => Answer::Ok(true),
                Err(message) => Answer::Error(message),
            };
            let mut text = serde_json::to_vec(&answer)?;
            text.push(b'\n');
            writing.write_all(&text).await?;
            if !is_whole {
                return Ok(());
            }
        }
    }

    fn take(&self, line: &[u8], is_whole: bool) -> Result<(), String> {
        if !is_whole {
            return Err(format!("a report is one line of at most {MAX_LINE_BYTES} bytes"));
        }
        let report: Report = serde_json::from_slice(line).map_err(|error| format!("it is no report: {error}"))?;
        if self.halt.is_cancelled() {
            return Err("the command was called off or is not this runner's any more: stop".to_owned());
        }
        self.reported().take(&report).map_err(|refused| refused.to_string())?;
        match report {
            Report::Output(text) => self.live.add_now(text.as_bytes()),
            Report::Completed(_) | Report::Failed(_) => self.said_end.cancel(),
            Report::Started(_) => {}
        }
        Ok(())
    }
}

impl Socket {
    /// Where it is.
    pub(super) fn path(&self) -> std::path::PathBuf {
        Path::join(self.folder.path(), "socket")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
