//! What is refused, with which words and exit code.

use std::fs;

use serde_json::{Value, json};

use super::{better_compute, kind, word};

#[test]
fn a_payload_that_does_not_fit_is_refused_with_every_problem() {
    let payload = r#"{"sections":["gpus","dpus",7],"rescan":"yes","force":true}"#;
    let run = ["kind", "run", &kind("inventory.refresh"), "--grant-declared", "--payload", payload];
    let said = better_compute(&run);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""));
    insta::assert_snapshot!(said.err);

    let said = better_compute(&[&run[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((said.code, &report["outcome"]), (Some(3), &json!("invalid-payload")));
    let pointers: Vec<_> = report["problems"].as_array().expect("a list").iter().map(|p| &p["pointer"]).collect();
    assert_eq!(pointers, ["", "/rescan", "/sections/1", "/sections/2"]);
}

#[test]
fn a_payload_that_is_no_json_is_wrong_usage() {
    let said =
        better_compute(&["kind", "run", &kind("diag.nvml"), "--grant-declared", "--payload", "{expectedGpus: 8}"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert!(said.err.contains("--payload is not JSON") && said.err.contains("line 1 column 2"), "{said:?}");
}

#[test]
fn a_file_that_is_no_kind_names_file_rule_and_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, bytes: &[u8]| {
        let file = folder.path().join(name);
        fs::write(&file, bytes).expect("written");
        word(&file).to_owned()
    };
    let whole = fs::read(kind("diag.nvml")).expect("a kind");
    let cases = [
        (word(&folder.path().join("none.wasm")).to_owned(), 1, "the file cannot be read", "check the path"),
        (word(folder.path()).to_owned(), 1, "the file cannot be read", "check the path"),
        (file("text.wasm", b"hello"), 3, "it is not WebAssembly", "that `better-compute kind build` wrote"),
        (file("empty.wasm", b""), 3, "it is not WebAssembly", "that `better-compute kind build` wrote"),
        (file("core.wasm", b"\0asm\x01\0\0\0"), 3, "it is a core module", "pack it with `better-compute kind build`"),
        (file("bare.wasm", b"\0asm\x0d\0\x01\0"), 3, "it carries no manifest", "pack it with"),
        (file("cut.wasm", &whole[..whole.len() / 2]), 3, "it is damaged or cut off", "copy or build the file again"),
    ];
    for command in ["run", "inspect", "check"] {
        for (file, code, rule, remedy) in &cases {
            let said = better_compute(&["kind", command, file]);
            assert_eq!(said.code, Some(*code), "{command}: {said:?}");
            let text = said.out + &said.err;
            for part in [file, *rule, "→ ", *remedy] {
                assert!(text.contains(part), "{command} {file} should say {part:?}: {text}");
            }
        }
    }
}

#[test]
fn a_kind_that_is_not_granted_is_refused() {
    let said = better_compute(&["kind", "run", &kind("diag.nvml")]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""));
    assert!(said.err.starts_with("diag.nvml was not loaded:\nnot granted: "), "{}", said.err);
    assert!(said.err.ends_with("[grants.\"diag.nvml\".nvml]\n"), "{}", said.err);
}

#[test]
fn a_run_that_is_stopped_failed() {
    let words = ["kind", "run", &kind("diag.nvml"), "--grant-declared", "--timeout", "0s", "--json"];
    let said = better_compute(&words);
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((said.code, &report["outcome"]), (Some(2), &json!("deadline")), "{said:?}");
}
