//! `gpu.reset` on a simulated node: the built component, the built `bcd`, and the programs as real processes.

use std::fs;
use std::process::{Child, Stdio};

use bc_tests::{cluster::until, machine::Machine, programs};
use fake_nvml::{HangOn, Process, RemappedRows, ResetAnswer, Service, State, calls_file};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::diagnosis::Diagnosis;

fn uuid(index: usize) -> String {
    format!("GPU-51d00000-0000-4000-8000-{index:012x}")
}

fn payload(indexes: &[usize]) -> Value {
    json!({ "gpus": indexes.iter().map(|index| uuid(*index)).collect::<Vec<_>>() })
}

/// Row remaps wait on GPU 1, and the kernel logged an error of it.
fn machine(change: impl FnOnce(&mut State)) -> Machine {
    let machine = Machine::changed(|state| {
        state.gpus[1].remapped_rows = Some(RemappedRows { uncorrectable: 1, pending: true, ..RemappedRows::default() });
        state.services.insert("nvidia-dcgm".into(), Service { active: true, stuck: false });
        change(state);
    });
    fs::write(machine.path("boot-id"), "boot-1\n").expect("a boot id");
    let config = fs::read_to_string(machine.config()).expect("a configuration");
    let boot_id = toml::Value::from(machine.path("boot-id").to_str().expect("text")).to_string();
    fs::write(machine.config(), format!("boot-id-file = {boot_id}\n{config}")).expect("a configuration");
    let line = "[  100.000001] NVRM: Xid (PCI:0000:43:00): 95, Uncontained: SM (0x1)\n";
    fs::write(machine.node.kernel_log(), line).expect("a log");
    machine
}

/// Persistence mode of GPU 1, and whether the service runs.
fn switches(machine: &Machine) -> (bool, bool) {
    let state = machine.node.state().expect("a state");
    (state.gpus[1].persistence, state.services["nvidia-dcgm"].active)
}

#[test]
fn a_reset_mends_what_waits_for_one_and_the_diagnosis_passes() {
    let machine = machine(|_| ());
    let before = Diagnosis::of(&machine);
    assert_eq!((before.check("row-remap.pending", Some(1)).0, before.check("xid.recent", Some(1)).0), ("fail", "fail"));
    let result = machine.result("gpu.reset", &payload(&[1]));
    let expected = json!({
        "gpus": [{
            "gpu": uuid(1),
            "reset": "yes",
            "message": "GPU 00000000:43:00.0 was successfully reset.",
            "health": "healthy",
            "reason": null,
        }],
        "summary": "1 of 1 were reset, 1 are healthy",
    });
    assert_eq!(result, expected);
    assert_eq!(Diagnosis::of(&machine).status(), "pass");
    assert_eq!(switches(&machine), (true, true));
}

#[test]
fn promise_33_one_gpu_in_use_refuses_all_and_names_who_uses_it() {
    let machine = machine(|state| state.gpus[2].processes = vec![Process { pid: 4242, ..Process::default() }]);
    let (report, said) = machine.run("gpu.reset", &payload(&[1, 2]));
    assert_eq!((report["code"].as_str(), said.code), (Some("gpu-busy"), Some(2)), "{report}");
    let told = format!("{} is used by process 4242 (compute)", uuid(2));
    assert_eq!((&report["message"], &report["effects"]), (&json!(told), &json!([])), "nothing was begun");
    assert_eq!(report["details"]["holders"][0]["pid"], 4242);
    assert!(!fs::exists(calls_file(&machine.node.state_file())).expect("a folder"), "no program was run");
}

