//! `kinds.*`.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use super::component::{broken, component, embed, kind, manifest, picky};
use super::{Api, with};

fn digest(component: &[u8]) -> String {
    bc_proto::canonical::sha256_hex(component)
}

async fn statuses(api: &Api) -> Vec<String> {
    let page = api.call("kinds.list", json!({ "all": true })).await.ok();
    let items = page["items"].as_array().expect("items");
    let mut words: Vec<_> = items
        .iter()
        .map(|it| {
            format!(
                "{} {} {}",
                it["name"].as_str().expect("text"),
                it["version"].as_str().expect("text"),
                it["status"].as_str().expect("text")
            )
        })
        .collect();
    words.sort();
    words
}

#[tokio::test]
async fn a_component_is_registered_activated_rolled_back_and_retired() {
    let api = Api::new().await;
    let one = kind(&manifest("acme.fan", "1.0.0", "traits = ['retry-safe']"));
    let two = kind(&manifest("acme.fan", "2.0.0", ""));
    let registered = api.register(one.clone(), "").await.ok();
    assert_eq!(registered["digest"], digest(&one));
    assert_eq!((&registered["status"], &registered["exposed"]), (&json!("retired"), &json!(false)));
    assert_eq!((&registered["traits"], &registered["roles"]), (&json!(["retry-safe"]), &json!(["host"])));
    assert_eq!((&registered["timeoutMs"], &registered["lane"]), (&json!(60_000), &json!("control")));
    assert_eq!(registered["manifest"]["name"], "acme.fan");
    assert_eq!(api.call("kinds.get", json!({ "name": "acme.fan" })).await.code(), "NOT_FOUND", "none is active");

    let activated = api.call("kinds.activate", json!({ "digest": digest(&one) })).await.ok();
    assert_eq!(activated["status"], "active");
    assert_eq!(api.register(one.clone(), "?exposed=true").await.ok(), with(activated, json!({ "exposed": true })));
    let second = api.register(two.clone(), "?activate=true").await.ok();
    assert_eq!((&second["status"], &second["exposed"]), (&json!("active"), &json!(true)), "exposed as the active one");
    assert_eq!(statuses(&api).await, ["acme.fan 1.0.0 retired", "acme.fan 2.0.0 active"]);
    api.call("kinds.activate", json!({ "name": "acme.fan", "digest": digest(&one) })).await.ok();
    assert_eq!(statuses(&api).await, ["acme.fan 1.0.0 active", "acme.fan 2.0.0 retired"]);
    assert_eq!(api.call("kinds.get", json!({ "name": "acme.fan" })).await.ok()["version"], "1.0.0");
    assert_eq!(api.call("kinds.get", json!({ "digest": digest(&two) })).await.ok()["version"], "2.0.0");
    let other = json!({ "name": "acme.pump", "digest": digest(&two) });
    assert_eq!(api.call("kinds.get", other).await.code(), "NOT_FOUND");

    api.call("kinds.retire", json!({ "name": "acme.fan" })).await.ok();
    assert_eq!(statuses(&api).await, ["acme.fan 1.0.0 retired", "acme.fan 2.0.0 retired"]);
    assert_eq!(api.call("kinds.list", json!({})).await.ok(), json!({ "items": [] }));
    let again = api.call("kinds.retire", json!({ "digest": digest(&one) })).await.ok();
    assert_eq!(again["status"], "retired");
}

#[tokio::test]
async fn a_version_means_one_component_for_good() {
    let api = Api::new().await;
    let one = kind(&manifest("acme.fan", "1.0.0", ""));
    let first = api.register(one.clone(), "?activate=true").await.ok();
    assert_eq!(api.register(one, "").await.ok(), first, "the same again changes nothing");
    let changed = picky(&manifest("acme.fan", "1.0.0", ""));
    let answer = api.register(changed, "?activate=true").await;
    assert_eq!(answer.code(), "CONFLICT");
    assert_eq!(answer.body["error"]["details"]["digest"], first["digest"]);
    assert_eq!(statuses(&api).await, ["acme.fan 1.0.0 active"]);
}

