//! `diag.nvml` in the states of driver and GPUs.

use bc_tests::machine::Machine;
use fake_nvml::{Preset, State, write_library_without};
use serde_json::json;

use super::diagnosis::Diagnosis;

#[test]
fn a_healthy_node_passes_every_check() {
    let diagnosis = Diagnosis::with(&Machine::new(&State::eight_h100()), &json!({ "expectedGpus": 8 }));
    assert_eq!(diagnosis.not_passed(), "pass: 42 passed");
    assert_eq!(diagnosis.0["driver"]["version"], "570.124.06");
    assert_eq!(diagnosis.0["driver"]["cudaVersion"], "12.8");
}

#[test]
fn promise_32_a_driver_that_is_not_loaded_fails_and_leaves_the_rest_unasked() {
    let machine = Machine::new(&Preset::NoDriver.state());
    let diagnosis = Diagnosis::of(&machine);
    assert!(diagnosis.0["driver"].is_null());
    insta::assert_snapshot!(machine.anonymous(&diagnosis.not_passed()));
}

#[test]
fn promise_32_a_missing_library_fails_and_leaves_the_rest_unasked() {
    let machine = Machine::new(&State::eight_h100());
    std::fs::remove_file(machine.node.library()).expect("the library goes");
    let diagnosis = Diagnosis::of(&machine);
    let (status, reason) = diagnosis.check("nvml.init", None);
    assert_eq!(status, "fail");
    assert!(reason.contains("library-not-found"), "{reason}");
    assert!(diagnosis.checks().iter().all(|check| check["status"] != "pass"), "{}", diagnosis.0);
}

#[test]
fn promise_32_a_function_that_an_older_driver_lacks_could_not_be_asked() {
    let machine = Machine::new(&State::eight_h100());
    write_library_without(&machine.node.library(), &["nvmlDeviceGetRemappedRows"]).expect("an older library");
    let diagnosis = Diagnosis::of(&machine);
    assert_eq!(diagnosis.status(), "unknown");
    for name in ["row-remap.pending", "row-remap.failure"] {
        let (status, reason) = diagnosis.check(name, Some(0));
        assert!(status == "unknown" && reason.contains("symbol-missing"), "{status}: {reason}");
    }
    assert_eq!(diagnosis.check("ecc.uncorrectable", Some(0)).0, "pass");
}

#[test]
fn promise_32_a_library_without_a_way_to_end_it_fails() {
    let machine = Machine::new(&State::eight_h100());
    write_library_without(&machine.node.library(), &["nvmlShutdown"]).expect("a broken library");
    let diagnosis = Diagnosis::of(&machine);
    let (status, reason) = diagnosis.check("nvml.init", None);
    assert!(status == "fail" && reason.contains("symbol-missing"), "{status}: {reason}");
}

#[test]
fn a_faulty_node_names_each_fault_and_checks_the_other_gpus() {
    let diagnosis = Diagnosis::of(&Machine::new(&Preset::Faulty.state()));
    diagnosis.assert_others_pass(&[1, 2, 3, 4, 5]);
    for (name, index) in
        [("row-remap.pending", 1), ("row-remap.failure", 2), ("pcie.link", 4), ("ecc.uncorrectable", 5)]
    {
        assert_eq!(diagnosis.check(name, Some(index)).0, "fail", "{name} of GPU {index}");
    }
    insta::assert_snapshot!(diagnosis.not_passed());
}

#[test]
fn a_lost_gpu_fails_and_the_others_are_still_checked() {
    let diagnosis = Diagnosis::of(&Machine::changed(|state| state.gpus[0].lost = true));
    diagnosis.assert_others_pass(&[0]);
    let (status, reason) = diagnosis.check("gpus.visible", None);
    assert!(status == "fail" && reason.contains("gpu-is-lost, 15"), "{status}: {reason}");
    assert_eq!(diagnosis.check("ecc.uncorrectable", Some(0)).0, "unknown");
}

#[test]
fn promise_32_mig_instances_make_row_remapping_skipped_and_never_a_pass() {
    let diagnosis = Diagnosis::of(&Machine::new(&Preset::MigSplit.state()));
    assert_eq!(diagnosis.status(), "pass");
    diagnosis.assert_others_pass(&[0]);
    insta::assert_snapshot!(diagnosis.not_passed());
}

