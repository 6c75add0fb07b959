//! A watcher that a test reads.

use std::sync::Mutex;

use bc_runtime::Watcher;
use bc_runtime::v1::wit::log::Level;

/// Server time as every [`Recorder`] tells it, in milliseconds since the Unix epoch.
pub const NOW_MS: u64 = 1_800_000_000_000;

/// Keeps log lines and progress.
#[derive(Debug, Default)]
pub struct Recorder {
    lines: Mutex<Vec<String>>,
    progress: Mutex<Vec<(u64, Option<u64>)>>,
}

impl Recorder {
    /// The messages that were logged.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no writer panics").clone()
    }

    /// Done and total, of every progress report.
    pub fn progress(&self) -> Vec<(u64, Option<u64>)> {
        self.progress.lock().expect("no writer panics").clone()
    }
}

impl Watcher for Recorder {
    fn log(&self, _: Level, _: &str, message: &str, _: &str) {
        self.lines.lock().expect("no writer panics").push(message.to_owned());
    }

    fn progress(&self, done: u64, total: Option<u64>, _: &str, _: &str) {
        self.progress.lock().expect("no writer panics").push((done, total));
    }

    fn now_ms(&self) -> u64 {
        NOW_MS
    }

    fn role(&self) -> String {
        "host".into()
    }
}
