//! What people read: tables, lists and complaints.
//!
//! **Invariant:** results go to standard output, everything else to standard error.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde_json::Value;

/// Prints a result.
#[expect(clippy::print_stdout, reason = "the one place that prints results")]
pub fn say(text: &str) {
    println!("{text}");
}

/// Prints what is not a result: errors, hints, progress.
#[expect(clippy::print_stderr, reason = "the one place that prints to standard error")]
pub fn complain(text: &str) {
    eprintln!("{text}");
}

/// A table that fits the terminal.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table
}

/// A kind's result for people. Results with `checks` (the diagnostics) become a table with the reasons, what holds an
/// inventory becomes one line per fact; anything else stays JSON.
pub fn result(result: &Value) -> String {
    if let Some(checks) = result["checks"].as_array() {
        return diagnosis(result, checks);
    }
    if let Some(sections) = result["sections"].as_object() {
        let sections = sections.iter().map(|(name, section)| inventory(name, section));
        return sections.collect::<Vec<_>>().join("\n\n");
    }
    format!("{result:#}")
}

fn diagnosis(result: &Value, checks: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let subject = |check: &Value| match (check["index"].as_u64(), check["gpu"].as_str()) {
        (Some(index), Some(gpu)) => format!("{index} {gpu}"),
        (Some(index), None) => format!("{index}"),
        (None, Some(gpu)) => gpu.to_owned(),
        (None, None) => "node".to_owned(),
    };
    let rows = checks
        .iter()
        .map(|check| [subject(check), text(&check["name"]), text(&check["status"]), text(&check["reason"])]);
    let driver = result["driver"]["version"].as_str().map_or("no driver".to_owned(), |v| format!("driver {v}"));
    let table = table(["GPU", "check", "status", "reason"], rows);
    format!("{table}\n{}: {} ({driver})", text(&result["status"]), text(&result["summary"]))
}

fn inventory(name: &str, section: &Value) -> String {
    let mut lines = vec![name.to_owned()];
    facts(&section["data"], "  ", &mut lines);
    let problems = section["problems"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.extend(problems.map(|problem| format!("  ! {problem}")));
    lines.join("\n")
}

/// One line per fact; a list of things takes one line per thing.
fn facts(value: &Value, indent: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::Object(_) => {
                        lines.push(format!("{indent}{key}:"));
                        facts(value, &format!("{indent}  "), lines);
                    }
                    Value::Array(items) if items.iter().any(Value::is_object) => {
                        lines.push(format!("{indent}{key}:"));
                        facts(value, &format!("{indent}  "), lines);
                    }
                    _ => lines.push(format!("{indent}{key}: {}", inline(value))),
                }
            }
        }
        Value::Array(items) => lines.extend(items.iter().map(|item| format!("{indent}- {}", inline(item)))),
        _ => lines.push(format!("{indent}{}", inline(value))),
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| format!("{key} {}", inline(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(inline).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
