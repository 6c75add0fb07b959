//! The JSON Schemas of what tools take and give.
//!
//! **Invariant:** each stands alone, without references, and its root is an object: not every client follows references, and the
//! protocol asks for the latter.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::failure;

/// What a tool takes.
pub(super) fn input<T: JsonSchema>() -> Map<String, Value> {
    tidy(SchemaSettings::draft2020_12(), T::json_schema)
}

/// What a tool gives: its own document, or a failure.
pub(super) fn output<T: JsonSchema>() -> Map<String, Value> {
    let own = tidy(SchemaSettings::draft2020_12().for_serialize(), T::json_schema);
    let either = json!({ "type": "object", "anyOf": [own, failure::schema()] });
    match either {
        Value::Object(map) => map,
        _ => unreachable!("it is written as an object"),
    }
}

fn tidy(
    settings: SchemaSettings,
    schema: impl FnOnce(&mut schemars::SchemaGenerator) -> schemars::Schema,
) -> Map<String, Value> {
    let mut generator = settings.with(|settings| settings.inline_subschemas = true).into_generator();
    let mut schema = schema(&mut generator).to_value();
    tidy_value(&mut schema);
    match schema {
        Value::Object(mut map) => {
            // The tool's own description says it.
            map.remove("description");
            map
        }
        // No type of a tool is that.
        other => Map::from_iter([("const".to_owned(), other)]),
    }
}

/// Takes away what tells an agent nothing: Rust's names of types, and `null` beside what may simply be left out.
fn tidy_value(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for noise in ["title", "$schema"] {
                if map.get(noise).is_some_and(Value::is_string) {
                    map.remove(noise);
                }
            }
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            if map.get("format").and_then(Value::as_str).is_some_and(|it| it.contains("int")) {
                map.remove("format");
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|it| it != "null");
                if let [one] = &types[..] {
                    let one = one.clone();
                    map.insert("type".to_owned(), one);
                }
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            if let Some(Value::Array(any)) = map.get_mut("anyOf") {
                any.retain(|it| it["type"] != "null");
                if let [Value::Object(one)] = &any[..] {
                    let one = one.clone();
                    map.remove("anyOf");
                    for (key, value) in one {
                        map.entry(key).or_insert(value);
                    }
                }
            }
            map.values_mut().for_each(tidy_value);
        }
        Value::Array(values) => values.iter_mut().for_each(tidy_value),
        _ => {}
    }
}
