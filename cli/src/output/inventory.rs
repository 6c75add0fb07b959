//! An inventory for people: facts on lines, things of one kind in tables.
//!
//! **Invariant:** nothing that was collected is left out: what many things share is told once, what has no value is named.

use bc_proto::quantity::Bytes;
use serde_json::{Map, Value};

use super::table;

/// One section of the inventory, with what could not be read.
pub(super) fn section(name: &str, section: &Value) -> String {
    let mut lines = vec![name.to_owned()];
    match &section["data"] {
        Value::Null => {}
        Value::Array(items) => list(items, 2, &mut lines),
        data => facts(data, 2, &mut lines),
    }
    let problems = section["problems"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.extend(problems.map(|problem| sentence(2, "!", problem)));
    lines.join("\n")
}

/// One line per fact, and one for the names of those without a value.
fn facts(value: &Value, indent: usize, lines: &mut Vec<String>) {
    let Value::Object(fields) = value else {
        lines.push(format!("{:indent$}{}", "", plain(value)));
        return;
    };
    for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        match value {
            Value::Object(_) => {
                lines.push(format!("{:indent$}{key}:", ""));
                facts(value, indent + 2, lines);
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                lines.push(format!("{:indent$}{key}: {}", "", items.len()));
                list(items, indent + 2, lines);
            }
            _ => lines.push(format!("{:indent$}{key}: {}", "", named(key, value))),
        }
    }
    let missing = without_value(fields);
    if !missing.is_empty() {
        lines.push(format!("{:indent$}no value: {}", "", missing.join(", ")));
    }
}

/// A table for all things that have values for the same fields; a thing that is alone with its fields takes a line.
fn list(items: &[Value], indent: usize, lines: &mut Vec<String>) {
    let shape = |thing: &Map<String, Value>| thing.iter().map(|(k, v)| (k.clone(), v.is_null())).collect::<Vec<_>>();
    let mut tables: Vec<Vec<&Map<String, Value>>> = Vec::new();
    for item in items {
        let Some(thing) = item.as_object() else {
            lines.push(sentence(indent, "-", &plain(item)));
            continue;
        };
        match tables.iter_mut().find(|known| shape(known[0]) == shape(thing)) {
            Some(known) => known.push(thing),
            None => tables.push(vec![thing]),
        }
    }
    for things in tables {
        match things[..] {
            [thing] => lines.push(sentence(indent, "-", &inline(thing))),
            _ => rows(&things, indent, lines),
        }
    }
}

/// What the things share on one line, what tells them apart in columns.
fn rows(things: &[&Map<String, Value>], indent: usize, lines: &mut Vec<String>) {
    let first = things[0];
    let (shared, own): (Vec<_>, Vec<_>) =
        first.iter().partition(|(key, value)| things.iter().all(|thing| thing.get(*key) == Some(*value)));
    let shared: Map<_, _> = shared.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    if !shared.is_empty() {
        lines.push(sentence(indent, "each:", &inline(&shared)));
    }
    let header: Vec<String> = own.iter().map(|(key, _)| (*key).clone()).collect();
    let cells = |thing: &&Map<String, Value>| header.iter().map(|key| named(key, &thing[key])).collect();
    let body: Vec<Vec<String>> = things.iter().map(cells).collect();
    lines.push(table(std::iter::once(header.clone()).chain(body), indent).trim_fmt());
}

fn without_value(fields: &Map<String, Value>) -> Vec<&str> {
    fields.iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key.as_str()).collect()
}

fn inline(fields: &Map<String, Value>) -> String {
    let known = fields.iter().filter(|(_, value)| !value.is_null());
    let facts = known.map(|(key, value)| format!("{key} {}", named(key, value))).collect::<Vec<_>>().join(", ");
    match &without_value(fields)[..] {
        [] => facts,
        missing if facts.is_empty() => format!("no value: {}", missing.join(", ")),
        missing => format!("{facts} (no value: {})", missing.join(", ")),
    }
}

/// A line that may fold, with its continuation behind the mark.
fn sentence(indent: usize, mark: &str, text: &str) -> String {
    table([vec![mark.to_owned(), text.to_owned()]], indent).trim_fmt()
}

/// A value by its field's name, whose ending tells the unit.
fn named(key: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(bytes) if key.ends_with("Bytes") => Bytes(bytes).to_string(),
        _ => plain(value),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => inline(fields),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
