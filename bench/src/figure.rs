//! A figure: what was measured, against what, and whether that reaches the goal.

use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use crate::measure::{Samples, Spread, compare};

/// How to read the table.
pub(crate) const LEGEND: &str = "\
All sides of a row were measured in this one run, in turns. Times are the medians of all samples, and p99 after the slash. A
ratio is the median over the rounds, with the least and the most of a round in brackets.

A: the queue with null nodes, on a private Postgres, `fsync` on, one server for all sides. A1 to A4 are rates, the ratio is
(ours / other); the floor is pgbench (A1, A1b, A4), UNNEST into a table with four indexes (A2), or an insert with NOTIFY (A5). A6
compares with the same work in a small database, A7 with its own beginning. A9's floor is A5's; while it waits, a runner asks nothing
but its fallback poll, which is left out. Every command of ours is claimed, marked as started
and settled with its result, and has two events in the outbox; peers keep weaker contracts. `left locked` is the most jobs that
a worker still held when all of a drain or a cycle was done; of ours there must be none, or the run fails. procrastinate
drains a tenth of the jobs.

B: the API and the gateway run in this program, daemons are processes of their own that join, connect by mutual TLS and keep
their journals on the disk; all of them, their clients and Postgres share the machine. B1's floor is A5's own side plus two fsyncs
of a page in the journal's folder, taken one by one in the same round; B2's is A4's own side. B6 gives each fleet its own database.
The sessions of B3 and B4 speak the protocol inside one process, whose memory and CPU time are theirs and the gateway's: TLS
and HTTP/2 come on top. B5's daemon is this program running what bcd runs; its SQLite queries are not traced.

C: the ratio is (ours / floor) or (peer / ours); C3 compares by difference. Floors are raw wasmtime with the same settings, the
peer is fork + exec of /bin/true.
";

/// One row of the table.
pub(crate) struct Figure {
    name: String,
    ours: String,
    floor: String,
    peer: String,
    ratio: String,
    goal: String,
    met: Option<bool>,
}

impl Figure {
    /// Ours takes at most `goal` times as long as the floor.
    pub(crate) fn against_floor(name: &str, ours: &Samples, floor: &Samples, goal: f64) -> Self {
        let ratio = compare(ours, floor, |ours, floor| ours / floor);
        Self {
            ours: both(ours),
            floor: both(floor),
            ratio: spread(ratio),
            goal: format!("≤ {goal} ×"),
            met: Some(ratio.median <= goal),
            ..Self::empty(name)
        }
    }

    /// Ours is at least `goal` times as fast as the peer.
    pub(crate) fn against_peer(name: &str, ours: &Samples, peer: &Samples, goal: f64) -> Self {
        let ratio = compare(ours, peer, |ours, peer| peer / ours);
        Self {
            ours: both(ours),
            peer: both(peer),
            ratio: spread(ratio),
            goal: format!("≥ {goal} ×"),
            met: Some(ratio.median >= goal),
            ..Self::empty(name)
        }
    }

    /// Ours takes at most `goal` more than the floor.
    pub(crate) fn above_floor(name: &str, ours: &Samples, floor: &Samples, goal: Duration) -> Self {
        let more = compare(ours, floor, |ours, floor| ours - floor);
        let micros = |seconds: f64| format!("{:+.2}", seconds * 1e6);
        Self {
            ours: in_words(ours.p50()),
            floor: in_words(floor.p50()),
            ratio: format!("{} µs ({} – {})", micros(more.median), micros(more.least), micros(more.most)),
            goal: format!("≤ +{} µs", goal.as_micros()),
            met: Some(more.median <= goal.as_secs_f64()),
            ..Self::empty(name)
        }
    }

    /// Ours takes at most `goal`, whatever the floor; none is a figure for information.
    pub(crate) fn within(name: &str, ours: &Samples, floor: &Samples, goal: Option<Duration>) -> Self {
        Self {
            ours: both(ours),
            floor: both(floor),
            ratio: spread(compare(ours, floor, |ours, floor| ours / floor)),
            goal: goal.map_or_else(|| "–".into(), |goal| format!("≤ {} ms", goal.as_millis())),
            met: goal.map(|goal| ours.p50() <= goal),
            ..Self::empty(name)
        }
    }

    /// A row that is judged elsewhere; what is not measured is left out.
    pub(crate) fn of(
        name: impl Into<String>,
        ours: String,
        floor: Option<String>,
        peer: Option<String>,
        ratio: String,
        goal: String,
        met: Option<bool>,
    ) -> Self {
        let or_none = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "–".into());
        let (floor, peer, ratio) = (or_none(floor), or_none(peer), or_none(Some(ratio)));
        Self { name: name.into(), ours, floor, peer, ratio, goal, met }
    }

    fn empty(name: &str) -> Self {
        let none = || "–".to_owned();
        Self {
            name: name.to_owned(),
            ours: none(),
            floor: none(),
            peer: none(),
            ratio: none(),
            goal: none(),
            met: None,
        }
    }
}

/// All figures, as a Markdown table that is readable in a terminal too.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(["figure", "ours", "floor", "peer", "ratio", "goal", ""]);
    for Figure { name, ours, floor, peer, ratio, goal, met } in figures {
        let verdict = met.map_or("–", |met| if met { "met" } else { "missed" });
        table.add_row([name.as_str(), ours, floor, peer, ratio, goal, verdict]);
    }
    table.to_string()
}

/// The median, and p99.
pub(crate) fn both(samples: &Samples) -> String {
    format!("{} / {}", in_words(samples.p50()), in_words(samples.p99()))
}

/// A ratio, with the least and the most of a round.
pub(crate) fn spread(Spread { median, least, most }: Spread) -> String {
    format!("{median:.2} × ({least:.2} – {most:.2})")
}

/// Three digits and a unit.
fn in_words(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        ..1.0 => format!("{:.0} ns", micros * 1e3),
        ..10.0 => format!("{micros:.2} µs"),
        ..1e3 => format!("{micros:.1} µs"),
        ..1e5 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.0} ms", micros / 1e3),
    }
}
