//! What people read about commands, the same in the terminal and on pages.
//!
//! **Invariant:** pure functions of what the API says and of the time that is passed in.

mod explain;
mod meaning;
pub mod receipt;

use std::time::Duration;

use bc_proto::rules::state::State;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub use explain::{Around, explain};
pub use meaning::meaning;

/// The state that the API's word means; `None` for a word that this program does not know.
pub fn state(word: &str) -> Option<State> {
    State::ALL.into_iter().find(|state| state.to_string() == word)
}

/// How long ago, or in how long, roughly: `3m 20s ago`, `in 2h 5m`.
pub fn distance(at: OffsetDateTime, now: OffsetDateTime) -> String {
    let (span, past) = if at <= now { (now - at, true) } else { (at - now, false) };
    let span = rough(span.unsigned_abs());
    if past { format!("{span} ago") } else { format!("in {span}") }
}

/// A span in its two largest units, at least a second.
pub fn rough(span: Duration) -> String {
    let seconds = span.as_secs();
    let unit = if seconds >= 48 * 3600 {
        3600
    } else if seconds >= 3600 {
        60
    } else {
        1
    };
    humantime::format_duration(Duration::from_secs(seconds / unit * unit)).to_string()
}

/// A time of day in UTC, to the second.
pub fn instant(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}

/// A time with its distance; empty for none.
pub fn moment(at: Option<OffsetDateTime>, now: OffsetDateTime) -> String {
    at.map(|at| format!("{} ({})", instant(at), distance(at, now))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_rough_and_say_which_way() {
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        let shown = |seconds: i64| distance(now + time::Duration::seconds(seconds), now);
        assert_eq!(shown(0), "0s ago");
        assert_eq!(shown(-200), "3m 20s ago");
        assert_eq!(shown(7509), "in 2h 5m");
        assert_eq!(shown(-200_000), "2days 7h ago");
        assert_eq!(instant(now + Duration::from_millis(1500)), "2024-10-04T00:00:01Z");
    }
}
