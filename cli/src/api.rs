//! `better-compute api METHOD key=value…`: any method of the API, with what its own description says of types.
//!
//! **Invariant:** a value is text unless the schema or `:=` says otherwise; nothing is guessed from what it looks like.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::{Client, Connect, Patience};
use crate::output;

/// The arguments.
#[derive(Debug, Args)]
#[command(
    after_help = "For example: better-compute api commands.run nodeId=node_… kind=node.reboot idempotencyKey=reboot-0412 \
                        payload:='{}'\n\nA field tenantId that the method needs and that is not given is the caller's own."
)]
pub struct Api {
    /// The method, `commands.run` for example
    method: String,
    /// `key=value`: text, or what the method's schema says; `key:=json`: JSON as it stands
    #[arg(value_name = "FIELD")]
    fields: Vec<String>,
    #[command(flatten)]
    connect: Connect,
}

impl Api {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        let fields = self.fields.iter().map(|word| split(word)).collect::<anyhow::Result<Vec<_>>>()?;
        let client = Client::new(self.connect.target()?, Patience::default())?;
        let description = client.openapi().await?;
        let schema = schema(&description, &self.method)?;
        let mut body = Map::new();
        for (name, given) in fields {
            let value = match given {
                Given::Json(value) => value,
                Given::Text(text) => typed(&description, &schema["properties"][&name], &name, text)?,
            };
            body.insert(name, value);
        }
        let needs = |name: &str| schema["required"].as_array().is_some_and(|list| list.iter().any(|it| it == name));
        if needs("tenantId") && !body.contains_key("tenantId") {
            body.insert("tenantId".to_owned(), json!(client.tenant().await?));
        }
        let answer: Value = client.call(&self.method, &body).await?;
        output::say(&format!("{answer:#}"));
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, PartialEq)]
enum Given {
    Text(String),
    Json(Value),
}

/// `key=value` or `key:=json`.
fn split(word: &str) -> anyhow::Result<(String, Given)> {
    let Some((name, value)) = word.split_once('=') else {
        bail!("{word:?} is no field; write key=value, or key:=json");
    };
    let (name, given) = match name.strip_suffix(':') {
        Some(name) => match serde_json::from_str(value) {
            Ok(value) => (name, Given::Json(value)),
            Err(error) => bail!("{word:?}: what stands behind `:=` is not JSON: {error}"),
        },
        None => (name, Given::Text(value.to_owned())),
    };
    if name.is_empty() {
        bail!("{word:?} names no field; write key=value, or key:=json");
    }
    Ok((name.to_owned(), given))
}

/// The schema of a method's body.
fn schema(description: &Value, method: &str) -> anyhow::Result<Value> {
    let path = &description["paths"][format!("/v1/{method}")];
    let body = &path["post"]["requestBody"]["content"]["application/json"]["schema"];
    if body.is_object() {
        return Ok(resolved(description, body).clone());
    }
    if path["post"].is_object() {
        if path["post"]["requestBody"].is_object() {
            bail!("{method} does not take JSON; for kinds.register use `better-compute kind push`");
        }
        return Ok(json!({}));
    }
    if path.is_object() {
        bail!("{method} is a stream; use `better-compute events watch`");
    }
    let paths = description["paths"].as_object().into_iter().flatten();
    let methods: Vec<_> =
        paths.filter_map(|(path, _)| path.strip_prefix("/v1/")).filter(|it| *it != "openapi.json").collect();
    bail!("the API has no method {method:?}; it has:\n  {}", methods.join("\n  "))
}

/// Follows `$ref` within the description.
fn resolved<'a>(description: &'a Value, schema: &'a Value) -> &'a Value {
    let pointer = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| description.pointer(pointer)).unwrap_or(schema)
}

/// A value of the type that the schema names: numbers and booleans are read, text stays, and structures need `:=`.
fn typed(description: &Value, schema: &Value, name: &str, text: String) -> anyhow::Result<Value> {
    let mut types = Vec::new();
    collect(description, schema, &mut types);
    let is = |name: &str| types.iter().any(|it| it == name);
    if types.is_empty() || is("string") {
        return Ok(Value::String(text));
    }
    let value: Option<Value> = serde_json::from_str(&text).ok();
    match value {
        Some(value @ Value::Number(_)) if is("integer") || is("number") => Ok(value),
        Some(value @ Value::Bool(_)) if is("boolean") => Ok(value),
        Some(value @ Value::Null) if is("null") => Ok(value),
        _ if is("object") || is("array") => bail!("{name} takes JSON: write {name}:='…'"),
        _ => bail!("{name} takes a value of type {}, not {text:?}", types.join(" or ")),
    }
}

