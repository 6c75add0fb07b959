//! `kind inspect`.

use serde_json::{Value, json};

use super::{better_compute, kind};

#[test]
fn a_kind_is_shown_without_running_it() {
    let said = better_compute(&["kind", "inspect", &kind("inventory.refresh")]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    // Digest and size change with every change of the SDK.
    let lines = said.out.lines().filter(|line| !["  sha256 ", "  bytes "].iter().any(|start| line.starts_with(start)));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_same_as_json() {
    let said = better_compute(&["kind", "inspect", "--json", &kind("diag.nvml")]);
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(document["manifest"]["name"], "diag.nvml");
    assert_eq!(document["manifest"]["capabilities"], json!({ "nvml": {} }));
    assert_eq!(document["faults"], json!([]));
    assert!(document["sha256"].as_str().is_some_and(|digest| digest.len() == 64));
    let imports = document["imports"].as_array().expect("imports");
    assert!(imports.contains(&json!("better-compute:host/nvml@1.0.0")), "{imports:?}");
}
