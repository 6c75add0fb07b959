//! `-o table|json|ndjson|name`: the same things for people and for programs.
//!
//! **Invariant:** JSON is what the API said, field for field; only tables choose and shorten.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::output;

/// How to print.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document a line
    Ndjson,
    /// Only names or ids, one a line
    Name,
}

/// The flags.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Output {
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    format: Format,
    /// The same as `-o json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl Output {
    /// What was asked for.
    pub fn format(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// Prints a list to standard output.
    pub fn list<T: Shown>(self, items: &[T], now: OffsetDateTime) {
        let text = list(items, self.format(), now);
        if !text.is_empty() {
            output::say(&text);
        }
    }

    /// Prints one thing to standard output.
    pub fn one<T: Shown>(self, item: &T, now: OffsetDateTime) {
        output::say(&one(item, self.format(), now));
    }
}

/// Something that can be listed.
pub trait Shown: Serialize {
    /// The columns of a table.
    const HEADER: &'static [&'static str];
    /// The cells of its row.
    fn cells(&self, now: OffsetDateTime) -> Vec<String>;
    /// What tells it from others in a command line.
    fn name(&self) -> String;
    /// All that people want to know of it: names and values, a line each.
    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)>;
}

/// A list. Nothing for people is said in words, on the table's place.
pub fn list<T: Shown>(items: &[T], format: Format, now: OffsetDateTime) -> String {
    match format {
        Format::Table if items.is_empty() => "none".to_owned(),
        Format::Table => {
            let header = T::HEADER.iter().map(|word| (*word).to_owned()).collect();
            let rows = std::iter::once(header).chain(items.iter().map(|item| item.cells(now)));
            output::table(rows, 0).trim_fmt()
        }
        Format::Json => format!("{:#}", json(items)),
        Format::Ndjson => lines(items, |item| json(item).to_string()),
        Format::Name => lines(items, Shown::name),
    }
}

/// One thing.
pub fn one<T: Shown>(item: &T, format: Format, now: OffsetDateTime) -> String {
    match format {
        Format::Table => {
            let facts = item.facts(now).into_iter().filter(|(_, value)| !value.is_empty());
            output::table(facts.map(|(name, value)| vec![name.to_owned(), value]), 0).trim_fmt()
        }
        Format::Json => format!("{:#}", json(item)),
        Format::Ndjson => json(item).to_string(),
        Format::Name => item.name(),
    }
}

fn json<T: Serialize + ?Sized>(item: &T) -> serde_json::Value {
    serde_json::to_value(item).expect("documents of the API are JSON")
}

fn lines<T>(items: &[T], line: impl Fn(&T) -> String) -> String {
    items.iter().map(line).collect::<Vec<_>>().join("\n")
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