#[tokio::test]
async fn two_at_once_leave_one_active() {
    let api = Api::new().await;
    for version in ["1.0.0", "2.0.0"] {
        api.register(kind(&manifest("acme.fan", version, "")), "").await.ok();
    }
    let ask = |version| json!({ "digest": digest(&kind(&manifest("acme.fan", version, ""))) });
    for _ in 0..5 {
        let (one, two) =
            tokio::join!(api.call("kinds.activate", ask("1.0.0")), api.call("kinds.activate", ask("2.0.0")));
        assert_eq!((one.ok()["status"].clone(), two.ok()["status"].clone()), (json!("active"), json!("active")));
        let active = statuses(&api).await.into_iter().filter(|it| it.ends_with(" active")).count();
        assert_eq!(active, 1);
    }
}

#[tokio::test]
async fn what_cannot_be_registered_is_told_why_and_what_to_do() {
    let api = Api::new().await;
    let good = manifest("acme.fan", "1.0.0", "");
    let example = "examples = [{ summary = 'one', payload = { n = 1 } }, { summary = 'none', payload = {} }]";
    let mut cut = kind(&good);
    cut.truncate(200);
    let nul = "examples = [{ summary = \"\\u0000\", payload = {} }]";
    let core = wat::parse_str("(module)").expect("the text is right");
    let twice = embed(kind(&good), &good);
    let cases = [
        ("nothing", Vec::new()),
        ("text", b"not WebAssembly".to_vec()),
        ("a core module", core),
        ("cut off", cut),
        ("no manifest", component("i32.const 2048", &[])),
        ("two manifests", twice),
        ("an undeclared capability", embed(component("i32.const 2060 call 0 i32.const 2048", &["system"]), &good)),
        ("its own validate refuses an example", picky(&manifest("acme.fan", "1.0.0", example))),
        ("validate traps", broken(&manifest("acme.fan", "1.0.0", example))),
        ("U+0000", kind(&manifest("acme.fan", "1.0.0", nul))),
    ];
    let mut seen = String::new();
    for (name, component) in cases {
        let answer = api.register(component, "").await;
        seen += &format!("{name}: {} {}\n", answer.status.as_u16(), answer.code());
        let problems = &answer.body["error"]["details"]["problems"];
        for problem in problems.as_array().map_or(&[] as &[Value], Vec::as_slice) {
            let text = |field: &str| problem[field].as_str().expect("text").to_owned();
            seen += &format!("  {}: {}\n    → {}\n", text("field"), text("rule"), text("remedy"));
        }
    }
    insta::assert_snapshot!(seen);
    assert_eq!(statuses(&api).await, [] as [String; 0]);
}

#[tokio::test]
async fn the_request_keeps_its_rules_as_well() {
    let api = Api::new().await;
    let good = kind(&manifest("gpu.reset", "1.0.0", ""));
    let mut seen = String::new();
    for query in ["?activate=yes", "?activated=true", "?exposed=true"] {
        seen += &format!("{query}: {}\n", api.register(good.clone(), query).await.words());
    }
    let large = vec![0; 1024 * 1024 + 1];
    seen += &format!("large: {}\n", api.register(large, "").await.words());
    let request = super::post("/v1/kinds.register", &api.token, "text/plain", good);
    seen += &format!("text/plain: {}\n", api.send(request).await.words());
    let endless = Request::post("/v1/kinds.register")
        .header(header::CONTENT_TYPE, "application/wasm")
        .header(header::AUTHORIZATION, format!("Bearer {}", api.token))
        .body(Body::from_stream(futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![0; 4096]))))
        .expect("a request");
    seen += &format!("endless: {}\n", api.send(endless).await.words());
    for body in [json!({}), json!({ "digest": "x" }), json!({ "name": "" }), json!({ "name": "acme.fan" })] {
        seen += &format!("activate {body}: {}\n", api.call("kinds.activate", body.clone()).await.words());
    }
    insta::assert_snapshot!(seen);
}
