//! A form for a payload, made of its kind's schema, and the payload that it was filled in as.
//!
//! Strings, numbers, booleans, choices and lists of strings have fields of their own; anything else is typed as JSON. Whether the
//! payload keeps the schema is for the API to say: what a form can say is read here, and no rule is checked twice.
//!
//! **Invariant:** pure; every schema gives a form, if only a single field for the whole payload, and a field that was left empty is absent
//! from the payload.

use serde_json::{Map, Number, Value};

use crate::web::form::Form;

/// What the names of a payload's fields begin with in a form.
pub(super) const PREFIX: &str = "p.";

/// The field that holds a whole payload.
pub(super) const WHOLE: &str = "payload";

/// The longest text that gets one line, characters.
const ONE_LINE: u64 = 300;

/// How a field is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// One line of text.
    Line,
    /// Several lines of text.
    Lines,
    /// A number without a fraction.
    Integer,
    /// A number.
    Number,
    /// One of the choices.
    Choice,
    /// Any of the choices.
    Choices,
    /// Texts, one a line.
    List,
    /// JSON.
    Json,
}

/// A field.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    /// Its name in the form.
    pub(super) name: String,
    /// Its name in the payload; empty for the whole of it.
    pub(super) key: String,
    /// How it is typed.
    pub(super) input: Input,
    /// Whether the payload must have it.
    pub(super) is_required: bool,
    /// What the schema says about it, and its bounds, in words.
    pub(super) hint: String,
    /// What it may be; the JSON texts of values.
    pub(super) choices: Vec<Choice>,
    /// The least number.
    pub(super) min: String,
    /// The greatest number.
    pub(super) max: String,
    /// What is typed there now.
    pub(super) value: String,
    /// The rules that it breaks.
    pub(super) problems: Vec<String>,
}

/// One of several values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    /// As JSON: what the form sends.
    pub(super) value: String,
    /// As people read it.
    pub(super) label: String,
    /// Whether it is chosen now.
    pub(super) is_chosen: bool,
}

impl Field {
    /// Whether its input is of this sort; templates compare words.
    pub(super) fn is(&self, word: &str) -> bool {
        let own = match self.input {
            Input::Line => "line",
            Input::Lines => "lines",
            Input::Integer => "integer",
            Input::Number => "number",
            Input::Choice => "choice",
            Input::Choices => "choices",
            Input::List => "list",
            Input::Json => "json",
        };
        own == word
    }

    /// What is typed as the name's label.
    pub(super) fn label(&self) -> &str {
        if self.key.is_empty() { "Payload" } else { &self.key }
    }
}

/// The form of a schema, filled with what was typed before.
pub(super) fn of(schema: &Value, typed: &Form) -> Vec<Field> {
    let properties = schema["properties"].as_object();
    let is_closed = schema["type"] == "object" && schema["additionalProperties"] == false;
    let is_plain = ["oneOf", "anyOf", "allOf", "$ref", "if"].iter().all(|word| schema.get(word).is_none());
    let fields = match properties {
        Some(properties) if is_closed && is_plain => {
            properties.iter().map(|(key, of)| field(key, of, schema)).collect()
        }
        None if is_closed && is_plain => Vec::new(),
        _ => vec![whole(schema)],
    };
    fields.into_iter().map(|field| filled(field, typed)).collect()
}

/// One field for the whole payload, where there is no schema to see either.
pub(super) fn whole(schema: &Value) -> Field {
    let hint = schema["description"].as_str().map(|text| format!("{text}. ")).unwrap_or_default();
    Field {
        name: WHOLE.to_owned(),
        key: String::new(),
        input: Input::Json,
        is_required: false,
        hint: format!("{hint}A JSON object; empty for {{}}."),
        choices: Vec::new(),
        min: String::new(),
        max: String::new(),
        value: String::new(),
        problems: Vec::new(),
    }
}

fn field(key: &str, schema: &Value, parent: &Value) -> Field {
    let input = input(schema);
    let choices = match input {
        Input::Choice => choices(schema),
        Input::Choices => choices(&schema["items"]),
        _ => Vec::new(),
    };
    let bound = |name: &str| schema.get(name).filter(|it| it.is_number()).map(Value::to_string).unwrap_or_default();
    let mut required = parent["required"].as_array().into_iter().flatten();
    Field {
        name: format!("{PREFIX}{key}"),
        key: key.to_owned(),
        input,
        is_required: required.any(|it| it == key),
        hint: hint(schema, input),
        choices,
        min: bound("minimum"),
        max: bound("maximum"),
        value: String::new(),
        problems: Vec::new(),
    }
}

