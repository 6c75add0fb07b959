//! What people read: results, lists and complaints.
//!
//! **Invariant:** results go to standard output, everything else to standard error.

mod diagnosis;
mod inventory;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde_json::Value;

pub use bc_daemon::terminal::{complain, say};

/// A kind's result for people. Results with `checks` (the diagnostics) tell what needs attention and count the rest, what
/// holds an inventory becomes facts and tables; anything else stays JSON.
pub fn result(result: &Value) -> String {
    if let Some(checks) = result["checks"].as_array() {
        return diagnosis::report(result, checks);
    }
    if let Some(sections) = result["sections"].as_object() {
        let sections = sections.iter().map(|(name, section)| inventory::section(name, section));
        return sections.collect::<Vec<_>>().join("\n\n");
    }
    format!("{result:#}")
}

/// A borderless table that fits the terminal, or `$COLUMNS` where that is set; without either, lines are as long as they are.
/// Each line is indented by `indent` columns.
pub(crate) fn table(rows: impl IntoIterator<Item = Vec<String>>, indent: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(columns) = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()) {
        table.set_width(columns);
    }
    for row in rows {
        table.add_row(row);
    }
    let indent = u16::try_from(indent).unwrap_or(0);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at == 0 { indent } else { 0 }, 2));
    }
    table
}
