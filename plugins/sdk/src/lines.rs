//! Log lines and last words: `tracing` events go to the host's `log`, and so does a panic's message.
//!
//! Spans are ignored: the host has one span per run already, and every line lands in it.
//!
//! **Invariant:** a guest never loses its panic message: `panicked` is the last call it makes before it traps.

use std::fmt;
use std::panic::PanicHookInfo;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::bindings::better_compute::host1_0_0::log;

/// Once per instance; later calls change nothing that matters. Outside a component there is nobody to write to.
pub(crate) fn install() {
    if cfg!(target_arch = "wasm32") {
        std::panic::set_hook(Box::new(|info| log::panicked(&last_words(info))));
        // Refused when it is there already.
        let _ = tracing::subscriber::set_global_default(Bridge);
    }
}

fn last_words(info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("panicked without a message");
    match info.location() {
        Some(place) => format!("{message} ({place})"),
        None => message.to_owned(),
    }
}

struct Bridge;

impl Subscriber for Bridge {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line::default();
        event.record(&mut line);
        let (message, fields) = line.finish();
        log::write(level(*metadata.level()), metadata.target(), &message, &fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn level(level: Level) -> log::Level {
    match level {
        Level::TRACE => log::Level::Trace,
        Level::DEBUG => log::Level::Debug,
        Level::INFO => log::Level::Info,
        Level::WARN => log::Level::Warn,
        Level::ERROR => log::Level::Error,
    }
}

/// One event on its way to text.
#[derive(Default)]
struct Line {
    message: String,
    /// The inside of a JSON object.
    fields: String,
}

impl Line {
    /// `value` is JSON.
    fn field(&mut self, field: &Field, value: &str) {
        if !self.fields.is_empty() {
            self.fields.push(',');
        }
        // Names are Rust identifiers and dots: there is nothing to escape.
        for part in ["\"", field.name(), "\":", value] {
            self.fields.push_str(part);
        }
    }

    fn finish(self) -> (String, String) {
        let fields = if self.fields.is_empty() { String::new() } else { format!("{{{}}}", self.fields) };
        (self.message, fields)
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            // A string always serialises.
            self.field(field, &serde_json::to_string(value).unwrap_or_default());
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // Infinities and NaN become null; std's own formatting would add 25 KB to every component.
        self.field(field, &serde_json::to_string(&value).unwrap_or_default());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, &value.to_string());
    }

    // Most readers of JSON keep no more of such a number either, and std's formatting of them is large.
    fn record_i128(&mut self, field: &Field, value: i128) {
        self.record_f64(field, value as f64);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.record_f64(field, value as f64);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, if value { "true" } else { "false" });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps the lines instead of calling the host.
    struct Keep(Arc<Mutex<Vec<(String, String)>>>);

    impl Subscriber for Keep {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().expect("one thread").push(line.finish());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn fields_become_a_json_object() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        // The one test of this crate that logs: the subscriber is the process's.
        tracing::subscriber::set_global_default(Keep(Arc::clone(&lines))).expect("first");
        let gpu = "GPU-\"1\"";
        tracing::info!(gpu, index = 3, lost = true, ratio = 0.5, bytes = u64::MAX, error = ?Some(1), "GPU {} is lost", 3);
        tracing::warn!("no fields");
        let lines = lines.lock().expect("one thread");
        let fields =
            r#"{"gpu":"GPU-\"1\"","index":3,"lost":true,"ratio":0.5,"bytes":18446744073709551615,"error":"Some(1)"}"#;
        assert_eq!(lines[0], ("GPU 3 is lost".into(), fields.into()));
        assert_eq!(lines[1], ("no fields".into(), String::new()));
    }
}