fn input(schema: &Value) -> Input {
    if schema.get("const").is_some() || schema["enum"].is_array() {
        return Input::Choice;
    }
    match schema["type"].as_str() {
        Some("string") if schema["maxLength"].as_u64().is_some_and(|max| max > ONE_LINE) && !is_pattern(schema) => {
            Input::Lines
        }
        Some("string") => Input::Line,
        Some("integer") => Input::Integer,
        Some("number") => Input::Number,
        Some("boolean") => Input::Choice,
        Some("array") if schema["items"]["enum"].is_array() => Input::Choices,
        Some("array") if schema["items"]["type"] == "string" => Input::List,
        _ => Input::Json,
    }
}

fn is_pattern(schema: &Value) -> bool {
    schema["pattern"].is_string()
}

fn choices(schema: &Value) -> Vec<Choice> {
    let values: Vec<Value> = match (schema.get("const"), schema["enum"].as_array()) {
        (Some(only), _) => vec![only.clone()],
        (None, Some(values)) => values.clone(),
        (None, None) => vec![Value::Bool(true), Value::Bool(false)],
    };
    let label = |value: &Value| match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    values.iter().map(|it| Choice { value: it.to_string(), label: label(it), is_chosen: false }).collect()
}

fn hint(schema: &Value, input: Input) -> String {
    let mut words = Vec::new();
    if let Some(text) = schema["description"].as_str() {
        words.push(text.trim_end_matches('.').to_owned());
    }
    match input {
        Input::List => words.push("One a line".to_owned()),
        Input::Json => words.push("As JSON".to_owned()),
        _ => {}
    }
    let numbers = [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "characters, at least"),
        ("maxLength", "characters, at most"),
        ("minItems", "items, at least"),
        ("maxItems", "items, at most"),
    ];
    for (name, text) in numbers {
        if let Some(number) = schema.get(name).filter(|it| it.is_number()) {
            words.push(format!("{text} {number}"));
        }
    }
    for (of, place) in [(schema, ""), (&schema["items"], "each ")] {
        if let Some(pattern) = of["pattern"].as_str() {
            words.push(format!("{place}of the form {pattern}"));
        }
    }
    if let Some(default) = schema.get("default") {
        words.push(format!("{default} where nothing is said"));
    }
    words.join("; ")
}

fn filled(mut field: Field, typed: &Form) -> Field {
    typed.get(&field.name).unwrap_or_default().clone_into(&mut field.value);
    let chosen: Vec<&str> = typed.typed().filter(|(name, _)| *name == field.name).map(|(_, value)| value).collect();
    for choice in &mut field.choices {
        choice.is_chosen = chosen.contains(&choice.value.as_str());
    }
    field
}

/// The payload that was typed. What is not even a value of its field's form is a problem, by the field's place in the payload.
pub(super) fn payload(fields: &[Field], typed: &Form) -> Result<Value, Vec<(String, String)>> {
    if let [only] = fields
        && only.key.is_empty()
    {
        let text = typed.text(WHOLE).unwrap_or("{}");
        return json(text).map_err(|rule| vec![(WHOLE.to_owned(), rule)]);
    }
    let (mut payload, mut problems) = (Map::new(), Vec::new());
    for field in fields {
        match value(field, typed) {
            Ok(None) => {}
            Ok(Some(value)) => {
                payload.insert(field.key.clone(), value);
            }
            Err(rule) => problems.push((pointer(&field.key), rule)),
        }
    }
    if problems.is_empty() { Ok(Value::Object(payload)) } else { Err(problems) }
}

fn value(field: &Field, typed: &Form) -> Result<Option<Value>, String> {
    let all = typed.typed().filter(|(name, _)| *name == field.name).map(|(_, value)| value);
    if field.input == Input::Choices {
        let values = all.map(json).collect::<Result<Vec<_>, _>>()?;
        return Ok((!values.is_empty()).then_some(Value::Array(values)));
    }
    // Browsers send lines that end in CR LF.
    let text = typed.get(&field.name).unwrap_or_default().replace("\r\n", "\n");
    if text.trim().is_empty() {
        return Ok(None);
    }
    Ok(Some(match field.input {
        Input::Line | Input::Lines => Value::String(text),
        Input::Integer => {
            let number =
                text.trim().parse::<i64>().map(Number::from).or_else(|_| text.trim().parse::<u64>().map(Number::from));
            Value::Number(number.map_err(|_| "must be a number without a fraction".to_owned())?)
        }
        Input::Number => {
            let number = text.trim().parse::<f64>().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or_else(|| "must be a number".to_owned())?)
        }
        Input::Choice | Input::Choices | Input::Json => json(&text)?,
        Input::List => {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            Value::Array(lines.map(|line| Value::String(line.to_owned())).collect())
        }
    }))
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))
}

