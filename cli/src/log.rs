//! This process's own log.
//!
//! **Invariant:** it goes to standard error. `BETTER_COMPUTE_LOG_FORMAT=json` makes each line a JSON object.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The variable that chooses the form.
const FORMAT: &str = "BETTER_COMPUTE_LOG_FORMAT";

/// Starts it, at the levels that `RUST_LOG` names, else at `default`, `info` or `error` for example.
pub fn start(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::env::var(FORMAT).is_ok_and(|format| format == "json") {
        log.json().init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).init();
    }
}
