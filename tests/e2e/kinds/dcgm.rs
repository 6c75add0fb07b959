//! `diag.dcgm` on a simulated node: the built component and `dcgmi` as a real process.

use bc_tests::machine::Machine;
use fake_nvml::{Dcgm, DcgmResult, Process, State};
use serde_json::{Value, json};

fn machine(dcgm: Dcgm) -> Machine {
    Machine::changed(|state| state.dcgm = dcgm)
}

fn failing(generation: u8) -> Dcgm {
    let failed =
        DcgmResult { status: "Fail".into(), warning: Some("a row remap failed".into()), error_id: 95, severity: 2 };
    Dcgm { generation, memory: [(3, failed)].into(), ..Dcgm::default() }
}

fn busy(state: &mut State) {
    state.gpus[2].processes = vec![Process { pid: 4242, ..Process::default() }];
}

fn uuid(index: usize) -> String {
    format!("GPU-51d00000-0000-4000-8000-{index:012x}")
}

#[test]
fn both_generations_pass_and_fail_alike() {
    for generation in [3, 4] {
        let result = machine(Dcgm { generation, ..Dcgm::default() }).result("diag.dcgm", &json!({ "level": 2 }));
        assert_eq!((&result["status"], &result["exitCode"]), (&json!("pass"), &json!(0)), "{result}");
        let result = machine(failing(generation)).result("diag.dcgm", &json!({ "level": 2, "gpus": [uuid(3)] }));
        assert_eq!((&result["status"], &result["exitCode"]), (&json!("fail"), &json!(205)), "{result}");
        assert_eq!(result["reason"], "memory on GPU 3: a row remap failed");
        let tests = result["tests"].as_array().expect("tests");
        let failed: Vec<&Value> = tests.iter().filter(|test| test["status"] == "fail").collect();
        let [failed] = failed.as_slice() else { panic!("one failed: {result}") };
        assert_eq!((&failed["gpu"], &failed["severity"]), (&json!(uuid(3)), &json!("isolate")));
        assert_eq!(failed["warnings"][0]["errorId"], 95);
    }
}

#[test]
fn promise_32_what_cannot_be_known_is_no_pass() {
    for (dcgm, code) in [
        (Dcgm { cut_at: Some(300), ..Dcgm::default() }, "could-not-be-known"),
        (Dcgm { cut_at: Some(0), ..Dcgm::default() }, "could-not-be-known"),
        (Dcgm { busy: true, ..Dcgm::default() }, "dcgm-already-running"),
        (Dcgm { exit: Some(203), ..Dcgm::default() }, "could-not-be-known"),
        (Dcgm { runtime_error: Some("no host engine".into()), ..Dcgm::default() }, "dcgm-error"),
    ] {
        let (report, said) = machine(dcgm).run("diag.dcgm", &json!({ "level": 3 }));
        assert_eq!((report["code"].as_str(), said.code), (Some(code), Some(2)), "{report}");
        assert_eq!(report["effects"][0]["name"], "process.start");
    }
    let skipped = machine(Dcgm { skips: true, ..Dcgm::default() }).result("diag.dcgm", &json!({ "level": 1 }));
    assert_eq!((&skipped["status"], &skipped["reason"]), (&json!("unknown"), &json!("every test was skipped")));
    let machine = machine(Dcgm::default());
    std::fs::remove_file(machine.node.programs().join("dcgmi")).expect("it goes");
    assert_eq!(machine.run("diag.dcgm", &json!({ "level": 1 })).0["code"], "dcgm-not-installed");
}

#[test]
fn from_level_2_on_gpus_in_use_are_left_alone() {
    let machine = Machine::changed(busy);
    for (payload, code) in [
        (json!({ "level": 2 }), Some("gpu-busy")),
        (json!({ "level": 4, "gpus": [uuid(1), uuid(2)] }), Some("gpu-busy")),
        (json!({ "level": 2, "gpus": [uuid(1)] }), None),
        (json!({ "level": 1 }), None),
        (json!({ "level": 1, "gpus": ["GPU-0"] }), Some("unknown-gpu")),
    ] {
        let (report, _) = machine.run("diag.dcgm", &payload);
        assert_eq!(report["code"].as_str(), code, "{payload}: {report}");
        let begun = usize::from(code.is_none());
        assert_eq!(report["effects"].as_array().expect("effects").len(), begun, "{payload}: {report}");
    }
}
