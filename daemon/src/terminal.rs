//! What the command lines of this project share: results to standard output, everything else to standard error.
//!
//! **Invariant:** a reader that goes away (`… | head`) ends the output, not the program with an error.

use std::io::Write;

/// Prints a result.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints what is not a result: errors, hints, progress.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
