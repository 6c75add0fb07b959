//! A process's own log.
//!
//! **Invariant:** it goes to standard error; as JSON each line is one object, whatever stands in a message.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The variable that chooses the form where no flag does.
pub const FORMAT: &str = "BETTER_COMPUTE_LOG_FORMAT";

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// An object a line, for programs: the fields of an event stand beside `timestamp`, `level`, `message` and `target`.
    Json,
}

/// A form that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the form of the log is `text` or `json`, not `{0}`")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(UnknownFormat(other.to_owned())),
        }
    }
}

/// Starts it at the levels that `RUST_LOG` names, else at `unless_named`. Without a form the environment's counts, else text.
pub fn start(unless_named: LevelFilter, format: Option<Format>) {
    let filter = EnvFilter::builder().with_default_directive(unless_named.into()).from_env_lossy();
    let named = || std::env::var(FORMAT).ok().and_then(|name| name.parse().ok());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would say so on standard error itself, and panic when whoever read that is gone.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match format.or_else(named).unwrap_or_default() {
        Format::Json => log.json().flatten_event(true).init(),
        // In colour for people alone.
        Format::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_there_is_not_is_refused_by_name() {
        assert_eq!("json".parse(), Ok(Format::Json));
        assert_eq!("text".parse(), Ok(Format::Text));
        let refused = "JSON".parse::<Format>().expect_err("another name");
        assert_eq!(refused.to_string(), "the form of the log is `text` or `json`, not `JSON`");
    }
}
