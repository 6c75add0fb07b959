//! What the command lines of this project share: results to standard output, everything else to standard error.
//!
//! **Invariant:** a reader that goes away (`… | head`) ends the output, not the program with an error.

use std::io::{IsTerminal, Write};

/// Sends this process's log to standard error, at the levels that `RUST_LOG` names; in colour for people alone.
pub fn start_log() {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
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
