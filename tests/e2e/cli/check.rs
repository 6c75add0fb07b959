//! `kind check`: the node's admission before the node.

use std::fs;

use serde_json::Value;

use super::{better_compute, kind, word};

/// The TOML that the answer asks to add.
fn missing_grant(answer: &str) -> String {
    let from = answer.find("[grants").unwrap_or_else(|| panic!("no grant in {answer}"));
    answer[from..].to_owned()
}

#[test]
fn promise_22_the_missing_grant_can_be_pasted_into_the_policy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let grants = folder.path().join("grants.toml");
    let mut policy = String::new();
    for name in ["diag.nvml", "inventory.refresh"] {
        let file = kind(name);
        let check = || better_compute(&["kind", "check", &file, "--grants", word(&grants)]);
        fs::write(&grants, &policy).expect("written");
        let said = check();
        assert_eq!(said.code, Some(3), "{said:?}");
        assert!(said.out.contains("would not be loaded:\nnot granted: "), "{said:?}");
        policy += &missing_grant(&said.out);
        fs::write(&grants, &policy).expect("written");
        let said = check();
        assert_eq!((said.code, said.out), (Some(0), format!("{name} would be loaded\n")));
    }
    assert_eq!(policy, "[grants.\"diag.nvml\".nvml]\n[grants.\"inventory.refresh\".inventory]\n");
}

#[test]
fn without_configuration_nothing_is_granted_and_json_says_so() {
    let said = better_compute(&["kind", "check", "--json", &kind("diag.nvml")]);
    let verdict: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((said.code, &verdict["admitted"]), (Some(3), &Value::Bool(false)));
    assert_eq!(verdict["obstacles"].as_array().map(Vec::len), Some(1), "{verdict}");
}

#[test]
fn promise_21_a_capability_that_the_node_has_not_is_named_beside_the_grants() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("bcd.toml");
    fs::write(&config, "role = 'site'").expect("written");
    // Its own disks are not what a site's controller is for.
    let said = better_compute(&["kind", "check", &kind("metal.disk.wipe"), "--config", word(&config)]);
    assert_eq!(said.code, Some(3), "{said:?}");
    for part in ["not granted: ", "this node has nothing behind `block-devices`", "this node is a site"] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
}
