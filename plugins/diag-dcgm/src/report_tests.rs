//! **Invariant:** both generations, every exit code that is known, and every way in which nothing can be known have their case.

use sdk::nvml::{Device, Identity};

use super::*;

fn gpus() -> Gpus {
    let device = |index: u32| Device {
        index,
        identity: Ok(Identity {
            uuid: format!("GPU-{index}"),
            name: "NVIDIA H100".into(),
            pci_address: format!("0000:{index:02x}:00.0"),
            serial: None,
            minor: Some(index),
            mig_enabled: None,
            persistence: None,
        }),
    };
    Gpus::new(Ok(vec![device(0), device(1)]))
}

fn of(code: i32, text: &str) -> Result<Report, Failure> {
    report(2, Exit::Code(code), text, "", &gpus())
}

fn three(results: &str) -> String {
    format!(
        r#"{{"DCGM GPU Diagnostic":{{"test_categories":[{{"category":"Deployment","tests":[{{"name":"Denylist","results":[{{"status":"Pass"}}]}}]}},
        {{"category":"Hardware","tests":[{{"name":"Memory","results":[{results}]}}]}}],"version":"3.3.9"}}}}"#
    )
}

fn four(results: &str, summary: &str) -> String {
    format!(
        r#"{{"DCGM Diagnostic":{{"metadata":{{"version":"4.2.0"}},"test_categories":[{{"category":"Hardware","tests":[
        {{"name":"memory","results":[{results}],"test_summary":{{"status":"{summary}"}}}}]}}]}}}}"#
    )
}

