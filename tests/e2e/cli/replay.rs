//! A recorded run, again, where the machine is gone.

use std::fs;

use bc_tests::machine::Machine;
use fake_nvml::{Preset, State};
use serde_json::Value;

use super::{better_compute, kind, word};

#[test]
fn a_replay_gives_the_same_result_without_the_machine() {
    let machine = Machine::new(&Preset::Faulty.state());
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let transcript = elsewhere.path().join("transcript.json");
    let (file, config) = (kind("diag.nvml"), machine.config());
    let said =
        better_compute(&["kind", "run", &file, "--config", word(&config), "--json", "--transcript", word(&transcript)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let recorded: Value = serde_json::from_str(&said.out).expect("a report");
    assert_eq!(recorded["result"]["status"], "fail");
    // Driver, log and configuration go.
    drop(machine);
    let said = better_compute(&["kind", "replay", word(&transcript), &file, "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let replayed: Value = serde_json::from_str(&said.out).expect("a report");
    assert_eq!(replayed["result"], recorded["result"]);

    let said = better_compute(&["kind", "replay", word(&transcript), &kind("inventory.refresh")]);
    assert_eq!(said.code, Some(2), "another kind asks something else: {said:?}");
    assert!(said.err.contains("is not the component that ran") && said.err.contains("went another way"), "{said:?}");
}

#[test]
fn what_is_no_transcript_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("transcript.json");
    fs::write(&file, "{}").expect("written");
    let said = better_compute(&["kind", "replay", word(&file), &kind("diag.nvml")]);
    assert!(said.code == Some(1) && said.err.contains("is no transcript"), "{said:?}");
}

#[test]
fn a_plan_of_a_kind_that_only_reads_has_no_effects() {
    let machine = Machine::new(&State::eight_h100());
    let said = better_compute(&["kind", "run", &kind("diag.nvml"), "--config", word(&machine.config()), "--plan"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let last = said.out.lines().last().unwrap_or_default();
    assert!(last.starts_with("plan ") && last.ends_with(": 0 effect(s)"), "{}", said.out);
}
