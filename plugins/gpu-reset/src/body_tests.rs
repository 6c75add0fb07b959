//! **Invariant:** every way to refuse, and every third state, has its case here.

use sdk::nvml::Identity;
use serde_json::Value;

use super::*;

fn device(index: u32, uuid: &str) -> Device {
    let identity = Identity {
        uuid: uuid.into(),
        name: "NVIDIA H100".into(),
        pci_address: format!("0000:{index:02x}:00.0"),
        serial: None,
        minor: Some(index),
        mig_enabled: None,
        persistence: Some(true),
    };
    Device { index, identity: Ok(identity) }
}

fn error(code: &str) -> Error {
    Error { code: code.into(), native: None, message: "no answer".into() }
}

fn names(gpus: &[&str]) -> Vec<String> {
    gpus.iter().map(ToString::to_string).collect()
}

fn details(failure: &Failure) -> Value {
    serde_json::from_str(failure.details.as_deref().expect("details")).expect("JSON")
}

#[test]
fn a_payload_names_each_gpu_once_and_at_least_one() {
    let said = |gpus: &[&str]| -> Vec<(String, String)> {
        problems(&names(gpus)).into_iter().map(|it| (it.pointer, it.message)).collect()
    };
    assert_eq!(said(&["GPU-a", "GPU-b"]), []);
    assert_eq!(said(&["GPU-a", "GPU-b", "gpu-A"]), [("/gpus/2".into(), "gpu-A is named twice".into())]);
    assert_eq!(said(&[])[0].0, "/gpus");
}

#[test]
fn unknown_gpus_are_refused_by_name_before_anything_is_done() {
    let mut devices = vec![device(0, "GPU-a")];
    assert_eq!(all_listed(&names(&["GPU-a"]), &devices), Ok(()));
    devices.push(Device { index: 1, identity: Err(error("gpu-is-lost")) });
    let failure = all_listed(&names(&["GPU-a", "GPU-b", "GPU-c"]), &devices).expect_err("two are not there");
    assert_eq!(failure.code, "unknown-gpu");
    assert!(failure.message.starts_with("the driver does not list GPU-b, GPU-c: nothing was done"), "{failure:?}");
    assert!(failure.message.contains("GPU 1 does not say who it is: no answer (gpu-is-lost)"), "{failure:?}");
    assert_eq!(details(&failure)["gpus"], serde_json::json!(["GPU-b", "GPU-c"]));
}

#[test]
fn promise_32_a_gpu_is_healthy_only_when_everything_could_be_asked() {
    let rows = |pending, failure| Ok(RowRemapping { correctable: 0, uncorrectable: 0, pending, failure });
    let devices = || Ok(vec![device(0, "GPU-a")]);
    let word = |devices, rows, advice| match health("GPU-a", &devices, &rows, &advice) {
        Health::Healthy => "healthy".to_owned(),
        Health::Unhealthy(why) => format!("unhealthy: {why}"),
        Health::Unknown(why) => format!("unknown: {why}"),
    };
    let unsupported = || error("not-supported");
    assert_eq!(word(devices(), rows(false, false), Ok(0)), "healthy");
    assert_eq!(word(devices(), Err(unsupported()), Err(unsupported())), "healthy", "older GPUs have neither");
    let no_answer = "unknown: could not ask: no answer (timeout)";
    assert_eq!(word(devices(), Err(error("timeout")), Ok(0)), no_answer);
    assert_eq!(word(devices(), Err(unsupported()), Err(error("timeout"))), no_answer);
    assert_eq!(word(Err(error("timeout")), rows(false, false), Ok(0)), no_answer);
    assert_eq!(word(devices(), Err(error("timeout")), Ok(2)), "unhealthy: the driver advises recovery action 2");
    assert_eq!(
        word(devices(), rows(true, false), Err(error("timeout"))),
        "unhealthy: a row remap still waits for a reset"
    );
    assert!(word(devices(), rows(false, true), Ok(0)).starts_with("unhealthy: a row remap failed"));
    assert_eq!(word(Ok(Vec::new()), rows(false, false), Ok(0)), "unhealthy: the driver does not list it any more");
}

#[test]
fn a_report_succeeds_only_when_every_gpu_was_reset() {
    let outcome = |gpu: &str, reset, message: &str| ResetOutcome { gpu: gpu.into(), reset, message: message.into() };
    let after = |gpus: &[&str]| gpus.iter().map(|gpu| Gpu { gpu: (*gpu).into(), health: Health::Healthy }).collect();
    let done = report(&[outcome("GPU-a", true, "reset")], after(&["GPU-a"])).expect("all were reset");
    assert_eq!(done.summary, "1 of 1 were reset, 1 are healthy");
    let sick = vec![Gpu { gpu: "GPU-a".into(), health: Health::Unhealthy("rows".into()) }];
    let done = report(&[outcome("GPU-a", true, "reset")], sick).expect("it was reset all the same");
    assert_eq!((done.gpus[0].health, done.gpus[0].reason.as_deref()), ("unhealthy", Some("rows")));

    let outcomes = [outcome("GPU-a", true, "reset"), outcome("GPU-b", false, "reset-incomplete: please reboot")];
    let failure = report(&outcomes, after(&["GPU-a", "GPU-b"])).expect_err("one was not");
    assert_eq!(failure.code, "reset-incomplete");
    assert!(failure.message.ends_with("GPU-b: reset-incomplete: please reboot"), "{failure:?}");
    assert_eq!(details(&failure)["gpus"][0]["reset"], "yes");

    let unknown = [outcome("GPU-a", false, "could-not-be-known: it hangs")];
    let failure = report(&unknown, after(&["GPU-a"])).expect_err("nobody knows");
    assert_eq!(
        (failure.code.as_str(), &details(&failure)["gpus"][0]["reset"]),
        (COULD_NOT_BE_KNOWN, &"unknown".into())
    );
    assert_eq!(report(&[], after(&["GPU-a"])).expect_err("silence").code, COULD_NOT_BE_KNOWN);
}

#[test]
fn what_passes_by_itself_may_be_tried_again() {
    for (code, retryable) in
        [("gpu-busy", true), ("nvml-in-use", true), ("primary-gpu", false), ("peers-needed", false)]
    {
        let failure = not_reset(error(code));
        assert_eq!((failure.code.as_str(), failure.retryable), (code, retryable));
    }
}
