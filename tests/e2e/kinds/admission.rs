//! What `bcd kind run` says where a kind does not come to run.

use std::fs;

use bc_tests::{machine::Machine, programs};
use fake_nvml::State;
use serde_json::json;

#[test]
fn promise_22_a_kind_that_is_not_granted_is_refused_with_the_missing_grant() {
    let machine = Machine::new(&State::eight_h100());
    let config = fs::read_to_string(machine.config()).expect("a configuration");
    fs::write(machine.config(), config.replace("nvml = {}\n", "")).expect("a configuration");
    let (report, said) = machine.run("diag.nvml", &json!({}));
    assert_eq!((report["outcome"].as_str(), said.code), (Some("refused"), Some(3)));
    let remedy = report["obstacles"][0]["remedy"].as_str().expect("a remedy");
    assert!(remedy.ends_with("[grants.\"diag.nvml\".nvml]"), "{remedy}");
    assert!(said.err.contains(remedy), "{}", said.err);
}

#[test]
fn a_configuration_with_an_unknown_key_is_refused_whole() {
    let machine = Machine::new(&State::eight_h100());
    let config = fs::read_to_string(machine.config()).expect("a configuration");
    fs::write(machine.config(), format!("gpu-count = 8\n{config}")).expect("a configuration");
    let mut bcd = programs::command("bcd");
    let said =
        programs::run(bcd.args(["kind", "run", "--config"]).arg(machine.config()).arg(programs::kind("diag.nvml")));
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert!(said.err.contains("unknown field `gpu-count`") && said.err.contains("line 1"), "{}", said.err);
}

#[test]
fn a_file_that_is_no_kind_is_refused_and_a_missing_one_is_an_error() {
    let machine = Machine::new(&State::eight_h100());
    for (file, code, rule) in [
        (machine.config(), 3, "it is not WebAssembly"),
        (machine.path("nothing.wasm"), 1, "the file cannot be read"),
        (programs::repository(), 1, "the file cannot be read"),
    ] {
        let said = programs::run(programs::command("bcd").args(["kind", "run"]).arg(&file));
        assert_eq!(said.code, Some(code), "{said:?}");
        for part in [file.to_str().expect("text"), rule, "→ "] {
            assert!(said.err.contains(part), "{part}: {said:?}");
        }
    }
}
