//! `-o table|json|ndjson|name`: the same things for people and for programs.
//!
//! **Invariant:** JSON is what the API said, field for field; only tables choose and shorten.

use clap::{Args, ValueEnum};
use serde::Serialize;
use time::OffsetDateTime;

use crate::output;

pub use bc_host::words::{distance, instant, moment, rough};

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
