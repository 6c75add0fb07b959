//! What the command lines of this project share: results to standard output, everything else to standard error.
//!
//! **Invariant:** a reader that goes away (`… | head`) ends the output, not the program with an error.

use std::io::{IsTerminal, Write};

use tracing_subscriber::filter::LevelFilter;

/// Sends this process's log to standard error, at the levels that `RUST_LOG` names; in colour for people alone. Without it
/// errors are logged: a tool is asked for one thing, and answers that.
pub fn start_log() {
    start(LevelFilter::ERROR);
}

/// The same for a daemon, which says by itself what it does.
pub fn start_daemon_log() {
    start(LevelFilter::INFO);
}

fn start(unless_named: LevelFilter) {
    let filter = tracing_subscriber::EnvFilter::builder().with_default_directive(unless_named.into()).from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would say so on standard error itself, and panic when whoever read that is gone.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

/// Prints a result.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints what is not a result: errors, hints, progress.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