#[test]
fn ecc_that_is_off_is_skipped_and_a_gpu_without_ecc_too() {
    let diagnosis = Diagnosis::of(&Machine::changed(|state| {
        state.gpus[6].ecc.as_mut().expect("an H100 has ECC").enabled = false;
        state.gpus[7].ecc = None;
    }));
    assert_eq!(diagnosis.check("ecc.uncorrectable", Some(6)), ("skipped", "ECC is off"));
    let (status, reason) = diagnosis.check("ecc.uncorrectable", Some(7));
    assert!(status == "skipped" && reason.contains("not-supported, 3"), "{status}: {reason}");
    diagnosis.assert_others_pass(&[6, 7]);
}

#[test]
fn a_count_that_was_not_expected_fails() {
    let machine = Machine::new(&State::eight_h100());
    for (expected, status, reason) in
        [(8, "pass", ""), (7, "fail", "the driver lists 8 GPUs, expected 7"), (16, "fail", "8 GPUs, expected 16")]
    {
        let diagnosis = Diagnosis::with(&machine, &json!({ "expectedGpus": expected }));
        let found = diagnosis.check("gpus.visible", None);
        assert!(found.0 == status && found.1.contains(reason), "{expected}: {found:?}");
    }
    let none = Machine::changed(|state| state.gpus.clear());
    assert_eq!(Diagnosis::of(&none).check("gpus.visible", None), ("fail", "the driver lists no GPU"));
    assert_eq!(Diagnosis::with(&none, &json!({ "expectedGpus": 0 })).check("gpus.visible", None), ("pass", ""));
}

/// One function fails on each GPU, each with another code.
#[test]
fn promise_32_what_a_gpu_does_not_answer_is_unknown_with_its_code() {
    let broken: [(&str, u32); 7] = [
        ("nvmlDeviceGetEccMode", 4242),
        ("nvmlDeviceGetTotalEccErrors", 999),
        ("nvmlDeviceGetRemappedRows", 4),
        ("nvmlDeviceGetCurrPcieLinkWidth", 10),
        ("nvmlDeviceGetMaxPcieLinkWidth", 17),
        ("nvmlDeviceGetUUID", 4242),
        ("nvmlDeviceGetHandleByIndex_v2", 18),
    ];
    let diagnosis = Diagnosis::of(&Machine::changed(|state| {
        for (gpu, (function, code)) in state.gpus.iter_mut().zip(broken) {
            gpu.errors.insert(function.to_owned(), code);
        }
    }));
    assert_eq!(diagnosis.status(), "unknown");
    diagnosis.assert_others_pass(&[0, 1, 2, 3, 4, 5, 6]);
    for (index, (function, code)) in (0..).zip(broken) {
        let of_gpu = diagnosis.checks().iter().filter(|check| check["index"].as_u64() == Some(index));
        let unknown = of_gpu.filter(|check| check["status"] == "unknown").collect::<Vec<_>>();
        let says = |check: &&serde_json::Value| check["reason"].as_str().expect("a reason").contains(&code.to_string());
        assert!(!unknown.is_empty() && unknown.iter().all(says), "{function} {code}: {unknown:?}");
    }
    insta::assert_snapshot!(diagnosis.not_passed());
}

/// Every return code there is, and two that there are not, eight at a time.
#[test]
fn promise_32_no_return_code_becomes_a_pass() {
    let codes: Vec<u32> = (1..=30).chain([999, 4242]).collect();
    for codes in codes.chunks(8) {
        let diagnosis = Diagnosis::of(&Machine::changed(|state| {
            for (gpu, code) in state.gpus.iter_mut().zip(codes) {
                gpu.errors.insert("nvmlDeviceGetRemappedRows".to_owned(), *code);
            }
        }));
        for (index, code) in (0..).zip(codes) {
            let (status, reason) = diagnosis.check("row-remap.pending", Some(index));
            let expected = if *code == 3 { "skipped" } else { "unknown" };
            assert!(status == expected && reason.contains(&format!(", {code})")), "{code}: {status}: {reason}");
        }
    }
}

#[test]
fn promise_32_a_driver_that_cannot_list_its_gpus_passes_nothing_about_them() {
    let failing = |function: &str, code| {
        Diagnosis::of(&Machine::changed(|state| {
            state.errors.insert(function.to_owned(), code);
        }))
    };
    let diagnosis = failing("nvmlDeviceGetCount_v2", 4242);
    assert_eq!((diagnosis.status(), diagnosis.check("nvml.init", None).0), ("unknown", "pass"));
    let (status, reason) = diagnosis.check("gpus.visible", None);
    assert!(status == "unknown" && reason.contains("4242"), "{status}: {reason}");
    assert_eq!(diagnosis.check("pcie.link", None).0, "unknown");

    let diagnosis = failing("nvmlSystemGetDriverVersion", 999);
    let (status, reason) = diagnosis.check("nvml.init", None);
    assert!(status == "fail" && reason.contains("999"), "{status}: {reason}");
}
