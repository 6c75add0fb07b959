//! The table `[remediation]` of a server's settings: how far nodes are mended without being asked.
//!
//! **Invariant:** without the table nothing is mended; what is wrong in it names the key and its rule.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use bc_proto::rules::remediation::Limits;
use serde::Deserialize;

/// The longest window: as long as a year.
const MAX_WINDOW: Duration = Duration::from_hours(365 * 24);

/// The table; what is absent has a default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Remediation {
    /// How many nodes of a pool may be away for a boot at once, by the pool's name.
    max_away: BTreeMap<String, u32>,
    /// The same for other pools, and for nodes without one.
    max_away_default: Option<u32>,
    /// How many attempts at one ailment of a node within the window.
    attempts: Option<u32>,
    /// A span, `24h`.
    attempt_window: Option<String>,
    /// The breaker: at most so many percent of the fleet within its window.
    breaker_percent: Option<u32>,
    /// A span, `1h`.
    breaker_window: Option<String>,
}

impl Remediation {
    /// Checks it.
    pub(crate) fn checked(self) -> anyhow::Result<Limits> {
        let default = Limits::default();
        let attempts = self.attempts.unwrap_or(default.attempts);
        ensure!((1..=100).contains(&attempts), "remediation.attempts: must be between 1 and 100, but is {attempts}");
        let percent = self.breaker_percent.unwrap_or(default.breaker_percent);
        ensure!(
            (1..=100).contains(&percent),
            "remediation.breaker-percent: must be between 1 and 100, but is {percent}"
        );
        for pool in self.max_away.keys() {
            ensure!(!pool.is_empty(), "remediation.max-away: a pool is named by the label that its nodes have");
        }
        Ok(Limits {
            max_away: self.max_away,
            max_away_default: self.max_away_default.unwrap_or(default.max_away_default),
            attempts,
            attempt_window_ms: window("attempt-window", self.attempt_window.as_deref(), default.attempt_window_ms)?,
            breaker_percent: percent,
            breaker_window_ms: window("breaker-window", self.breaker_window.as_deref(), default.breaker_window_ms)?,
        })
    }
}

/// A window in milliseconds.
fn window(key: &str, text: Option<&str>, default_ms: u64) -> anyhow::Result<u64> {
    let Some(text) = text else { return Ok(default_ms) };
    let span: Option<Duration> = text.parse::<humantime::Duration>().ok().map(Into::into);
    let holds = span.filter(|span| (Duration::from_mins(1)..=MAX_WINDOW).contains(span));
    let ms = holds.and_then(|span| u64::try_from(span.as_millis()).ok());
    ms.ok_or_else(|| {
        anyhow::anyhow!("remediation.{key}: must be a span between 1m and 365days, such as 24h, but is {text:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<Limits> {
        toml::from_str::<Remediation>(text)?.checked()
    }

    #[test]
    fn what_is_absent_has_its_default_and_spans_are_text() {
        assert_eq!(read("").expect("it fits"), Limits::default());
        let all = "max-away = { train = 4, \"batch 2\" = 0 }\nmax-away-default = 2\nattempts = 5\nattempt-window = '7days'\n\
                   breaker-percent = 10\nbreaker-window = '30m'";
        let wanted = Limits {
            max_away: [("train".to_owned(), 4), ("batch 2".to_owned(), 0)].into(),
            max_away_default: 2,
            attempts: 5,
            attempt_window_ms: 7 * 24 * 3_600_000,
            breaker_percent: 10,
            breaker_window_ms: 30 * 60_000,
        };
        assert_eq!(read(all).expect("it fits"), wanted);
    }

    #[test]
    fn what_is_wrong_names_its_key_and_rule() {
        for (text, words) in [
            ("attempts = 0", "remediation.attempts: must be between 1 and 100, but is 0"),
            ("attempts = 101", "remediation.attempts: must be between 1 and 100, but is 101"),
            ("breaker-percent = 0", "remediation.breaker-percent: must be between 1 and 100, but is 0"),
            ("breaker-percent = 101", "remediation.breaker-percent: must be between 1 and 100, but is 101"),
            ("attempt-window = '1s'", "remediation.attempt-window: must be a span between 1m and 365days"),
            ("breaker-window = 'soon'", "remediation.breaker-window: must be a span between 1m and 365days"),
            ("max-away = { '' = 1 }", "remediation.max-away: a pool is named by the label"),
            ("max-away-default = -1", "u32"),
            ("atempts = 1", "unknown field `atempts`"),
        ] {
            let refused = read(text).expect_err(text).to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
