use proptest::prelude::*;

use super::*;

const KIND: &str = r#"
name = "diag.example"
version = "1.2.3"
summary = "Checks an example"
module = "core"
lane = "control"
timeout = "60s"
roles = ["host", "ramdisk"]
traits = ["retry-safe"]
[capabilities.nvml]
[limits]
memory = "32MiB"
cpu = "5s"
[payload]
type = "object"
additionalProperties = false
[payload.properties.count]
type = "integer"
minimum = 0
[result]
type = "object"
[[examples]]
summary = "Three of them"
[examples.payload]
count = 3
"#;

#[test]
fn a_manifest_survives_the_way_into_the_component_and_back() {
    let manifest = Manifest::from_toml(KIND).expect("it keeps the rules");
    assert_eq!(manifest.limits.memory, Bytes::mib(32));
    let packed = manifest.to_canonical_json();
    assert_eq!(Manifest::from_json(&packed), Ok(manifest));
    insta::assert_snapshot!(String::from_utf8(packed).expect("JSON is UTF-8"));
}

/// One edit of a good manifest that breaks one rule, and the message that it gets.
#[test]
fn every_rule_has_its_own_message() {
    let edits = [
        ("\"diag.example\"", "\"Diag\""),
        ("\"1.2.3\"", "\"1.2\""),
        ("Checks an example", "two\\nlines"),
        ("module = \"core\"", "module = \"Core Module\""),
        ("\"control\"", "\"fast\""),
        ("\"60s\"", "\"0s\""),
        ("\"60s\"", "\"forever\""),
        ("[\"host\", \"ramdisk\"]", "[]"),
        ("[\"host\", \"ramdisk\"]", "[\"toaster\"]"),
        ("[\"retry-safe\"]", "[\"retry-safe\", \"self-terminating\"]"),
        ("[capabilities.nvml]", "[capabilities.nvml]\nfast = true"),
        ("[capabilities.nvml]", "[capabilities.teleport]"),
        ("[capabilities.nvml]", "[capabilities.process]"),
        ("[capabilities.nvml]", "[[capabilities.process.programs]]\nprogram = \"../sh\""),
        ("[capabilities.nvml]", "[capabilities.block-devices]\nerase = true"),
        ("[capabilities.nvml]", "[capabilities.block-devices]\ndevices = ['/etc/*']"),
        ("[capabilities.nvml]", "[capabilities.secrets]"),
        ("\"32MiB\"", "\"8GiB\""),
        ("\"5s\"", "\"61s\""),
        ("type = \"integer\"", "type = \"whole\""),
        ("[payload]\ntype = \"object\"", "[payload]\ntype = \"array\""),
        ("[result]\ntype = \"object\"", "[result]\ntype = 7"),
        ("count = 3", "count = -3\nmore = 1"),
        ("lane =", "laen ="),
    ];
    let mut messages = String::new();
    for (from, to) in edits {
        assert!(KIND.contains(from), "the edit applies: {from}");
        let error = Manifest::from_toml(&KIND.replacen(from, to, 1)).expect_err(to);
        messages += &format!("{from} → {to}\n{error}\n\n");
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn all_broken_rules_are_named_at_once() {
    let broken = KIND.replace("\"diag.example\"", "\"x\"").replace("\"32MiB\"", "1").replace("\"60s\"", "\"25h\"");
    let Err(Invalid::Rules(violations)) = Manifest::from_toml(&broken) else { panic!("rules are broken") };
    let fields: Vec<_> = violations.iter().map(|v| v.field.as_str()).collect();
    assert_eq!(fields, ["name", "timeout", "limits.memory"]);
}

#[test]
fn a_manifest_that_is_too_large_is_not_parsed() {
    assert_eq!(Manifest::from_json(&vec![b' '; MAX_BYTES + 1]), Err(Invalid::TooLarge(MAX_BYTES + 1)));
    let nested = "[".repeat(100_000);
    assert!(matches!(Manifest::from_json(nested.as_bytes()), Err(Invalid::Syntax(_))), "nesting is bounded");
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Manifest::from_json(&bytes);
        let _ = Manifest::from_toml(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_damage_to_a_good_manifest_makes_the_parser_panic(at in 0..KIND.len(), byte: u8, cut in 0..KIND.len()) {
        let mut packed = Manifest::from_toml(KIND).expect("it keeps the rules").to_canonical_json();
        let at = at % packed.len();
        packed[at] = byte;
        let _ = Manifest::from_json(&packed);
        packed.truncate(cut);
        let _ = Manifest::from_json(&packed);
    }
}
