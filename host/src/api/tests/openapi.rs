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