#[test]
fn both_generations_read_to_the_same() {
    let old = three(r#"{"gpu_id":"0","status":"Pass","info":"6.4%"},{"gpu_id":"1","status":"Skip"}"#);
    let report = of(0, &old).expect("it reads");
    assert_eq!((report.status, report.reason, report.dcgm.as_deref()), ("pass", None, Some("3.3.9")));
    assert_eq!((report.tests[0].gpu.as_ref(), report.tests[1].gpu.as_deref()), (None, Some("GPU-0")));
    assert_eq!((report.tests[1].info.as_slice(), report.tests[2].status), (&["6.4%".to_owned()][..], "skip"));
    assert_eq!(report.summary, "level 2: 2 passed, 0 failed, 1 skipped, 0 unknown");

    let new =
        four(r#"{"entity_group":"GPU","entity_group_id":1,"entity_id":1,"status":"Pass","info":["a","b"]}"#, "Pass");
    let report = of(0, &new).expect("it reads");
    assert_eq!((report.status, report.dcgm.as_deref()), ("pass", Some("4.2.0")));
    let line = &report.tests[0];
    assert_eq!((line.gpu.as_deref(), line.entity.as_deref(), line.info.len()), (Some("GPU-1"), Some("GPU 1"), 2));
    let other = four(r#"{"entity_group":"CPU","entity_id":0,"status":"Pass"}"#, "Pass");
    assert_eq!(of(0, &other).expect("it reads").tests[0].gpu, None, "number 0 of something else is no GPU");
}

#[test]
fn a_failure_tells_gpu_error_and_severity() {
    let warnings = r#"[{"warning":"a page","error_id":1,"error_category":7,"error_severity":1},
        {"warning":"row remap failed","error_id":95,"error_category":7,"error_severity":2}]"#;
    for (text, code) in [
        (three(&format!(r#"{{"gpu_id":"1","status":"Fail","warnings":{warnings}}}"#)), exit::FAILED),
        (
            four(&format!(r#"{{"entity_group":"GPU","entity_id":1,"status":"Fail","warnings":{warnings}}}"#), "Fail"),
            exit::ISOLATE,
        ),
    ] {
        let report = of(code, &text).expect("it reads");
        assert_eq!(report.status, "fail");
        assert!(report.reason.as_deref().expect("why").ends_with("emory on GPU 1: a page"), "{report:?}");
        let line = report.tests.last().expect("a test");
        assert_eq!((line.gpu.as_deref(), line.severity), (Some("GPU-1"), Some("isolate")));
        assert_eq!((line.warnings[1].error_id, line.warnings[0].severity), (Some(95), Some("monitor")));
    }
    let deployment = r#"{"DCGM GPU Diagnostic":{"test_categories":[{"category":"Deployment","tests":[{"name":"Persistence Mode",
        "results":[{"status":"Fail","gpu_id":0,"warnings":[{"warnings":"it is off","error_id":5}]}]}]}]}}"#;
    let report = of(exit::FAILED, deployment).expect("it reads");
    assert_eq!(report.tests[0].warnings[0].text, "it is off");
}

#[test]
fn promise_32_a_pass_takes_a_test_that_passed_and_a_tool_that_ended_well() {
    let passed = || three(r#"{"gpu_id":"0","status":"Pass"}"#);
    let skipped = || four(r#"{"entity_group":"GPU","entity_id":0,"status":"Skip"}"#, "Skip");
    for (code, text, status, reason) in [
        (0, skipped(), "unknown", "every test was skipped"),
        (0, r#"{"DCGM Diagnostic":{"test_categories":[]}}"#.into(), "unknown", "no test was run"),
        (1, passed(), "unknown", "no test failed, but dcgmi ended with 1"),
        (exit::FAILED, passed(), "fail", "and does not say which"),
        (exit::ISOLATE, skipped(), "fail", "and does not say which"),
        (0, four(r#"{"entity_id":0,"status":"Pass"}"#, "Fail"), "fail", "and does not say which"),
        (0, three(r#"{"gpu_id":"0","status":"Maybe"}"#), "unknown", "a status that is not known"),
        (0, three(r#"{"gpu_id":"0"}"#), "unknown", "a status that is not known"),
    ] {
        let report = of(code, &text).expect("it reads");
        assert_eq!(report.status, status, "{code}: {text}");
        assert!(report.reason.as_deref().expect("why").contains(reason), "{report:?}");
    }
}

#[test]
fn promise_32_what_does_not_read_is_could_not_be_known_wherever_it_was_cut() {
    let whole = three(r#"{"gpu_id":"0","status":"Pass"}"#);
    for end in 0..whole.len() {
        if let Ok(report) = of(0, &whole[..end]) {
            panic!("{end} of {}: {report:?}", whole.len());
        }
    }
    let failure = of(0, &whole[..whole.len() / 2]).expect_err("cut off");
    assert_eq!(failure.code, "could-not-be-known");
    assert!(failure.message.starts_with("dcgmi ended with 0, and its JSON"), "{failure:?}");
    assert!(of(0, &format!("Warning: old driver\n{whole}\nbye")).is_ok(), "words around it do no harm");
    for text in ["", "no json", "{}", "}{", "[]", r#"{"DCGM Diagnostic"#] {
        assert_eq!(of(0, text).expect_err(text).code, "could-not-be-known", "{text}");
    }
}

#[test]
fn what_did_not_run_says_why() {
    let code = |exit: Exit, text: &str, complaint: &str| {
        let failure = report(1, exit, text, complaint, &gpus()).expect_err("nothing ran");
        (failure.code, failure.retryable)
    };
    let owned = |code: &str, retryable| (code.to_owned(), retryable);
    assert_eq!(code(Exit::Code(217), "", ""), owned("dcgm-already-running", true));
    let running = r#"{"DCGM Diagnostic":{"runtime_error":"The DCGM diagnostic is already running"}}"#;
    assert_eq!(code(Exit::Code(217 - 1), running, ""), owned("dcgm-already-running", true));
    assert_eq!(code(Exit::Code(1), "", "Error: diagnostic already running"), owned("dcgm-already-running", true));
    assert_eq!(code(Exit::Code(203), "", ""), owned("could-not-be-known", false));
    assert_eq!(code(Exit::Signal(9), "", ""), owned("could-not-be-known", false));
    assert_eq!(code(Exit::TimedOut, "", ""), owned("timed-out", false));
    let error = r#"{"runtime_error":"unable to connect to the host engine"}"#;
    assert_eq!(code(Exit::Code(1), error, ""), owned("dcgm-error", false));
    let half = r#"{"DCGM Diagnostic":{"runtime_error":"gone","test_categories":[{"category":"a","tests":[{"name":"b","results":[{"status":"Pass"}]}]}]}}"#;
    let report = of(0, half).expect("something ran");
    assert_eq!((report.status, report.reason.as_deref()), ("unknown", Some("DCGM did not run all of it: gone")));
}
