//! The OpenAPI document.

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;

use super::Api;

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_method_stands_in_the_document_and_all_that_it_refers_to() {
    let api = Api::new().await;
    let request = Request::get("/v1/openapi.json").body(Body::empty()).expect("a request");
    let document = api.send(request).await.ok();
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50);
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("it refers to itself");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let mut methods = String::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (verb, operation) in item.as_object().expect("an object") {
            let responses = operation["responses"].as_object().expect("responses");
            let codes: Vec<_> = responses.keys().map(String::as_str).collect();
            methods += &format!("{verb} {path}: {}\n", codes.join(" "));
            // It is there: without a token the answer is not that there is no such method.
            let request = Request::builder().method(verb.to_uppercase().as_str()).uri(path);
            let answer = api.send(request.body(Body::empty()).expect("a request")).await;
            let is_open =
                operation["security"].as_array().is_some_and(|it| it.iter().all(|it| *it == serde_json::json!({})));
            assert_eq!(answer.code(), if is_open { "ok" } else { "UNAUTHENTICATED" }, "{path}");
        }
    }
    insta::assert_snapshot!(methods);
}

/// `docs/methods.md` as the document would have it.
fn page_of(document: &Value) -> String {
    let name = |schema: &Value| {
        let reference = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next());
        reference.map_or_else(|| "–".to_owned(), |it| format!("`{it}`"))
    };
    let mut page = "# Methods\n\nEvery method of the API, as its own description (`GET /v1/openapi.json`) has them; [the HTTP API](api.md) says \
                    how to call them. A test keeps this page as that description is.\n\n| method | takes | answers | what it does |\n|---|---|---|---|\n"
        .to_owned();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (verb, operation) in item.as_object().expect("an object") {
            let of = |content: &Value| {
                content.as_object().and_then(|it| it.values().next()).map_or(Value::Null, |it| it["schema"].clone())
            };
            let takes = name(&of(&operation["requestBody"]["content"]));
            let answers = name(&of(&operation["responses"]["200"]["content"]));
            let summary = operation["summary"].as_str().unwrap_or_default().replace('|', "\\|");
            page += &format!("| `{} {path}` | {takes} | {answers} | {summary} |\n", verb.to_uppercase());
        }
    }
    page
}

#[tokio::test]
async fn the_documentations_list_of_methods_is_current() {
    let api = Api::new().await;
    let request = Request::get("/v1/openapi.json").body(Body::empty()).expect("a request");
    let page = page_of(&api.send(request).await.ok());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/methods.md");
    // As snapshots are taken.
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        std::fs::write(file, &page).expect("the page is written");
    }
    assert_eq!(std::fs::read_to_string(file).unwrap_or_default(), page, "INSTA_UPDATE=always writes it anew");
}