fn pointer(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Puts problems beside their fields; what belongs to none is left over.
pub(super) fn place(fields: &mut [Field], problems: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut rest = Vec::new();
    for (at, rule) in problems {
        let found = fields.iter_mut().find(|field| match at.strip_prefix(&pointer(&field.key)) {
            _ if field.key.is_empty() => at == WHOLE || at.starts_with('/') || at.is_empty(),
            Some(inner) => inner.is_empty() || inner.starts_with('/'),
            None => false,
        });
        match found {
            Some(field) => {
                let inner = at.strip_prefix(&pointer(&field.key)).unwrap_or(&at).to_owned();
                field.problems.push(if inner.is_empty() || inner == WHOLE { rule } else { format!("{inner}: {rule}") });
            }
            None => rest.push((at, rule)),
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({ "type": "object", "additionalProperties": false, "required": ["level"], "properties": {
            "level": { "type": "integer", "minimum": 1, "maximum": 4, "description": "How deep" },
            "gpus": { "type": "array", "items": { "type": "string", "pattern": "^GPU-" } },
            "sections": { "type": "array", "items": { "enum": ["cpu", "gpus"] } },
            "rescan": { "type": "boolean", "default": false },
            "note": { "type": "string" },
            "action": { "enum": ["On", "Off"] },
            "headers": { "type": "object" },
            "ratio": { "type": "number" },
        }})
    }

    #[test]
    fn every_sort_of_field_is_read_as_what_it_is() {
        let typed = Form::parse(
            b"p.level=3&p.gpus=GPU-1%0D%0A+GPU-2+%0D%0A&p.sections=%22cpu%22&p.sections=%22gpus%22&p.rescan=true&p.note=%3Cb%3E\
              &p.action=%22On%22&p.headers=%7B%22a%22%3A1%7D&p.ratio=0.5&other=1",
        );
        let expected = json!({ "level": 3, "gpus": ["GPU-1", "GPU-2"], "sections": ["cpu", "gpus"], "rescan": true, "note": "<b>",
                               "action": "On", "headers": { "a": 1 }, "ratio": 0.5 });
        let fields = of(&schema(), &typed);
        assert_eq!(payload(&fields, &typed), Ok(expected));
        let level = fields.iter().find(|it| it.key == "level").expect("a field");
        assert!(level.is_required && level.is("integer") && level.min == "1", "{level:?}");
        assert_eq!(level.hint, "How deep; at least 1; at most 4");
        let chosen = fields.iter().flat_map(|it| &it.choices).filter(|it| it.is_chosen).count();
        assert_eq!(chosen, 4, "what was typed is filled in again");
        assert_eq!(payload(&of(&schema(), &Form::default()), &Form::default()), Ok(json!({})));
    }

    #[test]
    fn what_is_no_value_is_said_beside_its_field() {
        let typed = Form::parse(b"p.level=many&p.headers=%7B");
        let mut fields = of(&schema(), &typed);
        let mut problems = payload(&fields, &typed).expect_err("two problems");
        problems.push(("/gpus/1".into(), "does not match".into()));
        problems.push(("nodeId".into(), "is no id".into()));
        assert_eq!(place(&mut fields, problems), [("nodeId".to_owned(), "is no id".to_owned())]);
        let said: Vec<_> =
            fields.iter().filter(|it| !it.problems.is_empty()).map(|it| (it.key.as_str(), it.problems.len())).collect();
        assert_eq!(said, [("gpus", 1), ("headers", 1), ("level", 1)]);
    }

    #[test]
    fn a_schema_of_another_form_is_typed_as_one_piece_of_json() {
        for schema in [
            json!({}),
            json!({ "type": "object" }),
            json!({ "type": "object", "additionalProperties": false, "oneOf": [] }),
        ] {
            let typed = Form::parse(b"payload=%7B%22a%22%3A1%7D");
            let fields = of(&schema, &typed);
            assert_eq!(fields.len(), 1);
            assert_eq!(payload(&fields, &typed), Ok(json!({ "a": 1 })));
        }
    }

    proptest! {
        #[test]
        fn no_form_and_no_schema_makes_it_panic(body in ".{0,80}", kind in "[a-z]{0,8}", word in "[a-zA-Z]{0,8}") {
            let property = json!({ "type": kind, "enum": word });
            let schema = json!({ "type": "object", "additionalProperties": false, "properties": { word.clone(): property } });
            let typed = Form::parse(format!("p.{word}={body}&payload={body}").as_bytes());
            let mut fields = of(&schema, &typed);
            let problems = payload(&fields, &typed).err().unwrap_or_default();
            let _ = place(&mut fields, problems);
        }
    }
}