/// The names of all types that a schema allows.
fn collect(description: &Value, schema: &Value, types: &mut Vec<String>) {
    let schema = resolved(description, schema);
    match &schema["type"] {
        Value::String(name) => types.push(name.clone()),
        Value::Array(names) => types.extend(names.iter().filter_map(Value::as_str).map(str::to_owned)),
        _ => {}
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        for part in schema[key].as_array().into_iter().flatten() {
            collect(description, part, types);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Value {
        json!({
            "paths": {
                "/v1/commands.run": { "post": { "requestBody": { "content": { "application/json": { "schema":
                    { "$ref": "#/components/schemas/RunCommand" } } } } } },
                "/v1/kinds.register": { "post": { "requestBody": { "content": { "application/wasm": {} } } } },
                "/v1/tokens.whoami": { "post": {} },
                "/v1/events.watch": { "get": {} },
                "/v1/openapi.json": { "get": {} },
            },
            "components": { "schemas": {
                "Lane": { "type": "string" },
                "RunCommand": { "required": ["tenantId"], "properties": {
                    "tenantId": { "type": "string" },
                    "notAfterSeconds": { "type": ["integer", "null"] },
                    "all": { "type": "boolean" },
                    "labels": { "type": "object" },
                    "payload": {},
                    "lane": { "oneOf": [{ "type": "null" }, { "$ref": "#/components/schemas/Lane" }] },
                } },
            } },
        })
    }

    #[test]
    fn fields_are_split_at_the_first_sign() {
        let text = |text: &str| Given::Text(text.to_owned());
        assert_eq!(split("a=b=c").expect("a field"), ("a".into(), text("b=c")));
        assert_eq!(split("a=").expect("a field"), ("a".into(), text("")));
        assert_eq!(split("a:={\"b\":1}").expect("a field"), ("a".into(), Given::Json(json!({ "b": 1 }))));
        assert_eq!(split("at=12:=3").expect("a field"), ("at".into(), text("12:=3")));
        for wrong in ["", "a", "=b", ":=1", "a:={b}", "a:="] {
            assert!(split(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn values_have_the_type_that_the_schema_names() {
        let description = description();
        let schema = schema(&description, "commands.run").expect("a schema");
        let typed = |name: &str, text: &str| typed(&description, &schema["properties"][name], name, text.to_owned());
        // What looks like a number stays text where text is asked for.
        assert_eq!(typed("tenantId", "42").expect("text"), json!("42"));
        assert_eq!(typed("lane", "bulk").expect("text"), json!("bulk"));
        assert_eq!(typed("notAfterSeconds", "60").expect("a number"), json!(60));
        assert_eq!(typed("notAfterSeconds", "null").expect("null"), Value::Null);
        assert_eq!(typed("all", "true").expect("a boolean"), json!(true));
        assert_eq!(typed("payload", "x").expect("anything"), json!("x"));
        assert_eq!(typed("unknown", "7").expect("the server says that it is not known"), json!("7"));
        let wrong = typed("notAfterSeconds", "soon").expect_err("no number").to_string();
        assert_eq!(wrong, "notAfterSeconds takes a value of type integer or null, not \"soon\"");
        let structure = typed("labels", "{}").expect_err("a structure").to_string();
        assert_eq!(structure, "labels takes JSON: write labels:='…'");
    }

    #[test]
    fn a_method_that_is_none_lists_those_that_are() {
        let error = |method: &str| schema(&description(), method).expect_err("refused").to_string();
        assert!(error("commands.start").ends_with("commands.run\n  events.watch\n  kinds.register\n  tokens.whoami"));
        assert!(error("kinds.register").contains("kind push") && error("events.watch").contains("events watch"));
        assert_eq!(schema(&description(), "tokens.whoami").expect("no fields"), json!({}));
    }
}