#[test]
fn unknown_gpus_and_none_are_refused() {
    let machine = machine(|_| ());
    let (report, _) = machine.run("gpu.reset", &json!({ "gpus": [uuid(1), "GPU-0"] }));
    assert_eq!((report["code"].as_str(), &report["effects"]), (Some("unknown-gpu"), &json!([])), "{report}");
    for payload in [json!({}), json!({ "gpus": [] }), json!({ "gpus": [uuid(1), uuid(1)] }), json!({ "gpus": ["1"] })] {
        let (report, said) = machine.run("gpu.reset", &payload);
        assert_eq!((report["outcome"].as_str(), said.code), (Some("invalid-payload"), Some(3)), "{payload}: {report}");
    }
}

#[test]
fn a_gpu_that_vanishes_in_the_middle_is_told_beside_the_one_that_was_reset() {
    let machine = machine(|state| state.gpus[2].reset = ResetAnswer::Vanishes);
    let (report, _) = machine.run("gpu.reset", &payload(&[1, 2]));
    assert_eq!(report["code"], "reset-incomplete", "{report}");
    let lines = &report["details"]["gpus"];
    assert_eq!((&lines[0]["reset"], &lines[0]["health"]), (&json!("yes"), &json!("healthy")), "{report}");
    assert_eq!((&lines[1]["reset"], &lines[1]["health"]), (&json!("no"), &json!("unhealthy")), "{report}");
    assert!(lines[1]["message"].as_str().expect("words").starts_with("gpu-is-lost: "), "{report}");
    assert_eq!(report["effects"][0]["name"], "gpus.reset");
    assert_eq!(switches(&machine), (true, true));
}

#[test]
fn promise_35_a_tool_that_hangs_ends_the_command_as_unknown_and_leaves_nothing_off() {
    let machine = machine(|state| state.smi.hang_on = Some(HangOn::Reset));
    let (report, _) = machine.run("gpu.reset", &payload(&[1]));
    assert_eq!(report["code"], "could-not-be-known", "{report}");
    assert_eq!(report["details"]["gpus"][0]["reset"], "unknown");
    assert_eq!(switches(&machine), (true, true));
}

/// Starts a reset of GPU 1 that hangs, and returns when it has begun.
async fn begun(machine: &Machine) -> Child {
    machine.node.update(|state| state.smi.hang_on = Some(HangOn::Reset)).expect("a state");
    let mut bcd = programs::command("bcd");
    bcd.args(["kind", "run", "--payload", &payload(&[1]).to_string(), "--config"]).arg(machine.config());
    bcd.arg(programs::kind("gpu.reset")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = bcd.spawn().expect("it starts");
    let calls = calls_file(&machine.node.state_file());
    until("the reset has begun", || fs::read_to_string(&calls).unwrap_or_default().contains("--gpu-reset")).await;
    assert_eq!(switches(machine), (false, false), "everybody is off");
    child
}

/// A cancel comes while the reset is under way: it ends as it ends, everything is put back, and then the run is over.
#[tokio::test(flavor = "multi_thread")]
async fn promise_33_a_cancel_in_the_middle_leaves_nothing_off() {
    let machine = machine(|_| ());
    let child = begun(&machine).await;
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    machine.node.update(|state| state.smi.hang_on = None).expect("a state");
    let output = child.wait_with_output().expect("it ends");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!((report["outcome"].as_str(), output.status.code()), (Some("cancelled"), Some(6)), "{report}");
    let effect = &report["effects"][0];
    assert_eq!((&effect["name"], &effect["state"]["state"]), (&json!("gpus.reset"), &json!("done")), "{report}");
    assert_eq!(switches(&machine), (true, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_33_what_a_killed_process_left_off_is_switched_on_by_the_next() {
    let machine = machine(|_| ());
    let child = begun(&machine).await;
    kill_process(Pid::from_child(&child), Signal::KILL).expect("it runs");
    child.wait_with_output().expect("it ends");
    assert_eq!(switches(&machine), (false, false), "nobody was left to put it back");
    machine.node.update(|state| state.smi.hang_on = None).expect("a state");
    // This one names another GPU, and puts back all the same.
    machine.result("gpu.reset", &payload(&[2]));
    assert_eq!(switches(&machine), (true, true));
}
